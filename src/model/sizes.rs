//! Sizes and lists of a model's configuration: the limits that every reader of keys shares, and the readers of layers.

use super::family::{Family, LayerKind};
use crate::dtype::{DType, WeightFormat};
use crate::input::Keys;

/// No dimension of a model is larger, so that the product of any three fits a `u64`.
const MAX_SIZE: u64 = 1 << 20;
/// No context or window is longer, tokens.
const MAX_LENGTH: u64 = 1 << 40;

/// The inputs of the readers of layers.
pub(super) struct LayerReader<'a> {
    pub(super) text: &'a Keys<'a>,
    pub(super) family: &'static Family,
    pub(super) hidden_size: u64,
    pub(super) num_layers: u64,
    /// The kinds of a hybrid model's layers; empty for other families.
    pub(super) kinds: &'a [LayerKind],
    /// Number format of activations.
    pub(super) dtype: DType,
    /// Storage of weights that are not quantised.
    pub(super) plain: WeightFormat,
}

/// Reads a required positive size. A missing or wrong one is a problem, and 1 replaces it: reading continues, so that all
/// problems are found, and the log refuses the model at the end.
pub(super) fn size(keys: &Keys<'_>, key: &str) -> u64 {
    keys.require(&[key]);
    optional_size(keys, key).unwrap_or(1)
}

/// Reads a positive size that may be absent.
pub(super) fn optional_size(keys: &Keys<'_>, key: &str) -> Option<u64> {
    keys.whole(key, 1..=MAX_SIZE)
}

/// Whether a size can be read. One that cannot has a problem of its own, so that comparisons with the 1 in its place say nothing.
pub(super) fn has_size(keys: &Keys<'_>, key: &str) -> bool {
    optional_size(keys, key).is_some()
}

/// Reads a count that may be zero or absent.
pub(super) fn optional_count(keys: &Keys<'_>, key: &str) -> Option<u64> {
    keys.whole(key, 0..=MAX_SIZE)
}

/// Reads a required number of tokens, like [`size`].
pub(super) fn length(keys: &Keys<'_>, key: &str) -> u64 {
    keys.require(&[key]);
    optional_length(keys, key).unwrap_or(1)
}

/// Reads a number of tokens that may be absent.
pub(super) fn optional_length(keys: &Keys<'_>, key: &str) -> Option<u64> {
    keys.whole(key, 1..=MAX_LENGTH)
}

/// Records a problem if a list does not have an entry per layer.
pub(super) fn check_length(keys: &Keys<'_>, key: &str, length: usize, num_layers: u64) {
    if length as u64 != num_layers {
        keys.problem(key, format!("has {length} entries, but num_hidden_layers is {num_layers}"));
    }
}
