//! The replicas of a grid: how many of them share the load of a server, and behind which router.

use ridgepoint::input::Keys;
use ridgepoint_replay::{MAX_REPLICAS, Router, RouterKind};
use serde::Deserialize;

use crate::simulate::Replicas;

/// Reads what one value of each key makes.
pub(super) fn read(keys: &Keys<'_>) -> Replicas {
    let count = keys.read("count", format_args!("a whole number from 1 to {MAX_REPLICAS}"), |value| {
        let count = u32::try_from(value.as_u64()?).ok()?;
        (1..=MAX_REPLICAS).contains(&(count as usize)).then_some(count)
    });
    let kind = keys.read("router", "the name of a router, as docs/replicas.md lists them", |value| {
        RouterKind::deserialize(value).ok()
    });
    Replicas { count: count.unwrap_or(1), router: Router { kind: kind.unwrap_or_default(), seed: 0 }, ranks: None }
}
