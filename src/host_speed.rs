//! How fast a server's host runs the engine's and the front end's code. Uses nothing else of the crate.

use serde::{Deserialize, Serialize};

/// How fast one core of a server's host is. It scales what the host was found to take on a typical one: launches of kernels, and the delays
/// around steps that no fit has measured on the server itself.
///
/// # Source
/// A kernel of an eager step takes 18.2 µs on a core of a current server CPU (measured, `step_model::launches`). On the host of an A100 it
/// takes 36 µs: Qwen3-14B by AWQ under vLLM 0.9.1, one request at a time (vllm-project/vllm, issue 20469). On a fast one vLLM's front end sends
/// a token in 46 µs, where it takes 72 µs on a typical one: a public closed loop of 1,024 requests on B200 has 21,800 tokens/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HostSpeed {
    /// The newest cores at their highest clock: 0.65 of a typical one's times.
    Fast,
    /// A current server CPU.
    #[default]
    Typical,
    /// A server CPU of the A100's days, or one that is shared: twice the times.
    Slow,
}

impl HostSpeed {
    /// The factor between the times of neighbouring speeds, by which a host that nobody measured may be faster or slower.
    pub(crate) const RANGE: f64 = 1.8;

    /// Times of this host by those of a typical one.
    pub fn factor(self) -> f64 {
        match self {
            HostSpeed::Fast => 0.65,
            HostSpeed::Typical => 1.0,
            HostSpeed::Slow => 2.0,
        }
    }

    pub(crate) fn is_typical(&self) -> bool {
        *self == HostSpeed::Typical
    }
}
