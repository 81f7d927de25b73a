//! Doubly linked lists whose links are in the items of a slice, so that an item moves without an allocation.
#![expect(clippy::indexing_slicing, reason = "a list holds indices of its slice alone")]

/// Marks the absence of an item.
pub(super) const NONE: u32 = u32::MAX;

/// The neighbours of an item in a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) previous: u32,
    pub(super) next: u32,
}

impl Links {
    /// Those of an item in no list.
    pub(super) const ALONE: Links = Links { previous: NONE, next: NONE };
}

/// An item with links for list number `LIST`.
pub(super) trait Linked<const LIST: usize> {
    fn links(&mut self) -> &mut Links;
}

/// Items in an order, by their indices in a slice that every call is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<const LIST: usize> {
    pub(super) first: u32,
    last: u32,
}

impl<const LIST: usize> Default for List<LIST> {
    fn default() -> Self {
        List { first: NONE, last: NONE }
    }
}

impl<const LIST: usize> List<LIST> {
    /// Adds an item at the end.
    #[inline]
    pub(super) fn push(&mut self, items: &mut [impl Linked<LIST>], index: u32) {
        self.insert(items, NONE, index);
    }

    /// Adds an item before another one, or at the end before `NONE`.
    #[inline]
    pub(super) fn insert(&mut self, items: &mut [impl Linked<LIST>], next: u32, index: u32) {
        let previous = match next {
            NONE => self.last,
            _ => items[next as usize].links().previous,
        };
        *items[index as usize].links() = Links { previous, next };
        self.set_neighbours(items, Links { previous, next }, Links { previous: index, next: index });
    }

    /// Removes an item.
    #[inline]
    pub(super) fn unlink(&mut self, items: &mut [impl Linked<LIST>], index: u32) {
        let around = *items[index as usize].links();
        self.set_neighbours(items, around, around);
    }

    /// Links the items of `around`, or the list's ends, to their new neighbours: `new.next` follows `around.previous`, and `new.previous` is
    /// before `around.next`.
    #[inline]
    fn set_neighbours(&mut self, items: &mut [impl Linked<LIST>], around: Links, new: Links) {
        match around.previous {
            NONE => self.first = new.next,
            previous => items[previous as usize].links().next = new.next,
        }
        match around.next {
            NONE => self.last = new.previous,
            next => items[next as usize].links().previous = new.previous,
        }
    }
}
