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

impl<const LIST: usize> List<LIST> {
    pub(super) const EMPTY: Self = List { first: NONE, last: NONE };

    /// Adds an item at the end.
    pub(super) fn push(&mut self, items: &mut [impl Linked<LIST>], index: u32) {
        *items[index as usize].links() = Links { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = index,
            last => items[last as usize].links().next = index,
        }
        self.last = index;
    }

    /// Adds an item before another one, or at the end before `NONE`.
    pub(super) fn insert(&mut self, items: &mut [impl Linked<LIST>], next: u32, index: u32) {
        let previous = match next {
            NONE => self.last,
            _ => items[next as usize].links().previous,
        };
        *items[index as usize].links() = Links { previous, next };
        match previous {
            NONE => self.first = index,
            _ => items[previous as usize].links().next = index,
        }
        match next {
            NONE => self.last = index,
            _ => items[next as usize].links().previous = index,
        }
    }

    /// Removes an item.
    pub(super) fn unlink(&mut self, items: &mut [impl Linked<LIST>], index: u32) {
        let Links { previous, next } = *items[index as usize].links();
        match previous {
            NONE => self.first = next,
            _ => items[previous as usize].links().next = next,
        }
        match next {
            NONE => self.last = previous,
            _ => items[next as usize].links().previous = previous,
        }
    }
}
