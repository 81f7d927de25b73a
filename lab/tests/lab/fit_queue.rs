//! What an engine's queues take of its thread: planted costs are found again in the trace of a replay, and the fit predicts what
//! it has not seen. `RIDGEPOINT_SEEDS` sets how many replays are fitted.

use std::sync::Mutex;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;
use ridgepoint::correction::{Level, Term};
use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{Correction, Deployment, Hardware, Model, Options, Request, Step, StepModel};
use ridgepoint_lab::evaluate::capture::{CaptureServer, CapturedRun, judge_capture};
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::steps::case::StepCase;
use ridgepoint_lab::evaluate::steps::read::{ReadRun, StepData};
use ridgepoint_lab::fit::{
    Alignment, DelaysOfRuns, FitResult, ParameterReport, Prior, StepRun, StepRunReport, fit_with_scatter,
};
use ridgepoint_lab::ingest::step_table::TableRun;
use ridgepoint_lab::ingest::{Cleaning, RequestRow, RequestTrace, Run, StepRecord, StepTrace, periods};
use ridgepoint_replay::workload::{FixedList, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, Event, Events, Observer, RequestRecord, replay};

/// Spread of a step's time around its prediction.
const STEP_NOISE: f64 = 0.02;
/// Spread of the time until a request is in the queue, µs.
const QUEUEING_NOISE_US: f64 = 300.0;
const REQUESTS: u64 = 600;
/// Start of the run on the engine's clock.
const CLOCK_NS: u64 = 10_000_000_000;

/// The costs that are planted: 20 µs per request of a step, 1.5 µs per token of it, and those of the host.
fn planted() -> Correction {
    let mut truth = Correction { name: "planted".to_owned(), ..Correction::neutral() };
    truth.coefficients[Term::Requests.index()] = 20.0;
    truth.coefficients[Term::PromptTokens.index()] = 1.5;
    truth.host = HostTimes {
        queueing_us: 5000.0,
        queueing_us_per_token: 4.0,
        output_token_us: 1500.0,
        scheduling_us: 700.0,
        scheduling_us_per_waiting: 25.0,
        preemption_us: 2500.0,
        ..HostTimes::NONE
    };
    truth
}

/// Steps that scatter around their prediction.
struct Noisy {
    inner: CalibratedRoofline,
    random: Mutex<Pcg64>,
}

impl LatencyModel for Noisy {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let noise = Normal::new(0.0, STEP_NOISE).unwrap().sample(&mut *self.random.lock().unwrap());
        self.inner.step_time_us(step) * noise.exp()
    }
    fn host(&self) -> HostTimes {
        self.inner.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.inner.kv_transfer_time_us(direction, bytes)
    }
}

/// The trace of the engine's steps.
#[derive(Default)]
struct Steps(Vec<StepRecord>);

impl Observer for Steps {
    fn wants(&self) -> Events {
        Events::STEPS
    }
    fn on(&mut self, event: &Event<'_>) {
        let Event::Step(event) = event else { return };
        let (prefills, decodes): (Vec<Request>, Vec<Request>) =
            event.step.requests.iter().partition(|of| !of.is_decode());
        let tokens = |of: &[Request]| of.iter().map(|of| u64::from(of.num_scheduled_tokens)).sum();
        self.0.push(StepRecord {
            step_id: 1000 + event.index,
            start_ns: CLOCK_NS + event.scheduled_ns,
            num_prefill_requests: prefills.len() as u32,
            num_decode_requests: decodes.len() as u32,
            prefill_tokens: tokens(&prefills),
            decode_tokens: tokens(&decodes),
            num_running: Some(event.num_running),
            num_waiting: Some(event.num_waiting),
            num_preempted: Some(event.preempted.len() as u32),
            requests: Some(event.step.requests.to_vec()),
            ..StepRecord::default()
        });
    }
}

fn model_and_gpu() -> (Model, Hardware) {
    (Model::find("mistral-7b-v0.3").unwrap(), Hardware::find("h100").unwrap())
}

fn steps_of(correction: Option<&Correction>) -> StepModel {
    let (model, gpu) = model_and_gpu();
    let steps = StepModel::with_options(&model, &gpu, &Deployment::default(), &Options::uncorrected()).unwrap();
    match correction {
        Some(correction) => steps.with_correction(std::sync::Arc::new(correction.clone())),
        None => steps,
    }
}

/// Schedules synchronously, and has too few KV blocks for its load.
fn engine() -> EngineConfig {
    let mut engine = EngineConfig::new(&Deployment::default(), 4096, 2200);
    (engine.scheduler.async_scheduling, engine.scheduler.enable_prefix_caching, engine.max_num_seqs) =
        (false, false, 64);
    engine
}

/// A captured run of the engine with the planted costs: bursts that it can't keep up with.
fn capture(steps: &StepModel, seed: u64) -> (StepTrace, Vec<RequestRow>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut arrival_ns = 0;
    let requests: Vec<WorkloadRequest> = (0..REQUESTS)
        .map(|index| {
            let mean_ns = [6e6, 90e6, 250e6][(index / 60) as usize % 3];
            arrival_ns += (-random.random_range(1e-9..1.0f64).ln() * mean_ns) as u64;
            WorkloadRequest::new(arrival_ns, random.random_range(100..1500), random.random_range(40..250))
        })
        .collect();
    let latency = Noisy {
        inner: CalibratedRoofline::new(steps.clone()),
        random: Mutex::new(Pcg64::seed_from_u64(seed ^ 0xABCD)),
    };
    let mut traced = Steps::default();
    let mut list = FixedList::new(requests).unwrap();
    let replayed = replay(&latency, &engine(), &mut list, &mut [&mut traced]).unwrap();
    let output_ns = (1e3 * latency.host().output_token_processing_time_us()) as u64;
    let late = Normal::new(0.0, 1e3 * QUEUEING_NOISE_US).unwrap();
    let whole = |number: u64| Some(number.into());
    let row = |(index, of): (usize, &RequestRecord)| RequestRow {
        request_id: index.to_string().into(),
        arrived_ns: whole((CLOCK_NS as f64 + of.arrival_ns as f64 + late.sample(&mut random)) as u64),
        queued_ns: whole(CLOCK_NS + of.queued_ns),
        scheduled_ns: whole(CLOCK_NS + of.scheduled_ns),
        first_token_ns: whole(CLOCK_NS + of.first_token_ns - output_ns),
        finished_ns: whole(CLOCK_NS + of.finish_ns - output_ns),
        first_response_ns: whole(CLOCK_NS + of.first_token_ns),
        departed_ns: whole(CLOCK_NS + of.finish_ns),
        num_prompt_tokens: whole(u64::from(of.num_prompt_tokens)),
        num_output_tokens: whole(u64::from(of.num_output_tokens)),
        num_preemptions: whole(u64::from(of.num_preemptions)),
        ..RequestRow::default()
    };
    let rows = replayed.records.iter().enumerate().map(row).collect();
    (StepTrace { run: run(), steps: traced.0 }, rows)
}

fn run() -> Run {
    Run {
        experiment: "made up".to_owned(),
        model: Some("mistral-7b-v0.3".to_owned()),
        hardware: Some("h100".to_owned()),
        tensor_parallel_size: Some(1),
        ..Run::default()
    }
}

fn timed(trace: StepTrace) -> TableRun {
    TableRun { periods: periods(&trace, &Cleaning::default()), trace }
}

/// The fit of the first 60 % of the steps, and of all requests.
fn fitted(trace: StepTrace, requests: &[RequestRow]) -> (FitResult, StepRunReport) {
    let read = ReadRun { run: timed(trace), ..ReadRun::default() };
    let requests = vec![RequestTrace { run: run(), requests: requests.to_vec() }];
    let delays = DelaysOfRuns::of(&StepData { runs: vec![read.clone()], requests });
    let case = StepCase::new(read, "none", None).unwrap();
    let prior = Prior::of_any_model();
    let cut = case.rows.len() * 3 / 5;
    let mut runs = [StepRun::new(&case, 0..cut, cut..case.rows.len(), &prior)];
    assert_eq!(runs[0].alignment, Alignment::Own, "{:?}", runs[0].slopes);
    let mut fit = fit_with_scatter("made up", &mut runs, &prior, &Level::Global).unwrap();
    let host = delays.host(&fit.correction.host);
    fit.correction.host = host.times;
    fit.report.replace_host(host);
    let report = StepRunReport::of(&runs[0], &fit.correction);
    (fit, report)
}

fn parameter<'a>(fit: &'a FitResult, name: &str) -> &'a ParameterReport {
    fit.report.parameters.iter().find(|of| of.parameter.name == name).unwrap()
}

#[test]
fn planted_costs_are_within_their_intervals() {
    let truth = planted();
    let steps = steps_of(Some(&truth));
    let costs = [
        ("request_us", 20.0),
        ("prompt_token_us", 1.5),
        ("scheduling_us_per_waiting", 25.0),
        ("preemption_us", 2500.0),
        ("queueing_us", 5000.0),
        ("queueing_us_per_token", 4.0),
    ];
    let (mut found, mut identified) = ([0; 6], [0; 6]);
    let mut worst = (0.0f64, 0.0f64, 0.0f64);
    let seeds: u32 = std::env::var("RIDGEPOINT_SEEDS").map_or(100, |number| number.parse().unwrap());
    for seed in 0..seeds {
        let (trace, requests) = capture(&steps, seed.into());
        let all_steps = trace.steps.clone();
        let (fit, report) = fitted(trace, &requests);
        for (at, (name, cost)) in costs.into_iter().enumerate() {
            let of = parameter(&fit, name);
            found[at] += u32::from((of.lower..=of.upper).contains(&cost));
            identified[at] += u32::from(of.identified);
        }
        assert_eq!(fit.correction.host.scheduling_us.to_bits(), 0.0f64.to_bits(), "it is in step_us");
        let steps_pct = report.held_out.unwrap().median_ape_pct;
        if seed % 20 == 0 {
            let [e2e_pct, wait_pct] = later_requests(&fit.correction, all_steps, &requests);
            worst = (worst.0.max(steps_pct), worst.1.max(e2e_pct), worst.2.max(wait_pct));
        }
    }
    eprintln!(
        "of {seeds} within their 90 % intervals {found:?}, identified {identified:?}: {costs:?}; worst errors {worst:?} %"
    );
    let enough = |count: u32| 100 * count >= 85 * seeds;
    // Prompt tokens also grow the projections, so that their own price stays near its prior.
    assert!(
        costs.iter().zip(identified).all(|((name, _), count)| *name == "prompt_token_us" || enough(count)),
        "{identified:?}"
    );
    assert!(found.iter().all(|count| enough(*count)), "{found:?}");
    assert!(worst.0 <= 2.0 && worst.1 <= 3.0 && worst.2 <= 10.0, "steps, E2E, queue wait: {worst:?} %");
}

/// Errors of the mean E2E and queue wait of the requests, which are replayed with a correction, percent.
fn later_requests(correction: &Correction, steps: Vec<StepRecord>, requests: &[RequestRow]) -> [f64; 2] {
    let run = CapturedRun {
        run: run(),
        requests: requests.to_vec(),
        steps: Some(timed(StepTrace { run: run(), steps })),
        ..CapturedRun::default()
    };
    let server = CaptureServer {
        engine: engine(),
        blocks_are_given: true,
        max_concurrency: None,
        latency: CalibratedRoofline::new(steps_of(Some(correction))),
        fitted: None,
    };
    let report = judge_capture(run, server, None, &mut []).unwrap();
    let error =
        |name: &str| report.metrics.iter().find(|row| row.metric.to_string() == name).map(|row| row.ape_pct).unwrap();
    assert!(report.metrics.iter().any(|row| row.metric == Metric::E2E_MEAN));
    [error("e2e_mean"), error("queue_wait_mean")]
}

#[test]
fn a_permuted_column_is_not_identified() {
    let steps = steps_of(Some(&planted()));
    for seed in 0..10 {
        let (mut trace, requests) = capture(&steps, seed);
        let mut random = Pcg64::seed_from_u64(seed);
        for last in (1..trace.steps.len()).rev() {
            let other = random.random_range(0..=last);
            let (a, b) = (trace.steps[last].num_waiting, trace.steps[other].num_waiting);
            (trace.steps[last].num_waiting, trace.steps[other].num_waiting) = (b, a);
        }
        let (fit, _) = fitted(trace, &requests);
        let of = parameter(&fit, "scheduling_us_per_waiting");
        assert!(!of.identified && of.value < 10.0, "seed {seed}: {of:?}");
        assert!(parameter(&fit, "preemption_us").identified);
    }
}
