//! Targets of the files that the core reads.

use std::sync::{Arc, LazyLock};

use ridgepoint::input::{FileKind, Input};
use ridgepoint::latency::{FittedBlackBox, LatencyModel};
use ridgepoint::unstable::efficiency::family::{FAMILIES, KernelFamily};
use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::table::Table;
use ridgepoint::{Correction, Deployment, Engine, Hardware, Model, Options, Request, Step, StepModel};
use ridgepoint_replay::cold_start::{FittedRates, RateName, Rates};
use ridgepoint_replay::server_config::ServerConfig;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{Prompts, StageLoad, Workload};

use crate::sane::{self, H100, LLAMA};

/// Requests of a load that a case draws; a load of more is parsed alone.
const MOST_REQUESTS: u64 = 2000;

/// Shared prompts of such a load. The order of the 10 million that a profile may have is half a second's work.
const MOST_PROMPTS: u64 = 100_000;

/// A `config.json`, and a `hf_quant_config.json` after a line of dashes.
pub fn model_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (config, quantisation) = match text.split_once("\n---\n") {
        Some((config, quantisation)) => (config, Some(quantisation)),
        None => (&*text, None),
    };
    if let Ok(model) = Model::from_config_str("fuzzed", "config.json", config, quantisation) {
        sane::predict(&model, &H100, &Deployment::default());
    }
}

/// A `generation_config.json`.
pub fn generation_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(model) = LLAMA.clone().with_generation_config("generation_config.json", &text) {
        sane::predict(&model, &H100, &Deployment::default());
    }
}

/// Engine arguments as JSON.
pub fn deployment(bytes: &[u8]) {
    if let Ok(deployment) = Deployment::from_json("deployment.json", &String::from_utf8_lossy(bytes)) {
        sane::predict(&LLAMA, &H100, &deployment);
    }
}

/// A GPU in TOML, or figures of GPUs in JSON.
pub fn hardware(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let of_json = |gpu| ridgepoint_replay::hardware_from_json(None, "fuzzed.json", &text, gpu);
    let read = [Hardware::from_toml_str("fuzzed", "fuzzed.toml", &text), of_json(None), of_json(Some("H100"))];
    for hardware in read.into_iter().flatten() {
        sane::predict(&LLAMA, &hardware, &Deployment::tensor_parallel(2));
    }
}

static UNCORRECTED: LazyLock<StepModel> = LazyLock::new(|| {
    let options = Options { operators_only: true, ..Options::uncorrected() };
    StepModel::with_options(&LLAMA, &H100, &Deployment::tensor_parallel(2), &options).unwrap()
});

/// A correction. What was read is written and read again.
pub fn correction(bytes: &[u8]) {
    let Ok(correction) = Correction::from_toml_str("fuzzed.toml", &String::from_utf8_lossy(bytes)) else { return };
    sane::predict_with(&UNCORRECTED.clone().with_correction(Arc::new(correction.clone())));
    if let Ok(written) = correction.to_toml_string() {
        let again = Correction::from_toml_str("written.toml", &written).expect("what was written can be read");
        assert_eq!(again.to_toml_string().expect("it was written before"), written);
    }
}

/// A fitted black box. What was read is written and read again, and predicts.
pub fn latency_model(bytes: &[u8]) {
    let Ok(read) = FittedBlackBox::from_toml_str("fuzzed.toml", &String::from_utf8_lossy(bytes)) else { return };
    let written = read.to_toml_string().expect("what was read can be written");
    assert_eq!(FittedBlackBox::from_toml_str("written.toml", &written).expect("what was written can be read"), read);
    for step in [vec![Request::decode(u32::MAX); 3000], vec![Request::prefill(u32::MAX, u32::MAX); 3000], Vec::new()] {
        let time_us = read.black_box.step_time_us(&Step::from(&step));
        assert!(time_us.is_finite() && time_us >= 0.0, "{time_us}");
    }
}

/// Fitted rates of a start.
pub fn start_rates(bytes: &[u8]) {
    let Ok(read) = FittedRates::from_toml_str("fuzzed.toml", &String::from_utf8_lossy(bytes)) else { return };
    let written = read.to_toml_string().expect("what was read can be written");
    let again = FittedRates::from_toml_str("fuzzed.toml", &written).expect("what was written can be read");
    assert_eq!(again, read);
    let rates = Rates::new(&H100, read.storage, Some(&read));
    for name in RateName::ALL {
        let rate = rates.of(name);
        assert!(0.0 < rate.lower && rate.lower <= rate.value && rate.value <= rate.upper, "{} {rate:?}", name.name());
    }
}

/// A prompt, a token or a key, through the reader of every file.
pub fn plain_text(bytes: &[u8]) {
    let Ok(input) = Input::new(FileKind::PlainText, "fuzzed.txt", bytes) else { return };
    if let Ok(text) = input.text() {
        assert!(text.len() <= bytes.len(), "nothing is added");
    }
}

/// A table of kernel efficiencies, of any operator.
pub fn efficiency_table(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    FAMILIES.into_iter().for_each(|family| table(family, &text));
}

fn table(family: &'static KernelFamily, text: &str) {
    let Ok(table) = Table::parse(family, &H100.name, "fuzzed.csv", text.to_owned()) else { return };
    for key in &table.keys {
        let Ok(chip) = Chip::new(&H100, key.compute_dtype()) else { continue };
        let Ok(Some(series)) = table.series(key, &chip, &[]) else { continue };
        for scale in [0.5, 1.0, 3.7, 1e6] {
            let point: Vec<f64> = series.grid.axes.iter().map(|axis| scale * axis.first().unwrap_or(&1.0)).collect();
            let (value, _) = series.grid.lookup(&point);
            assert!(value.is_finite(), "{value} at {point:?}");
        }
    }
}

/// A server.
pub fn server_config(bytes: &[u8]) {
    let Ok(server) = ServerConfig::parse("server.yaml", &String::from_utf8_lossy(bytes)) else { return };
    if let Ok(engine) = server.engine_config(&LLAMA, &H100, &Engine::default()) {
        engine.config.validate().expect("a configuration that was checked");
    }
    sane::predict(&LLAMA, &H100, &server.deployment);
}

/// A load profile. Loads of some requests are drawn.
pub fn profile(bytes: &[u8]) {
    let Ok(profile) = Profile::parse("profile.yaml", &String::from_utf8_lossy(bytes)) else { return };
    let requests = profile.stages.iter().map(StageLoad::num_requests).fold(0, u64::saturating_add);
    let prompts = match profile.prompts {
        Prompts::SharedPrefix { num_groups, num_prompts_per_group, .. } => {
            u64::from(num_groups) * u64::from(num_prompts_per_group)
        }
        _ => 0,
    };
    if requests <= MOST_REQUESTS && prompts <= MOST_PROMPTS {
        assert_eq!(u64::from(drain(&mut *profile.workload(0))), requests);
        profile.summary(0);
    }
}

/// A list of requests in the format that it seems to have.
pub fn requests(bytes: &[u8]) {
    requests_of(bytes, None);
}

/// A list of requests that is read as csv whatever it seems to be, and as other formats by its length.
pub fn requests_csv(bytes: &[u8]) {
    requests_of(bytes, Some(Format::Csv));
    requests_of(bytes, Format::ALL.get(bytes.len() % Format::ALL.len()).copied());
}

fn requests_of(bytes: &[u8], format: Option<Format>) {
    if let Ok(file) = RequestFile::parse("requests", bytes, format) {
        file.summary();
        assert!(drain(&mut *file.workload()) > 0, "a load without requests");
    }
}

/// Takes every request of a load, each of which is over at once; returns their number.
fn drain(load: &mut dyn Workload) -> u32 {
    let (mut drawn, mut now_ns) = (0_u32, 0);
    while let Some(next_ns) = load.next_arrival_ns() {
        assert!(next_ns >= now_ns, "times decrease");
        now_ns = next_ns;
        let request = load.next_request().expect("a request is due");
        assert!(request.num_prompt_tokens > 0 && request.num_output_tokens > 0, "{request:?}");
        load.finished(now_ns, request.stage, drawn);
        drawn += 1;
    }
    drawn
}
