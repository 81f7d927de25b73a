//! A model that a sweep names, found once for all its servers.

use std::sync::Arc;

use ridgepoint::Model;
use ridgepoint::internals::correction::Correction;

/// A model in the precision that servers ask for.
#[derive(Debug)]
pub(super) struct FoundModel {
    /// The model and remarks on it, or why it does not exist in this precision.
    pub(super) model: std::result::Result<(Model, Vec<String>), String>,
    /// The correction of its step times.
    pub(super) correction: Option<Arc<Correction>>,
}
