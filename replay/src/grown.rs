//! Lists that grow with the indices that are used.

/// Borrows the place at `index` of `list`, which grows up to it with what `fill` returns.
#[inline]
#[expect(clippy::indexing_slicing, reason = "the list was just made long enough")]
pub(super) fn grown<T>(list: &mut Vec<T>, index: usize, fill: impl FnMut() -> T) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, fill);
    }
    &mut list[index]
}
