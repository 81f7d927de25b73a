//! Operator names that live as long as the program: variants of a name are made once and kept.
//! Uses `model::Window`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::model::Window;

static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The one copy of `name`. Memory grows with the number of distinct names only, and those come from layer kinds.
pub(super) fn intern(name: &str) -> &'static str {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(name) {
        return found;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    known.insert(kept);
    kept
}

/// What distinguishes operators of layers with this window; nothing for full attention.
pub(super) fn window_suffix(window: Window) -> &'static str {
    match window {
        Window::Full => "",
        Window::Sliding(_) => "_sliding",
        Window::Chunked(_) => "_chunked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let first = intern("names_test_operator");
        assert!(std::ptr::eq(first, intern(&String::from("names_test_operator"))));
    }
}
