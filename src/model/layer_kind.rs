//! Kinds of layers in hybrid models.

/// What a layer of a hybrid model does beside the feed-forward part that its family gives to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// It attends to a KV cache.
    Attention,
    /// It keeps a state.
    State,
    /// It is a dense feed-forward part and nothing else.
    Dense,
    /// It is routed experts and nothing else.
    Experts,
}
