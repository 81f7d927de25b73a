//! What a server's start-up log says of its runs.

use super::step::Run;

/// What the log of one server says when it starts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerLog {
    /// Its labels; the name of the run is the log's.
    pub(super) run: Run,
    /// The name under which clients ask for the model.
    pub(super) served_model: Option<String>,
    /// KV blocks of a GPU.
    pub(super) kv_blocks: Option<u64>,
    /// Tokens of a KV block, where the log names them.
    pub(super) block_size: Option<u64>,
}
