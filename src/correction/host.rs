//! Delays that the host adds around the GPUs' steps. Uses nothing else of the crate.

use serde::{Deserialize, Serialize};

/// Delays that the host adds around the GPUs' steps. The defaults are round numbers whose sum for a prompt of 566 tokens, 6.6 ms, is what
/// one published report (Llama-2-7B on an H100, vLLM 0.15.1) leaves of its times to first token beyond the engine's own
/// steps, from the fastest request to the 75th percentile; how they share it is assumed, but for the front end's part. See `docs/replay.md`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostTimes {
    /// µs per request before the engine has it, beyond the front end's loop: the network, the hand-over to the engine's process. 1.3 ms.
    pub queueing_us: f64,
    /// µs per prompt token before the engine has it: tokenisation. 2 µs, half a million tokens a second.
    pub queueing_us_per_token: f64,
    /// µs of the front end's event loop per request, in addition to `queueing_us`: HTTP, validation, tokenisation, the first answer. Requests that
    /// are in it at once share it equally, so that n which are sent together all reach the engine n times as late: vLLM's and SGLang's API
    /// servers are asyncio loops of one thread. 1.7 ms: CPU time of the loop of vLLM 0.32.0's API server on one core of a server CPU,
    /// prompts of 137 tokens of which four are answered, 200 in flight (`docs/replay.md`). A file that has none means none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub front_end_us: f64,
    /// µs from the end of a step until a client has its token: output processing, detokenisation, streaming to a
    /// busy client. 2.5 ms.
    pub output_token_us: f64,
    /// µs of the engine's thread per iteration: scheduling and preparing inputs. Assumed: 1 ms, of the 0.5 to 2 ms that
    /// simulator authors report for scheduling (inference-sim, issue 482).
    pub scheduling_us: f64,
    /// µs of the engine's thread per iteration and running request, beyond the request's share of the step. None is assumed.
    pub scheduling_us_per_running: f64,
    /// µs of the engine's thread per iteration and waiting request: walking the queue. None is assumed.
    pub scheduling_us_per_waiting: f64,
    /// µs of the engine's thread per preempted request: freeing its blocks. Assumed: 0.1 ms.
    pub preemption_us: f64,
    /// µs of the engine's thread per request that is scheduled again after a preemption. None is assumed.
    pub resume_us: f64,
}

/// Whether a delay is not assumed; files leave it out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(us: &f64) -> bool {
    *us <= 0.0
}

/// The requests of an iteration that the engine's thread takes time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queues {
    /// Requests in the running queue.
    pub num_running: u32,
    /// Requests in the waiting queue.
    pub num_waiting: u32,
    /// Requests preempted in the iteration.
    pub num_preempted: u32,
    /// Preempted requests that the iteration schedules again.
    pub num_resumed: u32,
}

impl Queues {
    /// The counts in the order of [`HostTimes::queue_prices_us`].
    pub fn counts(&self) -> [f64; 4] {
        [self.num_running, self.num_waiting, self.num_preempted, self.num_resumed].map(f64::from)
    }
}

impl Default for HostTimes {
    fn default() -> Self {
        HostTimes {
            queueing_us: 1300.0,
            queueing_us_per_token: 2.0,
            front_end_us: 1700.0,
            output_token_us: 2500.0,
            scheduling_us: 1000.0,
            preemption_us: 100.0,
            ..HostTimes::NONE
        }
    }
}

impl HostTimes {
    /// A host that takes no time.
    pub const NONE: HostTimes = HostTimes {
        queueing_us: 0.0,
        queueing_us_per_token: 0.0,
        front_end_us: 0.0,
        output_token_us: 0.0,
        scheduling_us: 0.0,
        scheduling_us_per_running: 0.0,
        scheduling_us_per_waiting: 0.0,
        preemption_us: 0.0,
        resume_us: 0.0,
    };

    /// µs per running, waiting, preempted and resumed request of an iteration.
    pub fn queue_prices_us(&self) -> [f64; 4] {
        let HostTimes { scheduling_us_per_running, scheduling_us_per_waiting, preemption_us, resume_us, .. } = *self;
        [scheduling_us_per_running, scheduling_us_per_waiting, preemption_us, resume_us]
    }

    /// The same host with these prices of queues, in the order of [`HostTimes::queue_prices_us`].
    #[must_use]
    pub fn with_queue_prices(self, [running, waiting, preemption_us, resume_us]: [f64; 4]) -> HostTimes {
        HostTimes {
            scheduling_us_per_running: running,
            scheduling_us_per_waiting: waiting,
            preemption_us,
            resume_us,
            ..self
        }
    }

    /// Time of the engine's thread for the requests in its queues, µs. It is part of an iteration in addition to `scheduling_us`.
    pub fn queues_us(&self, queues: &Queues) -> f64 {
        queues.counts().iter().zip(self.queue_prices_us()).map(|(count, price)| count * price).sum()
    }

    /// The delays of a host whose cores take `factor` of the time.
    #[must_use]
    pub(crate) fn scaled(mut self, factor: f64) -> HostTimes {
        self.by_key().into_iter().for_each(|(_, us)| *us *= factor);
        self
    }

    /// The delays by their keys.
    pub(super) fn by_key(&mut self) -> [(&'static str, &mut f64); 9] {
        [
            ("queueing_us", &mut self.queueing_us),
            ("queueing_us_per_token", &mut self.queueing_us_per_token),
            ("front_end_us", &mut self.front_end_us),
            ("output_token_us", &mut self.output_token_us),
            ("scheduling_us", &mut self.scheduling_us),
            ("scheduling_us_per_running", &mut self.scheduling_us_per_running),
            ("scheduling_us_per_waiting", &mut self.scheduling_us_per_waiting),
            ("preemption_us", &mut self.preemption_us),
            ("resume_us", &mut self.resume_us),
        ]
    }
}
