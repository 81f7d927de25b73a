//! Sizes and lists of a model's configuration: the limits that every reader of keys shares.

use crate::input::Keys;

/// No dimension of a model is larger, so products of two sizes can be checked.
const MAX_SIZE: u64 = 1 << 40;

/// Reads a required positive size.
pub(super) fn size(keys: &Keys<'_>, key: &str) -> Option<u64> {
    keys.require(&[key]);
    optional_size(keys, key)
}

/// Reads a positive size that may be absent.
pub(super) fn optional_size(keys: &Keys<'_>, key: &str) -> Option<u64> {
    keys.whole(key, 1..=MAX_SIZE)
}

/// Reads a count that may be zero or absent.
pub(super) fn optional_count(keys: &Keys<'_>, key: &str) -> Option<u64> {
    keys.whole(key, 0..=MAX_SIZE)
}

/// Returns whether a list has an entry per layer; records a problem if it does not.
pub(super) fn has_length(keys: &Keys<'_>, key: &str, length: usize, num_layers: u64) -> bool {
    let fits = u64::try_from(length).is_ok_and(|length| length == num_layers);
    if !fits {
        keys.problem(key, format!("has {length} entries, but num_hidden_layers is {num_layers}"));
    }
    fits
}
