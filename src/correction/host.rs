//! Delays that the host adds around the GPUs' steps. Uses nothing else of the crate.

use serde::{Deserialize, Serialize};

/// Delays that the host adds around the GPUs' steps. The defaults are round numbers whose sum for a prompt of 566 tokens, 6.6 ms, is what
/// one published report (Llama-2-7B on an H100, vLLM 0.15.1) leaves of its times to first token beyond the engine's own
/// steps, from the fastest request to the 75th percentile; how they share it is assumed. See `docs/replay.md`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostTimes {
    /// µs per request before the engine has it: HTTP, validation, hand-over to the engine's process. 3 ms.
    pub queueing_us: f64,
    /// µs per prompt token before the engine has it: tokenisation. 2 µs, half a million tokens a second.
    pub queueing_us_per_token: f64,
    /// µs from the end of a step until a client has its token: output processing, detokenisation, streaming to a
    /// busy client. 2.5 ms.
    pub output_token_us: f64,
    /// µs of the engine's thread per iteration: scheduling and preparing inputs. Assumed: 1 ms, of the 0.5 to 2 ms that
    /// simulator authors report for scheduling (inference-sim, issue 482).
    pub scheduling_us: f64,
    /// µs of the engine's thread per preempted request: freeing its blocks. Assumed: 0.1 ms.
    pub preemption_us: f64,
}

impl Default for HostTimes {
    fn default() -> Self {
        HostTimes {
            queueing_us: 3000.0,
            queueing_us_per_token: 2.0,
            output_token_us: 2500.0,
            scheduling_us: 1000.0,
            preemption_us: 100.0,
        }
    }
}

impl HostTimes {
    /// A host that takes no time.
    pub const NONE: HostTimes = HostTimes {
        queueing_us: 0.0,
        queueing_us_per_token: 0.0,
        output_token_us: 0.0,
        scheduling_us: 0.0,
        preemption_us: 0.0,
    };

    /// The delays by their keys.
    pub(super) fn by_key(&mut self) -> [(&'static str, &mut f64); 5] {
        [
            ("queueing_us", &mut self.queueing_us),
            ("queueing_us_per_token", &mut self.queueing_us_per_token),
            ("output_token_us", &mut self.output_token_us),
            ("scheduling_us", &mut self.scheduling_us),
            ("preemption_us", &mut self.preemption_us),
        ]
    }
}
