//! The delays that a serving simulator asks for, and models that answer: the calibrated roofline, a linear
//! black box, a fixed one for tests. Uses `step_model`, `step` and `request`; knows nothing of schedulers.

mod black_box;
mod file;
mod kv_transfer;
mod roofline;

pub use crate::correction::{HostTimes, Queues};
pub use black_box::{BlackBox, FixedLatency};
pub use file::FittedBlackBox;
pub use kv_transfer::{KvTransfers, TransferDirection, TransferLink};
pub use roofline::CalibratedRoofline;

use crate::request::Request;
use crate::step::Step;

/// The delays that a simulator of a serving engine asks for, in microseconds.
///
/// No method has a default: a model that wraps another one cannot forget to pass one on, and whatever a step's time depends on is in
/// its [`Step`].
///
/// Every method must be (wrappers that add noise or a cold start are exempt):
///
/// - **pure and deterministic**: the same arguments give the same bits, on any thread, however often and in whatever order;
/// - **independent of order**: a step's time does not depend on the order of its requests;
/// - **finite and never negative**, whatever a caller passes; no panic;
/// - **monotone in work**: more tokens to compute, or more requests, never take less time, but where measured kernels do
///   (a batch that fills its CUDA graph or its tiles can be faster than a smaller one that does not).
///
/// How they make up a request's life: it reaches the engine [`queueing_time_us`](HostTimes::queueing_time_us) after it was sent; an
/// engine iteration costs the host [`scheduling_processing_time_us`](HostTimes::scheduling_processing_time_us), plus
/// [`preemption_processing_time_us`](HostTimes::preemption_processing_time_us) per request that it evicts, and the GPUs
/// [`step_time_us`](Self::step_time_us); a sampled token reaches the client
/// [`output_token_processing_time_us`](HostTimes::output_token_processing_time_us) after the end of its step.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, Step, StepModel};
/// use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel, TransferDirection};
///
/// /// A model whose steps take twice as long as those of another one.
/// struct Twice<M>(M);
///
/// impl<M: LatencyModel> LatencyModel for Twice<M> {
///     fn step_time_us(&self, step: &Step<'_>) -> f64 {
///         2.0 * self.0.step_time_us(step)
///     }
///     fn host(&self) -> HostTimes {
///         self.0.host()
///     }
///     fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
///         self.0.kv_transfer_time_us(direction, bytes)
///     }
/// }
///
/// let steps = StepModel::new(&Model::find("llama-3.1-8b")?, &Hardware::find("h100")?, &Deployment::default())?;
/// let latency = Twice(CalibratedRoofline::new(steps.clone()));
/// let batch = [Request::decode(1000), Request::prefill(256, 0)];
/// assert_eq!(latency.step_time_us(&Step::from(&batch)), 2.0 * steps.step_time_us(&batch));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub trait LatencyModel: Send + Sync {
    /// Time of one engine iteration on the GPUs; 0 for a step without requests.
    fn step_time_us(&self, step: &Step<'_>) -> f64;

    /// Returns the host's delays around the steps; [`HostTimes::NONE`] for a model without any. A replay asks once, before its first
    /// request.
    fn host(&self) -> HostTimes;

    /// Time to copy `bytes` of KV blocks between the GPU and host memory, or between host memory and a disk, while nothing else is
    /// copied; 0 for a model that knows no such copies. It runs concurrently with the steps; a request that loads its blocks waits for it. Only an
    /// engine with `EngineConfig::kv_offload` asks.
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64;
}

impl HostTimes {
    /// Time from a request's sending until the engine can schedule it, if no other is in the front end: network, HTTP, tokenisation, hand-over.
    /// `request` is the prompt as it arrives: nothing computed, all of it to schedule.
    pub fn queueing_time_us(&self, request: &Request) -> f64 {
        non_negative(self.front_end_us) + self.behind_front_end_us(request)
    }

    /// The part of [`HostTimes::queueing_time_us`] that requests do not share: all but `front_end_us`.
    pub fn behind_front_end_us(&self, request: &Request) -> f64 {
        let HostTimes { queueing_us, queueing_us_per_token, .. } = *self;
        non_negative(queueing_us) + non_negative(queueing_us_per_token) * f64::from(request.num_scheduled_tokens)
    }

    /// Time from the end of the step that sampled a token until the client has it: detokenisation, streaming. It delays
    /// the token, not the engine.
    pub fn output_token_processing_time_us(&self) -> f64 {
        non_negative(self.output_token_us)
    }

    /// Time of the engine's own thread per iteration: scheduling, preparing inputs, handling outputs. Hidden behind the
    /// previous step where scheduling is asynchronous, added to the step where it is not.
    pub fn scheduling_processing_time_us(&self) -> f64 {
        non_negative(self.scheduling_us)
    }

    /// Time of the engine's own thread per request that is preempted. What is lost by computing again is in the steps.
    pub fn preemption_processing_time_us(&self) -> f64 {
        non_negative(self.preemption_us)
    }
}

/// Returns a time as it is, or 0 for one that is negative or not finite.
pub fn non_negative(us: f64) -> f64 {
    if us.is_finite() { us.max(0.0) } else { 0.0 }
}
