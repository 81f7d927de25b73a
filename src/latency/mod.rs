//! The delays that a serving simulator asks for, and models that answer: the calibrated roofline, a linear
//! black box, a fixed one for tests. Uses `step_model` and `request`; knows nothing of schedulers.

mod black_box;
mod changed_steps;
mod file;
mod kv_transfer;
mod roofline;

pub use crate::correction::{HostTimes, Queues};
pub use black_box::{BlackBox, FixedLatency};
pub use changed_steps::ChangedSteps;
pub use file::FittedBlackBox;
pub use kv_transfer::{KvTransfers, TransferDirection, TransferLink};
pub use roofline::CalibratedRoofline;

use crate::model::{OwnSampling, SamplerWork};
use crate::request::Request;

/// The delays that a simulator of a serving engine asks for, in microseconds. Only the time of a step is required.
///
/// Every method must be (wrappers that add noise or a cold start are exempt):
///
/// - **pure and deterministic**: the same arguments give the same bits, on any thread, however often and in whatever order;
/// - **independent of order**: a step's time does not depend on the order of its requests;
/// - **finite and never negative**, whatever a caller passes; no panic;
/// - **monotone in work**: more tokens to compute, or more requests, never take less time, but where measured kernels do
///   (a batch that fills its CUDA graph or its tiles can be faster than a smaller one that does not).
///
/// How they make up a request's life: it reaches the engine [`queueing_time_us`](Self::queueing_time_us) after it was sent; an engine
/// iteration costs the host [`scheduling_processing_time_us`](Self::scheduling_processing_time_us), plus
/// [`preemption_processing_time_us`](Self::preemption_processing_time_us) per request that it evicts, and the GPUs
/// [`step_time_us`](Self::step_time_us); a sampled token reaches the client
/// [`output_token_processing_time_us`](Self::output_token_processing_time_us) after the end of its step.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
/// use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
///
/// let steps = StepModel::new(&Model::find("llama-3.1-8b")?, &Hardware::find("h100")?, &Deployment::default())?;
/// let latency = CalibratedRoofline::new(steps);
/// let batch = [Request::decode(1000), Request::prefill(256, 0)];
/// assert_eq!(latency.step_time_us(&batch), latency.step_time_us(&[batch[1], batch[0]]));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub trait LatencyModel: Send + Sync {
    /// Time of one engine iteration on the GPUs, for the requests scheduled in it; 0 for none.
    fn step_time_us(&self, requests: &[Request]) -> f64;

    /// [`step_time_us`](Self::step_time_us) where `shared_kv_tokens` of the cached tokens that requests read are read by another request
    /// too, as their prompts share KV blocks. Defaults to no difference. A replay calls this method, so a model that wraps another one
    /// passes it on.
    fn sharing_step_time_us(&self, requests: &[Request], _shared_kv_tokens: u64) -> f64 {
        self.step_time_us(requests)
    }

    /// The sampler's work for a request with sampling parameters of its own, or with none. Defaults to no work, of which
    /// [`sampling_step_time_us`](Self::sampling_step_time_us) makes no difference.
    fn sampler_work(&self, _own: OwnSampling) -> SamplerWork {
        SamplerWork::default()
    }

    /// [`sharing_step_time_us`](Self::sharing_step_time_us) of a step whose sampler does `work`, joined over its requests. Defaults to no
    /// difference. A replay calls this method once a request of the load has sampling parameters of its own.
    fn sampling_step_time_us(&self, requests: &[Request], shared_kv_tokens: u64, _work: SamplerWork) -> f64 {
        self.sharing_step_time_us(requests, shared_kv_tokens)
    }

    /// Returns the host's delays around the steps, from which the four methods below follow. Defaults to none. Prices of an
    /// iteration by running, waiting and resumed requests are in it alone ([`HostTimes::queues_us`]); a replay adds them.
    fn host(&self) -> HostTimes {
        HostTimes::NONE
    }

    /// Time from a request's sending until the engine can schedule it: network, HTTP, tokenisation, hand-over.
    /// `request` is the prompt as it arrives: nothing computed, all of it to schedule.
    fn queueing_time_us(&self, request: &Request) -> f64 {
        let HostTimes { queueing_us, queueing_us_per_token, .. } = self.host();
        non_negative(queueing_us) + non_negative(queueing_us_per_token) * f64::from(request.num_scheduled_tokens)
    }

    /// Time from the end of the step that sampled a token until the client has it: detokenisation, streaming. It delays
    /// the token, not the engine.
    fn output_token_processing_time_us(&self) -> f64 {
        non_negative(self.host().output_token_us)
    }

    /// Time of the engine's own thread per iteration: scheduling, preparing inputs, handling outputs. Hidden behind the
    /// previous step where scheduling is asynchronous, added to the step where it is not.
    fn scheduling_processing_time_us(&self) -> f64 {
        non_negative(self.host().scheduling_us)
    }

    /// Time of the engine's own thread per request that is preempted. What is lost by computing again is in the steps.
    fn preemption_processing_time_us(&self) -> f64 {
        non_negative(self.host().preemption_us)
    }

    /// Time to copy `bytes` of KV blocks between the GPU and host memory, or between host memory and a disk, while nothing else is
    /// copied. It runs beside the steps; a request that loads its blocks waits for it. Only an engine with `EngineConfig::kv_offload`
    /// asks. Defaults to 0.
    fn kv_transfer_time_us(&self, _direction: TransferDirection, _bytes: u64) -> f64 {
        0.0
    }
}

/// Returns a time as it is, or 0 for one that is negative or not finite.
pub fn non_negative(us: f64) -> f64 {
    if us.is_finite() { us.max(0.0) } else { 0.0 }
}
