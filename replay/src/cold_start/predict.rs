//! The prediction of the six terms from the model, the deployment, the GPU and the rates.

use ridgepoint::hardware::Architecture;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::HostTimes;
use ridgepoint::physics::Captures;
use ridgepoint::units::{US_PER_S, si, time_us};
use ridgepoint::{Deployment, Error, Hardware, Model, Request, Result, StepModel};

use super::chosen::Rates;
use super::rates::RateName;
use super::term::{FIRST_STEP, Part, Seconds, Source, StartUp, Term, TermName};

/// Most requests that share the tokens of the profiling run here; more of them change its time by little.
const MOST_PROFILED: u32 = 4096;
/// Most steps of a first prompt.
const MOST_CHUNKS: u32 = 1024;
/// Factor between the ends of the interval of an assumed delay of the host and its estimate.
const HOST_FACTOR: f64 = 2.0;

/// Whether an earlier start left its compiled graphs in vLLM's compile cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompileCache {
    /// The model is traced and compiled.
    #[default]
    Cold,
    /// Compiled graphs are loaded.
    Warm,
}

impl CompileCache {
    /// Name in flags and reports.
    pub const fn name(self) -> &'static str {
        match self {
            CompileCache::Cold => "cold",
            CompileCache::Warm => "warm",
        }
    }
}

/// A server that starts, and its first request.
///
/// ```
/// use ridgepoint_replay::cold_start::{ColdStart, CompileCache, Rates, Storage};
/// use ridgepoint::{Deployment, Hardware, Model, StepModel};
///
/// let (model, hardware) = (Model::find("llama-3.1-8b")?, Hardware::find("h100")?);
/// let deployment = Deployment::default();
/// let steps = StepModel::new(&model, &hardware, &deployment)?;
/// let rates = Rates::new(&hardware, Storage::Given(7e9), None);
/// let start = ColdStart {
///     model: &model,
///     hardware: &hardware,
///     deployment: &deployment,
///     steps: &steps,
///     rates: &rates,
///     compile_cache: CompileCache::Cold,
///     prompt_tokens: 512,
/// };
/// let start_up = start.predict()?;
/// // 8,030,261,248 weights of 2 bytes at 7 GB/s.
/// assert!((start_up.terms[0].time.estimate_s - 2.0 * 8_030_261_248.0 / 7e9).abs() < 1e-9);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ColdStart<'a> {
    /// The model.
    pub model: &'a Model,
    /// The GPU.
    pub hardware: &'a Hardware,
    /// The deployment.
    pub deployment: &'a Deployment,
    /// Steps of the three.
    pub steps: &'a StepModel,
    /// The rates.
    pub rates: &'a Rates,
    /// The state of the compile cache.
    pub compile_cache: CompileCache,
    /// Prompt tokens of the first request, at least 1.
    pub prompt_tokens: u32,
}

/// The amounts that rates are multiplied with: bytes, layers, graphs and predicted steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amounts {
    /// Bytes of the checkpoint. Every rank maps the same files and reads its own slices, so storage is read once.
    pub checkpoint_bytes: f64,
    /// Bytes of weights on the rank that holds most; 0 if they stay in host memory.
    pub rank_bytes: f64,
    /// Layers of the rank that has most.
    pub layers: f64,
    /// Graphs that each rank captures.
    pub captures: Captures,
    /// Whether the model is compiled.
    pub compiles: bool,
    /// Whether kernels are warmed up before the first request.
    pub warms_up: bool,
    /// Bytes of the KV cache of a rank.
    pub kv_bytes: f64,
}

impl ColdStart<'_> {
    /// Predicts the six terms.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for an empty prompt or one of more than 1,024 steps; those of [`KvCapacity::estimate`] and of [`StepModel::estimate`].
    pub fn predict(&self) -> Result<StartUp> {
        let amounts = self.amounts()?;
        let bytes = |name: &'static str, rate_name, bytes: f64, what: &str| {
            let rate = self.rates.of(rate_name);
            let what = format!("{}B {what} at {}B/s", si(bytes), si(rate.value));
            Part { bytes: Some(bytes), ..self.rated(name, rate_name, rate.time_of(bytes), &what) }
        };

        let storage =
            bytes("read_weights", RateName::StorageBytesPerS, amounts.checkpoint_bytes, "read once by all ranks");
        let device = if self.is_cpu() {
            of_physics("copy_weights", Seconds::exactly(0.0), "weights stay in host memory")
        } else {
            bytes("copy_weights", RateName::HostToDeviceBytesPerS, amounts.rank_bytes, "copied to each GPU")
        };
        let mut warm_up = vec![
            self.once("process_start", RateName::ProcessStartS, "processes, imports, communicators"),
            self.once("model_init", RateName::ModelInitS, "modules, and weights after loading"),
        ];
        if amounts.compiles && self.compile_cache == CompileCache::Warm {
            warm_up.push(self.once("compile_cache", RateName::CompileWarmS, "compiled graphs are loaded"));
        } else if amounts.compiles {
            let time = self.rates.of(RateName::DynamoSPerLayer).times(amounts.layers);
            let what = format!("{} layers are traced", amounts.layers);
            warm_up.push(self.rated("dynamo", RateName::DynamoSPerLayer, time, &what));
            warm_up.push(self.once("inductor", RateName::InductorS, "traced graphs are compiled"));
        }
        if amounts.warms_up {
            warm_up.push(self.once("kernel_warm_up", RateName::KernelWarmUpS, "kernels are selected and loaded"));
        }
        for (name, rate_name, graphs) in [
            ("piecewise_graphs", RateName::PiecewiseGraphSPerLayer, amounts.captures.piecewise),
            ("full_graphs", RateName::FullGraphSPerLayer, amounts.captures.full),
        ] {
            if graphs > 0 {
                let time = self.rates.of(rate_name).times(graphs as f64 * amounts.layers);
                let what = format!("{graphs} graphs of {} layers", amounts.layers);
                warm_up.push(Part { graphs: Some(graphs), ..self.rated(name, rate_name, time, &what) });
            }
        }
        let terms = vec![
            Term::of(TermName::Storage, vec![storage]),
            Term::of(TermName::HostToDevice, vec![device]),
            Term::of(TermName::RuntimeWarmUp, warm_up),
            Term::of(TermName::KvAndBuffers, self.kv_and_buffers(&amounts)?),
            Term::of(TermName::FirstPrefill, self.first_prefill(&amounts)?),
            Term::of(TermName::Queueing, vec![self.queueing()]),
        ];
        Ok(StartUp::of(terms))
    }

    /// A part whose `time` follows from a rate.
    fn rated(&self, name: &'static str, rate_name: RateName, time: Seconds, what: &str) -> Part {
        let rate = self.rates.of(rate_name);
        let origin = format!("{what}; {}", rate.origin);
        Part { name, time, source: rate.source, origin, bytes: None, graphs: None }
    }

    /// A part that takes a rate's time once.
    fn once(&self, name: &'static str, rate_name: RateName, what: &str) -> Part {
        self.rated(name, rate_name, self.rates.of(rate_name).times(1.0), what)
    }

    /// The amounts of this start.
    ///
    /// # Errors
    /// Those of [`KvCapacity::estimate`].
    pub fn amounts(&self) -> Result<Amounts> {
        let plan = self.steps.plan();
        let capacity = KvCapacity::estimate(self.model, self.hardware, self.deployment, self.steps.engine())?;
        let layers = plan.pipeline_stages.iter().copied().max().unwrap_or(0);
        let eager = self.deployment.enforce_eager;
        let captures = plan.cuda_graphs.captures(self.deployment.max_num_seqs);
        Ok(Amounts {
            checkpoint_bytes: self.model.weight_bytes(),
            rank_bytes: if self.is_cpu() { 0.0 } else { plan.memory.max_weight_bytes() },
            layers: layers as f64,
            captures: if self.is_cpu() { Captures::default() } else { captures },
            compiles: !eager,
            warms_up: !eager,
            kv_bytes: capacity.kv_cache_bytes.max(0.0),
        })
    }

    fn is_cpu(&self) -> bool {
        self.hardware.architecture == Architecture::Cpu
    }

    /// The profiling run is a step of `max_num_batched_tokens` by `max_num_seqs` requests; the KV cache is filled with zeros.
    fn kv_and_buffers(&self, amounts: &Amounts) -> Result<Vec<Part>> {
        let tokens = self.deployment.max_num_batched_tokens;
        let requests = self.deployment.max_num_seqs.min(tokens).clamp(1, MOST_PROFILED);
        let batch: Vec<Request> = (0..requests)
            .map(|at| Request::prefill(tokens / requests + u32::from(at < tokens % requests), 0))
            .collect();
        let origin = format!("a step of {tokens} tokens of {requests} requests");
        let profile = of_physics("profile_run", self.step(&batch)?, &origin);
        let fill_s = time_us(amounts.kv_bytes, self.hardware.hbm_bytes_per_s) / US_PER_S;
        let origin = format!("{}B filled at the memory's bandwidth", si(amounts.kv_bytes));
        let fill = of_physics("kv_cache", Seconds::exactly(fill_s), &origin);
        let fill = Part { bytes: Some(amounts.kv_bytes), ..fill };
        let buffers = self.once("buffers", RateName::BuffersS, "allocator, workspaces, first use of libraries");
        Ok(vec![profile, fill, buffers])
    }

    /// The chunks of the first prompt, and what its first step meets that no warm-up did.
    fn first_prefill(&self, amounts: &Amounts) -> Result<Vec<Part>> {
        if self.prompt_tokens == 0 {
            return Err(Error::invalid_argument("prompt_tokens", 0, "must be at least 1"));
        }
        let most = self.deployment.max_num_batched_tokens.max(1);
        if self.prompt_tokens.div_ceil(most) > MOST_CHUNKS {
            let reason = format!("must be at most {MOST_CHUNKS} steps of max_num_batched_tokens = {most}");
            return Err(Error::invalid_argument("prompt_tokens", self.prompt_tokens, reason));
        }
        let mut chunks = Vec::new();
        let mut computed = 0;
        while computed < self.prompt_tokens {
            let chunk = most.min(self.prompt_tokens - computed);
            let is_last = computed + chunk == self.prompt_tokens;
            chunks.push(self.step(&[Request::new(computed, chunk, is_last)])?);
            computed += chunk;
        }
        let origin = match chunks.len() {
            1 => format!("a step of {} tokens", self.prompt_tokens),
            steps => format!("{steps} steps of {} tokens", self.prompt_tokens),
        };
        // Steps of one model err together.
        let together = |of: fn(&Seconds) -> f64| chunks.iter().map(of).sum();
        let time = Seconds {
            estimate_s: together(|time| time.estimate_s),
            lower_s: together(|time| time.lower_s),
            upper_s: together(|time| time.upper_s),
        };
        let prefill = of_physics("prefill", time, &origin);
        // Without a warm-up, the first step pays for it.
        let name = if amounts.warms_up { RateName::FirstStepS } else { RateName::KernelWarmUpS };
        Ok(vec![prefill, self.once(FIRST_STEP, name, "kernels that are loaded at their first use")])
    }

    /// The host's delays of a request that finds no other.
    fn queueing(&self) -> Part {
        let correction = self.steps.correction();
        let host = HostTimes::of(self.steps);
        let us =
            host.queueing_time_us(&Request::prefill(self.prompt_tokens, 0)) + host.scheduling_us + host.output_token_us;
        let estimate_s = us / US_PER_S;
        let (source, origin) = match correction {
            Some(correction) => (Source::Fitted, format!("delays of the host in the correction {}", correction.name)),
            None => (Source::Assumed, "delays of the host by default".to_owned()),
        };
        let time = Seconds { estimate_s, lower_s: estimate_s / HOST_FACTOR, upper_s: estimate_s * HOST_FACTOR };
        Part { source, ..of_physics("host", time, &origin) }
    }

    fn step(&self, batch: &[Request]) -> Result<Seconds> {
        let step = self.steps.estimate(batch)?;
        Ok(Seconds {
            estimate_s: step.step_time_us / US_PER_S,
            lower_s: step.lower_us / US_PER_S,
            upper_s: step.upper_us / US_PER_S,
        })
    }
}

/// A part whose time follows from physics.
fn of_physics(name: &'static str, time: Seconds, origin: &str) -> Part {
    Part { name, time, source: Source::Physics, origin: origin.to_owned(), bytes: None, graphs: None }
}
