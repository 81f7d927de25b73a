//! The replicas of a grid: how many of them share the load of a server, behind which router, and whether others compute their prompts.

use ridgepoint::input::Keys;
use ridgepoint_replay::{MAX_REPLICAS, Router, RouterKind};
use serde::Deserialize;
use serde_json::Value;

/// Servers that share a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Replicas that answer: at least 1.
    pub(super) count: u32,
    /// Replicas that compute prompts for them; 0 where each computes its own.
    pub(super) prefill: u32,
    /// How requests are spread over either.
    pub(super) router: RouterKind,
}

impl Sharing {
    /// All replicas.
    pub(super) fn replicas(self) -> u32 {
        self.count.saturating_add(self.prefill)
    }

    /// The router, with the seed of a load.
    pub(super) fn router(self, seed: u64) -> Router {
        Router { kind: self.router, seed }
    }

    /// Reads what one value of each key makes.
    pub(super) fn read(keys: &Keys<'_>) -> Self {
        let number = |key: &str, least: u32| {
            keys.read(key, format_args!("a whole number from {least} to {MAX_REPLICAS}"), |value: &Value| {
                let count = u32::try_from(value.as_u64()?).ok()?;
                (least..=u32::MAX).contains(&count).then_some(count).filter(|count| *count as usize <= MAX_REPLICAS)
            })
        };
        let router = keys.read("router", "the name of a router, as docs/replicas.md lists them", |value| {
            RouterKind::deserialize(value).ok()
        });
        Sharing {
            count: number("count", 1).unwrap_or(1),
            prefill: number("prefill", 0).unwrap_or(0),
            router: router.unwrap_or_default(),
        }
    }
}
