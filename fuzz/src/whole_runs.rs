//! Targets of several files at once: experiment folders, and fits to the steps and requests of a run.

use std::ffi::OsString;

use ridgepoint::Correction;
use ridgepoint::correction::Level;
use ridgepoint::latency::FittedBlackBox;
use ridgepoint_lab::evaluate::experiment::Experiment;
use ridgepoint_lab::evaluate::steps::case::step_cases;
use ridgepoint_lab::evaluate::steps::read::{StepData, read_runs};
use ridgepoint_lab::fit::{Captured, DelaysOfRuns, FittedRows, Prior, fit_cases};
use ridgepoint_lab::ingest::Run;
use ridgepoint_lab::training::Training;

use crate::command::run;
use crate::ingest_files::judge;
use crate::sane::finite;
use crate::scratch;

/// Begins a line that names the file that follows.
const FILE: &str = "=== ";

/// The names that a file of an experiment may have.
const FILES: [&str; 7] = [
    "exp-config.yaml",
    "traces.json",
    "results/per_request_lifecycle_metrics.json",
    "vllm.log",
    "kv_events.jsonl",
    "profile.yaml",
    "measured.csv",
];

/// The files of a case, each behind a line `=== name`. Unknown names are those of the first file.
fn files(bytes: &[u8]) -> Vec<(&'static str, String)> {
    let text = String::from_utf8_lossy(bytes);
    let part = |part: &str| {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
        let known = FILES.into_iter().find(|known| *known == name);
        (known.unwrap_or(FILES[0]), content.to_owned())
    };
    text.strip_prefix(FILE).unwrap_or(&text).split(&format!("\n{FILE}")).map(part).collect()
}

/// A published folder: its files become tables, which are judged, and its load and figures are read.
pub fn experiment(bytes: &[u8]) {
    let folder = scratch::folder("experiment", &[]);
    let out = scratch::folder("tables", &[]);
    for (name, content) in files(bytes) {
        scratch::write(&format!("experiment/{name}"), content.as_bytes());
    }
    let _ = Experiment::read(&folder);
    let words = [OsString::from("ridgepoint"), "ingest".into(), folder.into(), "--out".into(), out.clone().into()];
    if run(words.into_iter().chain(["--force".into()])) {
        judge(&out);
    }
}

/// A table of steps, and after a line of dashes one of requests: a correction and the training tables are fitted to them.
pub fn fit_steps(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (steps, requests) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let mut files = vec![scratch::write("steps.csv", steps.as_bytes())];
    if !requests.is_empty() {
        files.push(scratch::write("requests.csv", requests.as_bytes()));
    }
    let label = |run: &mut Run| {
        run.model.get_or_insert_with(|| "llama-3.1-8b".to_owned());
        run.hardware.get_or_insert_with(|| "h100".to_owned());
        run.tensor_parallel_size.get_or_insert(1);
        Ok(())
    };
    let Ok(data) = read_runs(&files, None, true, &label) else { return };
    let delays = DelaysOfRuns::of(&data);
    let StepData { runs, requests } = data;
    let (cases, _) = step_cases(runs, "none", None);
    let captured = Captured { cases: &cases, delays: &delays, clients: None };
    let fitted = fit_cases("fuzzed", captured, &Prior::of_any_model(), &Level::Global, FittedRows::Judged, &|| ());
    let Ok((correction, mut report)) = fitted else { return };
    // They are not printed, and some have no end.
    report.fit.parameters.iter_mut().for_each(|of| of.parameter.bounds = (0.0, 0.0));
    finite(&report);
    // A scatter beyond all sense is refused.
    let Ok(written) = correction.to_toml_string() else { return };
    Correction::from_toml_str("fitted.toml", &written).expect("what was written can be read");

    let alignments: Vec<_> = report.runs.iter().map(|run| run.alignment).collect();
    let training = Training::of(&cases, &alignments, &requests);
    finite(&training.report);
    let (mut alpha, mut beta) = (Vec::new(), Vec::new());
    // A label with a zero byte is refused.
    let _ = (training.write_alpha(&mut alpha), training.write_beta(&mut beta));
    for table in [alpha, beta] {
        let text = String::from_utf8_lossy(&table);
        assert!(!text.split(['\n', ',']).any(|cell| ["inf", "-inf", "NaN"].contains(&cell)), "{text}");
    }
    for black_box in training.black_boxes("fuzzed", &correction.host) {
        let written = black_box.to_toml_string().expect("what was fitted can be written");
        FittedBlackBox::from_toml_str("line.toml", &written).expect("what was written can be read");
    }
}
