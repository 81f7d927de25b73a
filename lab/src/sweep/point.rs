//! Runs one configuration: one replay of a given load, or a search for the highest rate.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::coverage::IntervalCoverage;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::{
    BUILD, Correction, CorrectionChoice, EfficiencyMode, Engine, Error, ErrorKind, Hardware, Model, Options, StepModel,
    engine_on,
};
use ridgepoint_replay::server_config::{ServedEngine, ServerConfig};
use ridgepoint_replay::workload::{GeneratedLoad, ReplicaShare, Stoppable, Workload, lockstep};
use ridgepoint_replay::{
    Cluster, Disaggregated, EngineConfig, EngineRules, Intervals, Metrics, Observer, QueueTrend, Replay, SpreadSampler,
    replay,
};

use super::grid::{Configuration, Grid};
use super::load::{LoadPoint, Source};
use super::replica_keys::Sharing;
use super::row::{CANNOT_RUN, Row};
use super::search::Search;
use super::slo::Slo;
use crate::fit::unlike_the_fitted;
use crate::simulate::{KvWay, PoolServer, TRANSFERS_NOTE};

/// The latency model of a server, built by the first of its loads that needs it; or why there is none.
pub(super) type SharedLatency = OnceLock<Result<CalibratedRoofline, String>>;

/// A model in the precision that servers ask for.
#[derive(Debug)]
pub(super) struct FoundModel {
    /// The model and remarks on it, or why it does not exist in this precision.
    pub(super) model: Result<(Model, Vec<String>), String>,
    /// The correction of its step times.
    pub(super) correction: Option<Arc<Correction>>,
}

/// A configuration and what it runs on.
pub(super) struct Point<'a> {
    pub(super) configuration: Configuration<'a>,
    pub(super) grid: &'a Grid,
    pub(super) model: &'a FoundModel,
    pub(super) hardware: &'a Hardware,
    pub(super) options: &'a Options,
    /// Ends the replays once it is set.
    pub(super) stop: &'a AtomicBool,
}

impl Point<'_> {
    /// Runs the configuration. The row of one that cannot run says why.
    pub(super) fn row(&self, index: usize, latency: &SharedLatency) -> Row {
        let mut row = self.described(index);
        if let Err(reason) = self.run(&mut row, latency) {
            (row.status, row.reason) = (CANNOT_RUN.to_owned(), Some(reason));
        }
        row
    }

    fn share(&self) -> ReplicaShare {
        ReplicaShare::new(self.configuration.server.value.deployment.data_parallel_size)
    }

    /// The servers that share the load.
    pub(super) fn sharing(&self) -> Sharing {
        self.configuration.replicas.value
    }

    /// The engine of the server, or that of the sweep where it names none.
    fn engine(&self) -> Engine {
        engine_of(&self.configuration.server.value, &self.options.engine)
    }

    /// The columns that are known before anything runs.
    pub(super) fn described(&self, index: usize) -> Row {
        let (server, load, source) =
            (&self.configuration.server.value, &self.configuration.load.value, &self.grid.source);
        let sharing = self.sharing();
        let engine = &self.engine();
        let deployment = &match &self.model.model {
            Ok((model, _)) => server.deployment_on(model, self.hardware, engine),
            Err(_) => server.deployment.clone().on(&server.given, engine, self.hardware),
        };
        let (input_len_tokens, output_len_tokens, num_requests) = source.shape(load);
        let model = self.model.model.as_ref().map_or(server.model.as_str(), |(model, _)| &model.name);
        let recorded_rate_per_s = match source {
            Source::Requests(file) if self.grid.slo.is_none() => file.list().mean_rate_per_s(),
            _ => None,
        };
        let concurrency = load.generated.concurrency.map(u64::from);
        let GeneratedLoad { turns, prefix_len, think_time_s, .. } = load.generated;
        let is_session = turns.is_some() || prefix_len.is_some();
        let is_open = matches!(source, Source::Generated) && concurrency.is_none();
        let mut row = Row {
            configuration: index as u64,
            model: model.to_owned(),
            hardware: self.hardware.name.clone(),
            gpus: deployment.num_gpus() * u64::from(sharing.replicas()),
            tensor_parallel_size: u64::from(deployment.tensor_parallel_size),
            pipeline_parallel_size: u64::from(deployment.pipeline_parallel_size),
            data_parallel_size: u64::from(deployment.data_parallel_size),
            replicas: Some(u64::from(sharing.count)),
            prefill_replicas: Some(u64::from(sharing.prefill)).filter(|prefill| *prefill > 0),
            router: (sharing.replicas() > 1).then_some(sharing.router),
            efficiency: match self.options.efficiency {
                EfficiencyMode::Tables => "tables".to_owned(),
                EfficiencyMode::Ideal => "ideal".to_owned(),
            },
            correction: CorrectionInfo::of(self.model.correction.as_deref()).name,
            serving_engine: engine_on(engine, self.hardware).to_string(),
            enable_expert_parallel: deployment.enable_expert_parallel,
            precision: server.precision,
            kv_cache_dtype: deployment.kv_cache_dtype.map_or_else(|| "auto".to_owned(), |dtype| dtype.to_string()),
            max_num_seqs: u64::from(deployment.max_num_seqs),
            max_num_batched_tokens: u64::from(deployment.max_num_batched_tokens),
            max_model_len: deployment.max_model_len,
            gpu_memory_utilization: deployment.gpu_memory_utilization,
            block_size: u64::from(deployment.block_size),
            enforce_eager: deployment.enforce_eager,
            generation_config: deployment.generation_config,
            cpu_offload_gb: deployment.cpu_offload_gb,
            load: source.path().unwrap_or("generated").to_owned(),
            burstiness: is_open.then_some(load.generated.burstiness.unwrap_or(1.0)),
            concurrency,
            num_requests,
            turns: is_session.then_some(u64::from(turns.unwrap_or(1))),
            prefix_len_tokens: is_session.then_some(u64::from(prefix_len.unwrap_or(0))),
            think_time_s: is_session.then_some(think_time_s.unwrap_or(0.0)),
            input_len_tokens,
            output_len_tokens,
            seed: load.seed,
            slo: self.grid.slo.as_ref().map(Slo::text),
            settings: self.grid.settings(self.configuration),
            version: BUILD.to_owned(),
            ..Row::default()
        };
        row.set_rate(load.generated.request_rate.or(recorded_rate_per_s));
        row
    }

    /// Fills in the row, or returns why the configuration cannot run.
    fn run(&self, row: &mut Row, latency: &SharedLatency) -> Result<(), String> {
        let (engine, latency) = self.open(row, latency)?;
        *row = match &self.grid.slo {
            Some(slo) => Search { point: self, slo, row, latency, config: &engine.config }.highest_rate()?,
            None => {
                let load = &self.configuration.load.value;
                self.replayed(row, latency, &engine.config, load, load.generated.request_rate, &mut [])?.row
            }
        };
        Ok(())
    }

    /// The engine and its latency model, with the remarks on them in the row; or why the configuration cannot run.
    pub(super) fn open<'b>(
        &self,
        row: &mut Row,
        latency: &'b SharedLatency,
    ) -> Result<(ServedEngine, &'b CalibratedRoofline), String> {
        let server = &self.configuration.server.value;
        let (model, precision_notes) = self.model.model.as_ref().map_err(Clone::clone)?;
        let engine = server.engine_config(model, self.hardware, &self.options.engine).map_err(reason)?;
        row.set_engine(&engine.config);
        let latency = latency.get_or_init(|| {
            let correction = self.model.correction.clone().map_or(CorrectionChoice::None, CorrectionChoice::Given);
            let options = Options { correction, engine: self.engine(), ..self.options.clone() };
            let steps = StepModel::with_options(model, self.hardware, &engine.deployment, &options).map_err(reason)?;
            engine.latency(steps).map_err(reason)
        });
        let latency = latency.as_ref().map_err(Clone::clone)?;
        let steps = latency.steps();
        row.warn(server.notes.iter().chain(precision_notes).cloned().chain(steps.notes()));
        row.warn(unlike_the_fitted(steps, &engine.config));
        row.warn(engine.notes.iter().chain(self.grid.source.notes()).cloned());
        row.warn(self.load_notes());
        row.warn(self.grid.slo.as_ref().and_then(Slo::remark));
        Ok((engine, latency))
    }

    /// Fills in the intervals of a row whose replay a sampler watched.
    pub(super) fn fill_intervals(
        &self,
        row: &mut Row,
        latency: &CalibratedRoofline,
        sampler: &SpreadSampler<'_>,
        trend: Option<&QueueTrend>,
    ) {
        let (steps, corrected) = (latency.steps(), latency.steps().correction().is_some());
        let found =
            IntervalCoverage::of(steps.engine(), &self.hardware.name, trend.map(QueueTrend::load_kind), corrected);
        row.fill_intervals(&Intervals::of(&sampler.spread(), &found), sampler.measured_share());
    }

    /// Remarks on how the load is shared out and sent.
    fn load_notes(&self) -> Vec<String> {
        let load = &self.configuration.load.value.generated;
        let mut notes: Vec<String> = self.share().note(load.request_rate, load.concurrency).into_iter().collect();
        notes.extend(load.concurrency.zip(load.lengths().ok()).and_then(|(in_flight, [input, output])| {
            let think_time_s = load.think_time_s.unwrap_or(0.0);
            lockstep(self.share().concurrency(in_flight), [&input, &output], think_time_s)
        }));
        notes
    }

    /// One replay of a load on all servers that share it.
    fn shared(
        &self,
        latency: &CalibratedRoofline,
        config: &EngineConfig,
        seed: u64,
        workload: &mut dyn Workload,
        watching: &mut [&mut dyn Observer],
    ) -> ridgepoint::Result<Replay> {
        let sharing = self.sharing();
        let router = sharing.router(seed);
        let one: (&dyn LatencyModel, &EngineConfig) = (latency, config);
        match sharing {
            Sharing { prefill: 0, count: 1, .. } => replay(latency, config, workload, watching),
            Sharing { prefill: 0, count, .. } => {
                Ok(Cluster { replicas: vec![one; count as usize], router }.replay(workload, watching)?.all)
            }
            Sharing { prefill, count, .. } => {
                let mut decode = config.clone();
                // SGLang's decode servers have no prefix cache.
                decode.scheduler.enable_prefix_caching &= !matches!(config.rules, EngineRules::Sglang(_));
                let (model, hardware) = (self.model.model.as_ref().map_err(|reason| no_model(reason))?, self.hardware);
                let of = &self.configuration.server.value;
                let deployment = &of.deployment_on(&model.0, hardware, &self.engine());
                let server = PoolServer { model: &model.0, hardware, deployment };
                let way = KvWay::between((server, prefill), (server, count), None, 0.0)?;
                let pools = Disaggregated {
                    prefill: vec![one; prefill as usize],
                    decode: vec![(latency, &decode); count as usize],
                    prefill_router: router,
                    decode_router: router,
                    transfer: way.transfer(server.deployment, server.deployment),
                };
                Ok(pools.replay(workload, watching)?.all)
            }
        }
    }

    /// One replay of a load and its row.
    pub(super) fn replayed(
        &self,
        row: &Row,
        latency: &CalibratedRoofline,
        config: &EngineConfig,
        load: &LoadPoint,
        rate_per_s: Option<f64>,
        watching: &mut [&mut dyn Observer],
    ) -> Result<PointReplay, String> {
        let mut workload = self.grid.source.workload(load, rate_per_s, self.share()).map_err(reason)?;
        let mut workload = Stoppable::new(&mut *workload, self.stop);
        let mut sampler = SpreadSampler::new(latency.steps());
        let mut watching: Vec<&mut dyn Observer> = watching.iter_mut().map(|one| &mut **one as _).collect();
        // A search has many replays, and compares their latencies with limits alone.
        if self.grid.slo.is_none() {
            watching.push(&mut sampler);
        }
        let replayed = self.shared(latency, config, load.seed, &mut workload, &mut watching).map_err(reason)?;
        replayed.check_clock().map_err(reason)?;
        let run = Metrics::of(&replayed).run;
        let trend = replayed.queue_trend();
        let notes = replayed.notes(config, trend.as_ref());
        // Rejections do not depend on the rate, and leave nothing to compare with limits.
        if run.finished == 0 || (self.grid.slo.is_some() && run.rejected > 0) {
            return Err(notes.join("; "));
        }
        let mut row = Row { status: "ok".to_owned(), replays: 1, ..row.clone() };
        row.fill(&run, &replayed.counters, trend.map(|trend| trend.state()));
        if self.sharing().prefill > 0 {
            row.warn([TRANSFERS_NOTE.to_owned()]);
        } else if self.grid.slo.is_none() {
            self.fill_intervals(&mut row, latency, &sampler, trend.as_ref());
        }
        if let Some(counted) = &replayed.offload {
            row.fill_tiers(counted);
        }
        row.warn(notes);
        Ok(PointReplay { row, trend, replay: replayed })
    }
}

/// The engine of a server, or another one where it names none.
pub(super) fn engine_of(server: &ServerConfig, other: &Engine) -> Engine {
    server.engine_or(other).unwrap_or_else(|_| other.clone())
}

/// The error of a model that was not found.
fn no_model(reason: &str) -> Error {
    Error::invalid("the model", vec![reason.to_owned()])
}

/// A replay of one load.
pub(super) struct PointReplay {
    pub(super) row: Row,
    /// The trend of its queue, if it is long enough to show one.
    pub(super) trend: Option<QueueTrend>,
    pub(super) replay: Replay,
}

/// The text of an error without the name of the configuration, which the row has.
pub(super) fn reason(error: Error) -> String {
    match error.kind() {
        ErrorKind::Invalid => error.problems().join("; "),
        _ => error.to_string(),
    }
}
