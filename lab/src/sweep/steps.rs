//! Latency models shared by configurations that serve one model on one GPU type in one deployment: built by the first that
//! needs it, dropped after the last. Uses `latency`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ridgepoint::latency::CalibratedRoofline;

type Built = Result<Arc<CalibratedRoofline>, String>;

/// One latency model, for a known number of users.
#[derive(Debug)]
pub(super) struct SharedSteps {
    users: AtomicUsize,
    built: Mutex<Option<Built>>,
}

impl SharedSteps {
    pub(super) fn new(users: usize) -> Self {
        SharedSteps { users: AtomicUsize::new(users), built: Mutex::new(None) }
    }

    /// The model, from `build` where it is not there; other users wait for it.
    pub(super) fn get(&self, build: impl FnOnce() -> Result<CalibratedRoofline, String>) -> Built {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        built.get_or_insert_with(|| build().map(Arc::new)).clone()
    }

    /// A user is done.
    pub(super) fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            *self.built.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_built_once_and_dropped_after_its_last_user() {
        let shared = SharedSteps::new(2);
        let fails = || Err("no".to_owned());
        assert_eq!(shared.get(fails).err().as_deref(), Some("no"));
        assert_eq!(shared.get(|| panic!("is there")).err().as_deref(), Some("no"));
        shared.leave();
        assert_eq!(shared.get(|| panic!("is there")).err().as_deref(), Some("no"));
        shared.leave();
        assert_eq!(shared.get(|| Err("anew".to_owned())).err().as_deref(), Some("anew"));
    }
}
