//! Runs one configuration: one replay of a given load, or a search for the highest rate.

use std::cell::Cell;
use std::sync::OnceLock;

use ridgepoint::internals::correction::CorrectionInfo;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::replay::{EngineConfig, EngineCounters, Metrics, SchedulingPolicy, StageMetrics, replay};
use ridgepoint::workload::ReplicaShare;
use ridgepoint::{Error, ErrorKind, Hardware, StepModel};

use super::capacity::{Capacity, highest_holding};
use super::grid::Configuration;
use super::load::{Level, Source, mean_rate_per_s};
use super::row::Row;
use super::slo::Slo;
use super::sweeping::{FoundModel, Options};

/// The bracket of a search begins at this share of the rate that the server does under more load than it can take.
const FIRST_GUESS: f64 = 0.7;

/// The latency model of a server, built by the first of its loads that needs it; or why there is none.
pub(super) type SharedLatency = OnceLock<Result<CalibratedRoofline, String>>;

/// A configuration and what it runs on.
pub(super) struct Point<'a> {
    pub(super) configuration: Configuration<'a>,
    pub(super) source: &'a Source,
    pub(super) slo: Option<&'a Slo>,
    pub(super) model: &'a FoundModel,
    pub(super) hardware: &'a Hardware,
    pub(super) options: &'a Options,
}

/// The result of one replay.
struct Replayed {
    run: StageMetrics,
    counters: EngineCounters,
    broken: Vec<String>,
    overload: Option<String>,
}

impl Point<'_> {
    /// Runs the configuration. The row of one that cannot run says why.
    pub(super) fn row(&self, index: usize, latency: &SharedLatency) -> Row {
        let mut row = self.described(index);
        let mut warnings: Vec<String> = Vec::new();
        if let Err(reason) = self.run(&mut row, &mut warnings, latency) {
            (row.status, row.reason) = ("cannot_run".to_owned(), Some(reason));
        }
        row.warnings = (!warnings.is_empty()).then(|| warnings.join("; "));
        row
    }

    fn replicas(&self) -> u32 {
        self.configuration.server().deployment.data_parallel_size
    }

    fn share(&self) -> ReplicaShare {
        ReplicaShare::new(self.replicas())
    }

    /// The columns that are known before anything runs.
    pub(super) fn described(&self, index: usize) -> Row {
        let (server, load) = (self.configuration.server(), self.configuration.load());
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
            correction: CorrectionInfo::of(self.model.correction.as_deref()).name,
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
            slo: self.slo.map(Slo::text),
            settings: self.configuration.settings(self.slo),
            version: env!("CARGO_PKG_VERSION").to_owned(),
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

    /// Fills in the row, or says why the configuration cannot run.
    fn run(&self, row: &mut Row, warnings: &mut Vec<String>, latency: &SharedLatency) -> Result<(), String> {
        let (server, load) = (self.configuration.server(), self.configuration.load());
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
        let latency = latency.get_or_init(|| {
            let options = self.options.of_step_model(self.model);
            let steps = StepModel::with_options(model, self.hardware, &server.deployment, &options).map_err(reason)?;
            Ok(CalibratedRoofline::new(steps))
        });
        let latency = latency.as_ref().map_err(Clone::clone)?;
        let steps = latency.steps();
        warnings.extend(server.notes.iter().chain(precision_notes).chain(steps.notes()).cloned());
        warnings.extend(steps.carried_over());
        warnings.extend(engine.notes.iter().chain(self.source.notes()).cloned());
        warnings.extend(self.load_notes());
        match (load.level, self.slo) {
            (Level::Capacity, Some(slo)) => self.capacity(slo, latency, config, row, warnings),
            (level, _) => {
                let rate_per_s = if let Level::Rate(rate) = level { Some(rate) } else { None };
                let replayed = self.replayed(latency, config, rate_per_s)?;
                row.replays = 1;
                replayed.fill(row, warnings);
                if replayed.run.finished == 0 {
                    return Err(format!("no request finished: {}", too_long(&replayed.run, config)));
                }
                if replayed.run.rejected > 0 {
                    warnings.push(too_long(&replayed.run, config));
                }
                row.status = "ok".to_owned();
                Ok(())
            }
        }
    }

    /// Remarks on how the load is shared out and sent.
    fn load_notes(&self) -> Vec<String> {
        let load = self.configuration.load();
        let rate_per_s = if let Level::Rate(rate) = load.level { Some(rate) } else { None };
        let mut notes: Vec<String> = self.share().note(rate_per_s).into_iter().collect();
        if let Level::Concurrency(concurrency) = load.level {
            let replicas = self.replicas();
            if concurrency % replicas.max(1) != 0 {
                notes.push(format!(
                    "{concurrency} requests in flight cannot be shared evenly by {replicas} replicas: each has {}",
                    self.share().concurrency(concurrency)
                ));
            }
            if load.lengths.is_some_and(|(input, output)| input.is_fixed() && output.is_fixed()) {
                notes.push(
                    "all requests of the closed loop are equally long: they finish together and queue behind each other more than those \
                     of real clients do"
                        .to_owned(),
                );
            }
        }
        notes
    }

    fn replayed(
        &self,
        latency: &CalibratedRoofline,
        config: &EngineConfig,
        rate_per_s: Option<f64>,
    ) -> Result<Replayed, String> {
        let mut workload = self.source.workload(self.configuration.load(), rate_per_s, self.share()).map_err(reason)?;
        let replayed = replay(latency, config, &mut *workload, &mut ()).map_err(reason)?;
        replayed.check_clock().map_err(reason)?;
        let run = Metrics::of(&replayed).run;
        let broken = self.slo.map(|slo| slo.broken(&run)).unwrap_or_default();
        let per_replica = if self.replicas() > 1 { " (per replica)" } else { "" };
        let overload = replayed.overload().map(|overload| format!("{overload}{per_replica}"));
        Ok(Replayed { run, counters: replayed.counters, broken, overload })
    }

    /// Searches the highest rate that holds the limits.
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
            let replayed = self.replayed(latency, config, Some(rate_per_s))?;
            // Rejections do not depend on the rate, and leave nothing to compare with the limits.
            if replayed.run.rejected > 0 {
                return Err(too_long(&replayed.run, config));
            }
            Ok((replayed.broken.is_empty(), replayed))
        };
        let guess = |replayed: &Replayed| {
            replayed.run.requests_per_s.map(|rate_per_s| FIRST_GUESS * rate_per_s * f64::from(self.replicas()))
        };
        let (lowest, highest) = (slo.lowest_rate_per_s, slo.highest_rate_per_s);
        let found = highest_holding(lowest, highest, slo.precision, guess, probe);
        row.replays = replays.get();
        let (status, reason, holds, fails) = match found? {
            Capacity::Found { holds, fails } => ("ok", None, Some(holds), Some(fails)),
            Capacity::HighestHolds(holds) => {
                let reason = format!(
                    "the limits hold at highest_rate_per_s = {highest}: limits on gaps between tokens alone may do so at any rate, one on \
                     ttft or e2e would not"
                );
                ("highest_rate_holds", Some(reason), Some(holds), None)
            }
            Capacity::LowestFails(fails) => {
                let reason = format!("a limit breaks at lowest_rate_per_s = {lowest}");
                ("lowest_rate_fails", Some(reason), None, Some(fails))
            }
        };
        (row.status, row.reason) = (status.to_owned(), reason);
        if let Some((rate_per_s, replayed)) = &fails {
            row.fails_at_rate_per_s = Some(*rate_per_s);
            row.limits_broken = Some(replayed.broken.join(", "));
        }
        if let Some((rate_per_s, _)) = &holds {
            row.set_rate(*rate_per_s);
        }
        if let Some((_, replayed)) = holds.or(fails) {
            replayed.fill(row, warnings);
        }
        Ok(())
    }
}

impl Replayed {
    fn fill(&self, row: &mut Row, warnings: &mut Vec<String>) {
        row.fill(&self.run, &self.counters);
        row.keeps_up = Some(self.overload.is_none());
        warnings.extend(self.overload.clone());
    }
}

/// The text of an error without the name of the configuration, which the row has.
pub(super) fn reason(error: Error) -> String {
    match error.kind() {
        ErrorKind::Invalid => error.problems().join("; "),
        _ => error.to_string(),
    }
}

fn too_long(run: &StageMetrics, config: &EngineConfig) -> String {
    format!(
        "{} of {} requests are longer than max_model_len = {} and rejected; only the counts include them",
        run.rejected, run.requests, config.max_model_len
    )
}
