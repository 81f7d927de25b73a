//! One configuration: its row, from one replay at a given load, or from those of a search for the highest rate. Uses
//! `capacity`, `steps`, `replay`.

use ridgepoint::ErrorKind;
use std::cell::Cell;

use super::capacity::{Capacity, highest_holding};
use super::grid::Configuration;
use super::load::{Level, Source, mean_rate_per_s};
use super::row::Row;
use super::slo::Slo;
use super::steps::SharedSteps;
use super::sweeping::{FoundModel, Options, step_options};
use ridgepoint::Error;
use ridgepoint::Hardware;
use ridgepoint::StepModel;
use ridgepoint::internals::correction::Used;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::replay::{EngineConfig, EngineCounters, Metrics, SchedulingPolicy, StageMetrics, replay};
use ridgepoint::workload::Lengths;

/// The bracket of a search begins at this share of what the server gets done under more load than it can take.
const FIRST_GUESS: f64 = 0.7;

/// Fewer requests done per second than this share of those sent, beyond what the last ones need to drain, is a growing queue.
const KEPT_UP: f64 = 0.9;

/// A configuration and what it runs on.
pub(super) struct Point<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) source: &'a Source,
    pub(super) slo: Option<&'a Slo>,
    pub(super) model: &'a FoundModel,
    pub(super) hardware: &'a Hardware,
    pub(super) steps: &'a SharedSteps,
    pub(super) options: &'a Options,
}

/// What one replay showed.
struct Seen {
    run: StageMetrics,
    counters: EngineCounters,
    broken: Vec<String>,
}

impl Point<'_> {
    /// The row; `cannot_run` and why where there is no such server, or no such load.
    pub(super) fn row(&self, index: usize) -> Row {
        let mut row = self.described(index);
        let mut warnings: Vec<String> = Vec::new();
        if let Err(reason) = self.run(&mut row, &mut warnings) {
            (row.status, row.reason) = ("cannot_run".to_owned(), Some(reason));
        }
        row.warnings = (!warnings.is_empty()).then(|| warnings.join("; "));
        row
    }

    fn replicas(&self) -> u32 {
        self.configuration.server.deployment.data_parallel_size
    }

    /// What is known of the row before anything is run.
    fn described(&self, index: usize) -> Row {
        let Configuration { server, load, .. } = self.configuration;
        let deployment = &server.deployment;
        let (tensor, pipeline, data) =
            (deployment.tensor_parallel_size, deployment.pipeline_parallel_size, deployment.data_parallel_size);
        let (input_len_tokens, output_len_tokens, num_requests) = self.source.shape(load);
        let name = self.model.model.as_ref().map_or(server.model.as_str(), |(model, _)| model.name());
        let is_generated = matches!(self.source, Source::Generated);
        let mut row = Row {
            configuration: index as u64,
            model: name.to_owned(),
            hardware: self.hardware.name().to_owned(),
            gpus: u64::from(tensor) * u64::from(pipeline) * u64::from(data),
            tensor_parallel_size: u64::from(tensor),
            pipeline_parallel_size: u64::from(pipeline),
            data_parallel_size: u64::from(data),
            efficiency: match self.options.efficiency {
                EfficiencyMode::Tables => "tables".to_owned(),
                EfficiencyMode::Ideal => "ideal".to_owned(),
            },
            correction: Used::of(self.model.correction.as_deref()).name,
            enable_expert_parallel: deployment.enable_expert_parallel,
            precision: server.precision.map(|precision| precision.to_string()),
            kv_cache_dtype: deployment.kv_cache_dtype.map_or_else(|| "auto".to_owned(), |dtype| dtype.to_string()),
            max_num_seqs: u64::from(deployment.max_num_seqs),
            max_num_batched_tokens: u64::from(deployment.max_num_batched_tokens),
            max_model_len: deployment.max_model_len.map(u64::from),
            gpu_memory_utilization: deployment.gpu_memory_utilization,
            block_size: u64::from(deployment.block_size),
            enforce_eager: deployment.enforce_eager,
            generation_config: format!("{:?}", deployment.generation_config).to_lowercase(),
            cpu_offload_gb: server.cpu_offload_gb,
            load: self.source.path().map_or_else(|| "generated".to_owned(), |path| path.display().to_string()),
            burstiness: (is_generated && !matches!(load.level, Level::Concurrency(_))).then_some(load.burstiness),
            num_requests,
            input_len_tokens,
            output_len_tokens,
            seed: load.seed,
            slo: self.slo.map(|slo| slo.limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            ..Row::default()
        };
        match (load.level, self.source) {
            (Level::Rate(rate_per_s), _) => row.set_rate(rate_per_s),
            (Level::Concurrency(concurrency), _) => row.concurrency = Some(u64::from(concurrency)),
            (Level::AsRecorded, Source::Requests(_, file)) => {
                if let Some(rate_per_s) = mean_rate_per_s(&file.workload()) {
                    row.set_rate(rate_per_s);
                }
            }
            (Level::AsRecorded | Level::Capacity, _) => {}
        }
        row
    }

    /// Fills the row, or says why it can't be.
    fn run(&self, row: &mut Row, warnings: &mut Vec<String>) -> Result<(), String> {
        let Configuration { server, load, .. } = self.configuration;
        let (model, precision_notes) = self.model.model.as_ref().map_err(Clone::clone)?;
        let engine = server.engine_config(model, self.hardware).map_err(reason)?;
        let config = &engine.config;
        row.num_gpu_blocks = Some(u64::from(config.num_gpu_blocks));
        row.max_model_len = Some(u64::from(config.max_model_len));
        row.enable_prefix_caching = Some(config.enable_prefix_caching);
        row.enable_chunked_prefill = Some(config.enable_chunked_prefill);
        row.async_scheduling = Some(config.async_scheduling);
        row.long_prefill_token_threshold = Some(u64::from(config.long_prefill_token_threshold));
        row.scheduling_policy = Some(match config.scheduling_policy {
            SchedulingPolicy::Fcfs => "fcfs".to_owned(),
            SchedulingPolicy::Priority => "priority".to_owned(),
        });
        let latency = self.steps.get(|| {
            let options = step_options(self.options, self.model);
            let steps = StepModel::with_options(model, self.hardware, &server.deployment, &options).map_err(reason)?;
            Ok(CalibratedRoofline::new(steps))
        })?;
        let steps = latency.steps();
        warnings.extend(server.notes.iter().chain(precision_notes).chain(steps.notes()).cloned());
        warnings.extend(steps.carried_over());
        warnings.extend(engine.notes.iter().chain(self.source.notes()).cloned());
        warnings.extend(self.of_the_load());
        match (load.level, self.slo) {
            (Level::Capacity, Some(slo)) => self.capacity(slo, &latency, config, row, warnings),
            (level, _) => {
                let rate_per_s = if let Level::Rate(rate) = level { Some(rate) } else { None };
                let seen = self.replayed(&latency, config, rate_per_s)?;
                row.replays = 1;
                row.fill(&seen.run, &seen.counters);
                if seen.run.finished == 0 {
                    return Err(format!("no request finished: {}", too_long(&seen.run, config)));
                }
                if seen.run.rejected > 0 {
                    warnings.push(too_long(&seen.run, config));
                }
                row.status = "ok".to_owned();
                Ok(())
            }
        }
    }

    /// Remarks on how the load is shared out and sent.
    fn of_the_load(&self) -> Vec<String> {
        let (load, replicas) = (&self.configuration.load, self.replicas());
        let mut remarks = Vec::new();
        if replicas > 1 {
            remarks.push(format!("one of {replicas} replicas is replayed, with an even share of the load"));
        }
        if let Level::Concurrency(concurrency) = load.level {
            if concurrency % replicas.max(1) != 0 {
                remarks.push(format!(
                    "{concurrency} requests in flight can't be shared evenly by {replicas} replicas: each has {}",
                    concurrency.div_ceil(replicas.max(1))
                ));
            }
            if let Some((Lengths::Fixed(_), Lengths::Fixed(_))) = load.lengths {
                remarks.push(
                    "all requests of the closed loop are equally long: they finish together and queue behind each other more than those of real clients do"
                        .to_owned(),
                );
            }
        }
        remarks
    }

    fn replayed(
        &self,
        latency: &CalibratedRoofline,
        config: &EngineConfig,
        rate_per_s: Option<f64>,
    ) -> Result<Seen, String> {
        let mut workload =
            self.source.workload(&self.configuration.load, rate_per_s, self.replicas()).map_err(reason)?;
        let replayed = replay(latency, config, &mut *workload, &mut ()).map_err(reason)?;
        replayed.check_clock().map_err(reason)?;
        let run = Metrics::of(&replayed).run;
        let broken = self.slo.map(|slo| slo.broken(&run)).unwrap_or_default();
        Ok(Seen { run, counters: replayed.counters, broken })
    }

    /// The highest rate that holds the limits.
    fn capacity(
        &self,
        slo: &Slo,
        latency: &CalibratedRoofline,
        config: &EngineConfig,
        row: &mut Row,
        warnings: &mut Vec<String>,
    ) -> Result<(), String> {
        let replays = Cell::new(0);
        let probe = |rate_per_s| {
            replays.set(replays.get() + 1);
            let seen = self.replayed(latency, config, Some(rate_per_s))?;
            // Refusals do not depend on the rate, and leave nothing to hold limits against.
            if seen.run.rejected > 0 {
                return Err(too_long(&seen.run, config));
            }
            Ok((seen.broken.is_empty(), seen))
        };
        let guess = |seen: &Seen| {
            seen.run.requests_per_s.map(|rate_per_s| FIRST_GUESS * rate_per_s * f64::from(self.replicas()))
        };
        let (lowest, highest) = (slo.lowest_rate_per_s, slo.highest_rate_per_s);
        let found = highest_holding(lowest, highest, slo.precision, guess, probe);
        row.replays = replays.get();
        let (status, holds, fails) = match found? {
            Capacity::Found { holds, fails } => ("ok", Some(holds), Some(fails)),
            Capacity::HighestHolds(holds) => ("highest_rate_holds", Some(holds), None),
            Capacity::LowestFails(fails) => ("lowest_rate_fails", None, Some(fails)),
        };
        row.status = status.to_owned();
        row.reason = match status {
            "highest_rate_holds" => Some(format!(
                "the limits hold at highest_rate_per_s = {highest}: limits on gaps between tokens alone may do so at any rate, one on ttft or e2e would not"
            )),
            "lowest_rate_fails" => Some(format!("a limit breaks at lowest_rate_per_s = {lowest}")),
            _ => None,
        };
        if let Some((rate_per_s, seen)) = &fails {
            row.fails_at_rate_per_s = Some(*rate_per_s);
            row.limits_broken = Some(seen.broken.join(", "));
        }
        if let Some((rate_per_s, seen)) = &holds {
            row.set_rate(*rate_per_s);
            warnings.extend(behind(rate_per_s / f64::from(self.replicas()), &seen.run));
        }
        if let Some((_, seen)) = holds.or(fails) {
            row.fill(&seen.run, &seen.counters);
        }
        Ok(())
    }
}

/// Why a configuration can't run: the row says whose.
pub(super) fn reason(error: Error) -> String {
    if error.kind() == ErrorKind::Invalid { error.problems().join("; ") } else { error.to_string() }
}

fn too_long(run: &StageMetrics, config: &EngineConfig) -> String {
    format!(
        "{} of {} requests are longer than max_model_len = {} and refused; no figure but the counts has them",
        run.rejected, run.requests, config.max_model_len
    )
}

/// A remark where the server did not keep up with the rate: then it holds the limits only for as long as the load lasts.
fn behind(rate_per_s: f64, run: &StageMetrics) -> Option<String> {
    let drain_s = run.e2e_ms?.p50 / 1e3;
    let done_per_s = run.finished as f64 / (run.duration_s? - drain_s).max(f64::MIN_POSITIVE);
    (done_per_s < KEPT_UP * rate_per_s).then(|| {
        format!(
            "the server does {done_per_s:.3} of {rate_per_s} requests per second: its queue grows, and more requests or a limit on ttft or e2e would find a lower rate"
        )
    })
}
