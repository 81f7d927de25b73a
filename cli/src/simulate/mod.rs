//! `ridgepoint simulate`: a load replayed on a server. `args` and `setup` say what is replayed, `files` writes beside the report.

mod args;
mod files;
mod setup;

use std::time::Duration;

use indicatif::ProgressBar;
use ridgepoint::internals::correction::Used;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::replay::export::BenchRun;
use ridgepoint::replay::{Metrics, Observer, SpreadSampler, replay};
use ridgepoint::workload::profile::Profile;
use ridgepoint::workload::requests::RequestFile;
use ridgepoint::workload::{ArrivalPattern, ClosedLoop, OpenLoop, ReplicaShare, RequestShape, Summary, Workload};

pub use args::Simulate;
use files::Files;
use setup::{Load, Setup, setup};

use super::args::{Common, Format};
use super::output::{Failure, Output};
use super::progress;
use crate::report::replay::SimulationReport;
use crate::report::replay_json::SimulationJson;
use crate::report::replay_table;

const NS_PER_YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Replays a load.
///
/// # Errors
/// Input that can't be read or can't be, files that can't be written.
pub fn run(args: &Simulate, common: &Common) -> Result<Output, Failure> {
    files::check(args)?;
    let Setup { model, hardware, deployment, steps, efficiency, engine, capacity, blocks_are_given, load, notes } =
        setup(args, common)?;
    let share = ReplicaShare::new(deployment.data_parallel_size);
    let mut source = Source::open(&load, args.seed, share)?;
    let mut warnings = notes;
    warnings.append(&mut source.notes);
    let latency = CalibratedRoofline::new(steps);
    let files = Files::create(args)?;
    let sampler = SpreadSampler::new(latency.steps());
    let mut watched = (files, (Progress::new(source.summary.requests), sampler));
    let replayed = replay(&latency, &engine, &mut *source.workload, &mut watched)?;
    let (files, (progress, sampler)) = watched;
    progress.bar.finish_and_clear();
    if replayed.counters.end_ns == u64::MAX {
        return Err(Failure::input(format!(
            "the replay takes longer than its clock counts, {} years: do {} and {} fit each other?",
            u64::MAX / NS_PER_YEAR,
            hardware.name(),
            model.name()
        )));
    }
    let metrics = Metrics::of(&replayed);
    warnings.extend(replayed.overload().map(|overload| overload.to_string()));
    warnings.extend(files.write(&bench_run(&load, model.name()), &replayed, &metrics)?);

    let kv_blocks_from = if blocks_are_given { "given" } else { "the memory equation" };
    let correction = Used::of(latency.steps().correction());
    let latency_model = match (efficiency, &correction.name) {
        ("ideal", _) => "ideal roofline, with the default host times".to_owned(),
        (_, None) => "calibrated roofline without a correction, with the default host times".to_owned(),
        _ => format!("calibrated roofline with the correction {correction}, host times included"),
    };
    let report = SimulationReport {
        model: &model,
        hardware: &hardware,
        deployment: &deployment,
        engine: &engine,
        kv_blocks_from,
        load: &format!("{}: {}", source.name, source.summary),
        latency_model: &latency_model,
        correction,
        metrics: &metrics,
        spread: sampler.spread(),
        counters: &replayed.counters,
        notes: &[],
        warnings: &warnings,
    };
    let mut output = match common.format {
        Format::Table => Output::of(replay_table::render(&report)),
        Format::Json => Output::json(&SimulationJson::new(&report))?,
    };
    if args.print_kv_capacity {
        let text = setup::capacity_text(&capacity, &engine, blocks_are_given);
        match common.format {
            Format::Table => output.stdout = format!("{text}\n{}", output.stdout),
            Format::Json => output.notes.push(text.trim_end().replace('\n', "; ")),
        }
    }
    Ok(output)
}

/// A load opened.
struct Source {
    name: String,
    workload: Box<dyn Workload>,
    summary: Summary,
    notes: Vec<String>,
}

impl Source {
    /// Opens what one replica gets of a load.
    fn open(load: &Load, seed: u64, share: ReplicaShare) -> ridgepoint::Result<Self> {
        let generated =
            |name: String, workload: Box<dyn Workload>, summary| Source { name, workload, summary, notes: Vec::new() };
        Ok(match load {
            Load::Profile(path) => {
                let profile = Profile::read(path)?;
                Source {
                    name: path.display().to_string(),
                    workload: profile.workload(seed),
                    summary: profile.summary(seed),
                    notes: profile
                        .notes
                        .iter()
                        .cloned()
                        .chain(share.note(None).map(|_| {
                            "a profile cannot be shared out to replicas: one of them is replayed, with all of the load"
                                .to_owned()
                        }))
                        .collect(),
                }
            }
            Load::Requests(path, format) => {
                let file = RequestFile::read(path, format.map(args::RequestsFormat::format))?;
                let list = share.list(file.workload())?;
                let summary = list.summary();
                let notes = file.notes.into_iter().chain(share.note(None)).collect();
                Source { name: path.display().to_string(), workload: Box::new(list), summary, notes }
            }
            Load::Closed { concurrency, num_requests, lengths } => {
                let shape = RequestShape::new(lengths.input, lengths.output);
                let own = share.concurrency(*concurrency);
                let closed = ClosedLoop::new(own, share.requests(u64::from(*num_requests)), shape)?;
                let summary = closed.summary();
                let name = match own == *concurrency {
                    true => format!("{concurrency} in flight"),
                    false => format!("{own} of {concurrency} in flight"),
                };
                let mut source = generated(name, Box::new(closed), summary);
                source.notes.extend(share.note(None));
                source.notes.push(LOCKSTEP.to_owned());
                source
            }
            Load::Open { requests_per_s, burstiness, num_requests, lengths } => {
                let pattern = match *burstiness {
                    1.0 => ArrivalPattern::Poisson,
                    burstiness => ArrivalPattern::Gamma { burstiness },
                };
                let shape = RequestShape::new(lengths.input, lengths.output);
                let own = share.rate_per_s(*requests_per_s);
                let num_requests = share.requests(u64::from(*num_requests));
                let open = OpenLoop::new(pattern, own, num_requests, shape, seed)?;
                let summary = open.summary();
                let note = share.note(Some(*requests_per_s));
                let name = match note {
                    None => format!("{requests_per_s} requests/s"),
                    Some(_) => format!("{own} of {requests_per_s} requests/s per replica"),
                };
                let mut source = generated(name, Box::new(open), summary);
                source.notes.extend(note);
                source
            }
        })
    }
}

/// What equal requests in a closed loop do.
const LOCKSTEP: &str = "all requests are equally long: those that are prefilled together finish together, round after round, and queue behind \
                        each other more than the requests of real clients do";

fn bench_run<'a>(load: &Load, model: &'a str) -> BenchRun<'a> {
    let mut run = BenchRun { model_id: model, ..BenchRun::default() };
    match load {
        Load::Closed { concurrency, .. } => run.max_concurrency = Some(*concurrency),
        Load::Open { requests_per_s, burstiness, .. } => {
            (run.request_rate, run.burstiness) = (Some(*requests_per_s), Some(*burstiness));
        }
        Load::Profile(_) | Load::Requests(..) => {}
    }
    run
}

/// A bar over the requests that have their first token; drawn to stderr, and only where that is a terminal.
struct Progress {
    bar: ProgressBar,
    started: u64,
}

/// Requests between two looks at the clock.
const STRIDE: u64 = 256;

impl Progress {
    fn new(requests: usize) -> Self {
        let bar = progress::bar(requests as u64, "replay [{bar:30}] {pos}/{len} requests, {elapsed}");
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar, started: 0 }
    }
}

impl Observer for Progress {
    fn token(&mut self, _: u32, token: u32, _: u64) {
        if token == 0 {
            self.started += 1;
            if self.started.is_multiple_of(STRIDE) {
                self.bar.set_position(self.started);
            }
        }
    }

    fn wants_every_token(&self) -> bool {
        false
    }
}
