//! The time from the start of a server to its first token: hand-worked terms, and laws of them.

use ridgepoint::{CorrectionChoice, CudagraphMode, Deployment, EfficiencyMode, Hardware, Model, Options, StepModel};
use ridgepoint_replay::cold_start::{
    ColdStart, CompileCache, RateName, Rates, Seconds, Source, StartUp, Storage, TermName,
};

const KINDS: [Storage; 3] = [Storage::Network, Storage::Nvme, Storage::PageCache];

struct StartUpCase {
    model: &'static str,
    gpu: &'static str,
    storage: Storage,
    compile_cache: CompileCache,
    prompt_tokens: u32,
    deployment: Deployment,
}

impl Default for StartUpCase {
    fn default() -> Self {
        StartUpCase {
            model: "llama-3.1-8b",
            gpu: "h100",
            storage: Storage::Nvme,
            compile_cache: CompileCache::Cold,
            prompt_tokens: 512,
            deployment: Deployment::default(),
        }
    }
}

impl StartUpCase {
    fn start_up(&self) -> StartUp {
        let model = Model::find(self.model).unwrap();
        let hardware = Hardware::find(self.gpu).unwrap();
        let options = Options {
            efficiency: EfficiencyMode::Ideal,
            correction: CorrectionChoice::None,
            operators_only: true,
            ..Options::default()
        };
        let steps = StepModel::with_options(&model, &hardware, &self.deployment, &options).unwrap();
        let rates = Rates::new(&hardware, self.storage, None);
        ColdStart {
            model: &model,
            hardware: &hardware,
            deployment: &self.deployment,
            steps: &steps,
            rates: &rates,
            compile_cache: self.compile_cache,
            prompt_tokens: self.prompt_tokens,
        }
        .predict()
        .unwrap()
    }
}

fn term(start_up: &StartUp, name: TermName) -> Seconds {
    start_up.terms.iter().find(|term| term.term == name).unwrap().time
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn a_checkpoint_is_read_at_the_rate_of_its_disk() {
    let start_up = StartUpCase { storage: Storage::Given(7e9), ..StartUpCase::default() }.start_up();
    let storage = &start_up.terms[0];
    // 8,030,261,248 weights of 2 bytes at 7 GB/s: 2.2944 s, without an interval.
    close(storage.time.estimate_s, 16_060_522_496.0 / 7e9);
    assert_eq!((storage.time.lower_s, storage.time.upper_s), (storage.time.estimate_s, storage.time.estimate_s));
    assert_eq!((storage.source, storage.parts[0].bytes), (Source::Physics, Some(16_060_522_496.0)));
}

#[test]
fn six_terms_come_in_the_order_of_a_start_and_add_up() {
    let start_up = StartUpCase::default().start_up();
    let names: Vec<&str> = start_up.terms.iter().map(|term| term.term.name()).collect();
    assert_eq!(names, ["storage", "host_to_device", "runtime_warm_up", "kv_and_buffers", "first_prefill", "queueing"]);
    let sum =
        |terms: &[ridgepoint_replay::cold_start::Term]| terms.iter().map(|term| term.time.estimate_s).sum::<f64>();
    close(start_up.ready.estimate_s, sum(&start_up.terms[..4]));
    close(start_up.first_token.estimate_s, sum(&start_up.terms));
    for Seconds { estimate_s, lower_s, upper_s } in
        start_up.terms.iter().map(|term| term.time).chain([start_up.ready, start_up.first_token])
    {
        assert!(0.0 <= lower_s && lower_s <= estimate_s && estimate_s <= upper_s, "{lower_s} {estimate_s} {upper_s}");
    }
    for term in &start_up.terms {
        close(term.time.estimate_s, term.parts.iter().map(|part| part.time.estimate_s).sum());
    }
}

#[test]
fn graphs_are_captured_sizes_times_layers() {
    let start_up = StartUpCase::default().start_up();
    let (piecewise, full) = (start_up.part("piecewise_graphs").unwrap(), start_up.part("full_graphs").unwrap());
    // max_num_seqs 256: 51 sizes up to 512, of which 35 are at most 256; 32 layers at 2.5 ms.
    assert_eq!((piecewise.graphs, full.graphs), (Some(51), Some(35)));
    close(piecewise.time.estimate_s, 51.0 * 32.0 * 2.5e-3);
    close(full.time.estimate_s, 35.0 * 32.0 * 2.5e-3);
    let eager = StartUpCase {
        deployment: Deployment { enforce_eager: true, ..Deployment::default() },
        ..StartUpCase::default()
    };
    let eager = eager.start_up();
    for name in ["piecewise_graphs", "full_graphs", "dynamo", "inductor", "kernel_warm_up"] {
        assert!(eager.part(name).is_none(), "{name}");
    }
    // What no warm-up has loaded, the first step loads.
    assert!(eager.first_step().estimate_s > start_up.first_step().estimate_s);
}

#[test]
fn the_kv_cache_is_filled_at_the_memorys_bandwidth() {
    let start_up = StartUpCase::default().start_up();
    let fill = start_up.part("kv_cache").unwrap();
    let model = Model::find("llama-3.1-8b").unwrap();
    let hardware = Hardware::find("h100").unwrap();
    let capacity = ridgepoint::kv_capacity::KvCapacity::new(&model, &hardware, &Deployment::default()).unwrap();
    close(fill.time.estimate_s, capacity.kv_cache_bytes / 3.35e12);
}

#[test]
fn a_long_first_prompt_is_prefilled_in_chunks() {
    let prefill = |prompt_tokens| {
        let start_up = StartUpCase { prompt_tokens, ..StartUpCase::default() }.start_up();
        let part = start_up.part("prefill").unwrap();
        (part.time.estimate_s, part.origin.clone())
    };
    let (one, origin) = prefill(8192);
    assert_eq!(origin, "a step of 8192 tokens");
    let (three, origin) = prefill(20_000);
    assert_eq!(origin, "3 steps of 20000 tokens");
    assert!(three > 20_000.0 / 8192.0 * one, "later chunks also attend to the tokens before them");
}

#[test]
fn faster_storage_and_a_warm_cache_are_never_slower() {
    for (model, tp) in [("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("mixtral-8x7b", 2)] {
        let deployment = Deployment::tensor_parallel(tp);
        let at = |storage, compile_cache| {
            let asked =
                StartUpCase { model, storage, compile_cache, deployment: deployment.clone(), ..StartUpCase::default() };
            asked.start_up().ready
        };
        for pair in KINDS.windows(2) {
            let (slow, fast) = (at(pair[0], CompileCache::Cold), at(pair[1], CompileCache::Cold));
            assert!(fast.estimate_s < slow.estimate_s, "{model} {pair:?}");
            assert!(fast.upper_s <= slow.upper_s, "{model} {pair:?}");
        }
        for storage in KINDS {
            let (cold, warm) = (at(storage, CompileCache::Cold), at(storage, CompileCache::Warm));
            assert!(warm.estimate_s < cold.estimate_s && warm.upper_s < cold.upper_s, "{model} {storage}");
        }
    }
}

#[test]
fn more_captured_sizes_are_never_faster() {
    let mut last = 0.0;
    for max_num_seqs in [1, 2, 8, 32, 64, 128, 256, 512] {
        let deployment = Deployment { max_num_seqs, ..Deployment::default() };
        let start_up = StartUpCase { deployment, ..StartUpCase::default() }.start_up();
        let warm_up = term(&start_up, TermName::RuntimeWarmUp).estimate_s;
        assert!(warm_up >= last, "{max_num_seqs} requests: {warm_up} after {last}");
        last = warm_up;
    }
    let of_mode = |mode| {
        let deployment = Deployment { cudagraph_mode: Some(mode), ..Deployment::default() };
        term(&StartUpCase { deployment, ..StartUpCase::default() }.start_up(), TermName::RuntimeWarmUp).estimate_s
    };
    assert!(of_mode(CudagraphMode::None) < of_mode(CudagraphMode::FullDecodeOnly));
    assert!(of_mode(CudagraphMode::FullDecodeOnly) < of_mode(CudagraphMode::FullAndPiecewise));
}

#[test]
fn ranks_share_the_bytes_of_the_bus_and_not_those_of_storage() {
    let bytes = |tp, name| {
        let deployment = Deployment::tensor_parallel(tp);
        let asked = StartUpCase { model: "llama-3.1-70b", gpu: "h200", deployment, ..StartUpCase::default() };
        asked.start_up().part(name).unwrap().bytes.unwrap()
    };
    close(bytes(2, "read_weights"), bytes(8, "read_weights"));
    // The norms, some 3 MB, are on every rank.
    let share = bytes(2, "copy_weights") / bytes(8, "copy_weights");
    assert!((3.98..=4.0).contains(&share), "{share}");
}

#[test]
fn a_fitted_rate_takes_the_place_of_an_assumed_one() {
    use ridgepoint_replay::cold_start::{FittedRate, FittedRates};
    let hardware = Hardware::find("h100").unwrap();
    let rate = FittedRate { value: 9.0, sd: 0.1, identified: true };
    let fitted = FittedRates {
        name: "mine.toml".to_owned(),
        model: "llama-3.1-8b".to_owned(),
        hardware: "h100_sxm".to_owned(),
        storage: Storage::Nvme,
        logs: 4,
        scatter: 0.05,
        rates: [(RateName::InductorS, rate)].into(),
    };
    let rates = Rates::new(&hardware, Storage::Nvme, Some(&fitted));
    let inductor = rates.of(RateName::InductorS);
    assert_eq!((inductor.value, inductor.source), (9.0, Source::Fitted));
    assert!(inductor.origin.contains("4 logs of llama-3.1-8b"), "{}", inductor.origin);
    assert_eq!(rates.of(RateName::BuffersS).source, Source::Assumed);
    assert!(fitted.remarks("llama-3.1-8b", "h100_sxm", Storage::Nvme).is_empty());
    let remarks = fitted.remarks("llama-3.1-70b", "h100_sxm", Storage::PageCache);
    assert!(remarks[0].contains("carried over to llama-3.1-70b") && remarks[1].contains("page-cache"), "{remarks:?}");
}
