//! The targets under libFuzzer: `RIDGEPOINT_FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ridgepoint_fuzz::{Target, find};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("RIDGEPOINT_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| {
        eprintln!("RIDGEPOINT_FUZZ_TARGET names no target: '{name}'");
        std::process::exit(2)
    })
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
