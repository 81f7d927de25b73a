//! Rates that are planted in generated logs come back.

use std::fmt::Write as _;
use std::path::Path;

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;
use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::{CorrectionChoice, Deployment, EfficiencyMode, Hardware, Model, Options, StepModel};
use ridgepoint_replay::cold_start::{ColdStart, CompileCache, Rate, RateName, Rates, Storage};

use super::*;

fn options() -> Options {
    Options {
        efficiency: EfficiencyMode::Ideal,
        correction: CorrectionChoice::None,
        operators_only: true,
        ..Options::default()
    }
}

/// The rates of a made-up host.
struct Planted([f64; RateName::ALL.len()]);

impl Planted {
    fn of(&self, name: RateName) -> f64 {
        self.0[name as usize]
    }

    /// Draws rates as the prior has them.
    fn drawn(prior: &Rates, random: &mut Pcg64) -> Self {
        Planted(RateName::ALL.map(|name| {
            let Rate { value, lower, upper, .. } = prior.of(name);
            let z: f64 = StandardNormal.sample(random);
            value * (z * (upper / lower).ln() / (2.0 * SDS_OF_90_PCT)).exp()
        }))
    }

    /// The log of a start on `tp` GPUs whose times each scatter by `scatter`.
    fn log(&self, model: &Model, hardware: &Hardware, tp: u32, warm: bool, scatter: f64, random: &mut Pcg64) -> String {
        let deployment = Deployment { max_num_seqs: 256, ..Deployment::tensor_parallel(tp) };
        let steps = StepModel::with_options(model, hardware, &deployment, &options()).unwrap();
        let rates = Rates::new(hardware, Storage::Nvme, None);
        let start = ColdStart {
            model,
            hardware,
            deployment: &deployment,
            steps: &steps,
            rates: &rates,
            compile_cache: CompileCache::Cold,
            prompt_tokens: 1,
        };
        let (amounts, start_up) = (start.amounts().unwrap(), start.predict().unwrap());
        let [profile_s, fill_s] = ["profile_run", "kv_cache"].map(|name| start_up.part(name).unwrap().time.estimate_s);
        let mut noisy = |seconds: f64| {
            let z: f64 = StandardNormal.sample(random);
            seconds * (scatter * z).exp()
        };
        let rate = |name| self.of(name);
        let launch = noisy(rate(RateName::ProcessStartS));
        let weights = noisy(
            amounts.checkpoint_bytes / rate(RateName::StorageBytesPerS)
                + amounts.rank_bytes / rate(RateName::HostToDeviceBytesPerS),
        );
        let model_s = weights + noisy(rate(RateName::ModelInitS));
        let dynamo = noisy(amounts.layers * rate(RateName::DynamoSPerLayer));
        let compile = match warm {
            true => noisy(rate(RateName::CompileWarmS)),
            false => dynamo + noisy(rate(RateName::InductorS)),
        };
        let graphs = |count: u64, name, noisy: &mut dyn FnMut(f64) -> f64| {
            let seconds = noisy(count as f64 * amounts.layers * rate(name));
            (seconds, count as f64 / seconds)
        };
        let piecewise = graphs(51, RateName::PiecewiseGraphSPerLayer, &mut noisy);
        let full = graphs(35, RateName::FullGraphSPerLayer, &mut noisy);
        // Newer releases, here those of a warm cache, log the profiling run apart.
        let (buffers, kernels) = (rate(RateName::BuffersS) + profile_s, rate(RateName::KernelWarmUpS) + fill_s);
        let (profile, rest) = if warm { (noisy(buffers), noisy(kernels)) } else { (0.0, noisy(buffers + kernels)) };
        let engine = compile + piecewise.0 + full.0 + profile + rest;
        let stamp = |seconds: f64| {
            let seconds = seconds as u64;
            format!("INFO 03-01 10:{:02}:{:02}", seconds / 60, seconds % 60)
        };
        let mut text = String::new();
        let mut line = |from: &str, at: f64, words: String| {
            writeln!(text, "({from} pid=7) {} [x.py:1] {words}", stamp(at)).unwrap();
        };
        line("APIServer", 0.0, "vLLM API server version 0.15.1".to_owned());
        line(
            "EngineCore",
            2.0,
            format!(
                "Initializing a V1 LLM engine (v0.15.1) with config: model='{}', tensor_parallel_size={tp}, pipeline_parallel_size=1, \
                 enforce_eager=False",
                model.name
            ),
        );
        line("Worker_TP0", launch, format!("Starting to load model {}...", model.name));
        line("Worker_TP0", launch, format!("Loading weights took {weights:.2} seconds"));
        line("Worker_TP0", launch, format!("Model loading took 14.9 GiB memory and {model_s:.6} seconds"));
        if warm {
            let words = "Directly load the compiled graph(s) for compile range (1, 8192) from the cache, took 2.000 s";
            line("Worker_TP0", launch, words.to_owned());
        } else {
            line("Worker_TP0", launch, format!("Dynamo bytecode transform time: {dynamo:.2} s"));
            line("Worker_TP0", launch, "Compiling a graph for compile range (1, 8192) takes 9.00 s".to_owned());
        }
        line("Worker_TP0", launch, format!("torch.compile takes {compile:.2} s in total"));
        if warm {
            line("Worker_TP0", launch, format!("[backbone] Initial profiling/warmup run took {profile:.2} s"));
        }
        let mut bar = |kind: &str, count: u64, rate: f64| {
            writeln!(text, "Capturing CUDA graphs ({kind}): 100%|###| {count}/{count} [00:01<00:00, {rate:.2}it/s]")
                .unwrap();
        };
        bar("mixed prefill-decode, PIECEWISE", 51, piecewise.1);
        bar("decode, FULL", 35, full.1);
        let total = (piecewise.0 + full.0).round();
        writeln!(
            text,
            "(Worker_TP0 pid=7) {} [x.py:1] Graph capturing finished in {total} secs, took 0.5 GiB",
            stamp(launch)
        )
        .unwrap();
        writeln!(
            text,
            "(EngineCore pid=7) {} [x.py:1] init engine (profile, create kv cache, warmup model) took {engine:.2} seconds",
            stamp(launch)
        )
        .unwrap();
        text
    }
}

/// GPUs of each log, and whether its compile cache is warm.
const LOGS: [(u32, bool); 8] =
    [(1, false), (2, false), (4, true), (1, true), (2, true), (4, false), (1, false), (8, true)];

/// Generates logs of `planted` in a folder, and fits them.
fn fitted(logged: &[(u32, bool)], planted: &Planted, scatter: f64, random: &mut Pcg64) -> ColdStartFit {
    let (model, hardware) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut logs = Vec::new();
    for (at, (tp, warm)) in logged.iter().copied().enumerate() {
        let path = folder.path().join(format!("{at}.log"));
        std::fs::write(&path, planted.log(&model, &hardware, tp, warm, scatter, random)).unwrap();
        logs.extend(read_start_logs(Path::new(&path)).unwrap());
    }
    let prior = Rates::new(&hardware, Storage::Nvme, None);
    compare(&logs, (&model, &hardware), &Deployment::default(), &options(), &prior).unwrap()
}

#[test]
fn planted_rates_are_recovered_within_their_intervals() {
    let hardware = Hardware::find("h100").unwrap();
    let prior = Rates::new(&hardware, Storage::Nvme, None);
    let (mut within, mut all, mut seeds) = ([0_u32; RateName::ALL.len()], 0, 0);
    for seed in 0..80 {
        let mut random = Pcg64::seed_from_u64(seed);
        let planted = Planted::drawn(&prior, &mut random);
        let found = fitted(&LOGS, &planted, 0.1, &mut random);
        seeds += 1;
        for rate in &found.rates {
            let is_within = (rate.lower..=rate.upper).contains(&planted.of(rate.rate));
            within[rate.rate as usize] += u32::from(is_within);
            all += u32::from(is_within);
        }
        assert_eq!(found.rates.len(), 11, "all but the first step's");
    }
    let share = f64::from(all) / f64::from(11 * seeds);
    assert!((0.86..=0.97).contains(&share), "{share} of the planted rates are within their 90 % intervals");
    // Three standard errors of 90 % in 80 draws are 10 %.
    for name in RateName::ALL.into_iter().filter(|name| *name != RateName::FirstStepS) {
        let share = f64::from(within[name as usize]) / f64::from(seeds);
        assert!(share >= 0.78, "{} is within its interval in {share}", name.name());
    }
}

#[test]
fn what_the_logs_determine_is_identified_and_the_rest_stays_assumed() {
    let hardware = Hardware::find("h100").unwrap();
    let prior = Rates::new(&hardware, Storage::Nvme, None);
    let mut planted = Planted(RateName::ALL.map(|name| prior.of(name).value));
    planted.0[RateName::StorageBytesPerS as usize] = 1.5e9;
    planted.0[RateName::InductorS as usize] = 45.0;
    planted.0[RateName::PiecewiseGraphSPerLayer as usize] = 1e-3;
    let found = fitted(&LOGS, &planted, 0.02, &mut Pcg64::seed_from_u64(9));
    for name in [RateName::StorageBytesPerS, RateName::InductorS, RateName::PiecewiseGraphSPerLayer] {
        let rate = found.rates.iter().find(|rate| rate.rate == name).unwrap();
        assert!(rate.identified && (rate.value / planted.of(name) - 1.0).abs() < 0.1, "{rate:?}");
    }
    assert!(found.rates.iter().all(|rate| rate.rate != RateName::FirstStepS));
    assert!(found.starts.iter().all(|start| start.not_found == ["ready"]), "{:?}", found.starts[0].not_found);
    let weights = found.starts[0].measured.iter().find(|of| of.quantity == Quantity::Weights).unwrap();
    assert!((weights.fitted_s / weights.measured_s - 1.0).abs() < 0.1, "{weights:?}");
    assert!(weights.predicted.estimate_s < 0.8 * weights.measured_s, "the assumed disk is twice as fast");
}

#[test]
fn two_rates_of_one_sum_keep_their_uncertainty() {
    let hardware = Hardware::find("h100").unwrap();
    let prior = Rates::new(&hardware, Storage::Nvme, None);
    let planted = Planted(RateName::ALL.map(|name| prior.of(name).value));
    let found = fitted(&[(1, false); 4], &planted, 0.05, &mut Pcg64::seed_from_u64(5));
    let of = |name| *found.rates.iter().find(|rate| rate.rate == name).unwrap();
    // Of a cold compile cache, the generated logs have no line of the profiling run.
    let (kernels, buffers) = (of(RateName::KernelWarmUpS), of(RateName::BuffersS));
    assert!(!buffers.identified, "{buffers:?}");
    assert!((buffers.upper / buffers.lower / (6.0 / 0.3) - 1.0).abs() < 1e-9, "{buffers:?}");
    let sum = kernels.value + buffers.value;
    assert!((sum / 3.5 - 1.0).abs() < 0.2, "{sum}");
}

#[test]
fn scatter_beyond_the_assumed_one_widens_intervals() {
    let hardware = Hardware::find("h100").unwrap();
    let prior = Rates::new(&hardware, Storage::Nvme, None);
    let planted = Planted(RateName::ALL.map(|name| prior.of(name).value));
    let calm = fitted(&LOGS, &planted, 0.02, &mut Pcg64::seed_from_u64(3));
    let wild = fitted(&LOGS, &planted, 0.4, &mut Pcg64::seed_from_u64(3));
    assert!((calm.scatter - 0.1).abs() < 1e-9, "{}", calm.scatter);
    assert!((0.25..0.6).contains(&wild.scatter), "{}", wild.scatter);
    let sd = |fit: &ColdStartFit| fit.rates.iter().find(|rate| rate.rate == RateName::ProcessStartS).unwrap().sd;
    assert!(sd(&wild) > 2.0 * sd(&calm));
}

#[test]
fn logs_of_another_model_are_refused() {
    let (model, other, hardware) =
        (Model::find("llama-3.1-8b").unwrap(), Model::find("qwen3-8b").unwrap(), Hardware::find("h100").unwrap());
    let prior = Rates::new(&hardware, Storage::Nvme, None);
    let planted = Planted(RateName::ALL.map(|name| prior.of(name).value));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.log");
    let text = planted.log(&model, &hardware, 1, false, 0.0, &mut Pcg64::seed_from_u64(1));
    let compared = |text: &str, model: &Model| {
        std::fs::write(&path, text).unwrap();
        compare(&read_start_logs(&path).unwrap(), (model, &hardware), &Deployment::default(), &options(), &prior)
    };
    let error = compared(&text, &other).unwrap_err().to_string();
    assert!(error.contains("a is of the model 'llama-3.1-8b', not of qwen3-8b"), "{error}");
    let id = text.replace("model='llama-3.1-8b'", "model='meta-llama/Llama-3.1-8B-Instruct'");
    assert!(compared(&id, &model).unwrap().notes.is_empty());
    let path_of_mine = text.replace("model='llama-3.1-8b'", "model='/data/my-model'");
    let notes = compared(&path_of_mine, &model).unwrap().notes;
    assert!(notes[0].contains("model '/data/my-model' is not a known name"), "{notes:?}");
}
