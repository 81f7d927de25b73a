//! Serving experiments read and judged by the library, on made-up measurements.

use crate::evaluate_support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evaluate_support::{MEASURED, PROFILE, SERVER, write, write_plain};
use ridgepoint::correction::Term;
use ridgepoint::latency::{HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{Correction, Result, Step};
use ridgepoint_lab::evaluate::case::{Case, correct, correct_with};
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::judge::{judge, replays};
use ridgepoint_lab::evaluate::measured::Measured;
use ridgepoint_lab::evaluate::metric::{Metric, predicted_ms};
use ridgepoint_lab::evaluate::report::{Baseline, EvaluationReport};
use ridgepoint_replay::Metrics;
use tempfile::tempdir;

const SEED: u64 = 42;

fn cases(paths: &[PathBuf]) -> Vec<Case> {
    let experiments = Experiment::find(paths).unwrap();
    let (cases, skipped) = serving_cases(&experiments, None);
    assert_eq!(skipped, []);
    cases
}

fn judged(cases: &[Case]) -> Result<EvaluationReport> {
    judge(cases, Vec::new(), SEED, &[], &|| {})
}

#[track_caller]
fn refused(dir: &Path, said: &[&str]) {
    let problems = Experiment::find(&[dir.to_owned()]).expect_err("refused");
    let message = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for text in said {
        assert!(message.contains(text), "'{text}' is not in: {message}");
    }
}

#[test]
fn what_is_predicted_has_no_error_when_it_is_measured() {
    let dir = tempdir().unwrap();
    let first = judged(&cases(&[write_plain(dir.path(), "a")])).unwrap();
    let rows = &first.experiments[0].metrics;
    assert_eq!(rows.len(), 7);
    let mut text = "stage,metric,value_ms\n".to_owned();
    for row in rows {
        assert!(row.ape_pct > 0.1, "made-up times are not met by chance: {row:?}");
        text.push_str(&format!("{},{},{}\n", row.stage, row.metric, row.predicted_ms));
    }
    let again = judged(&cases(&[write(dir.path(), "b", PROFILE, SERVER, &text)])).unwrap();
    for row in &again.experiments[0].metrics {
        assert!(row.ape_pct < 1e-9, "{row:?}");
    }
    assert!(again.summary[&Metric::E2E_MEAN].max_ape_pct < 1e-9);
    assert_eq!(again.summary_by_stage[&Metric::E2E_MEAN].rows, 2);
}

#[test]
fn reports_say_what_was_run() {
    let dir = tempdir().unwrap();
    let evaluation = judged(&cases(&[write_plain(dir.path(), "a")])).unwrap();
    let report = &evaluation.experiments[0];
    assert_eq!(
        (report.labels.name.as_str(), report.labels.model.as_str(), report.labels.hardware.as_str()),
        ("a", "llama-3.1-8b", "h100_sxm")
    );
    assert_eq!(report.labels.workload.as_deref(), Some("300 in, 40 out"));
    assert!(report.notes.iter().any(|note| note.contains("no black box: no other run")), "{:?}", report.notes);
    // (400 - 20) / 9.5 is 40: as many tokens as the load asks for.
    assert!(!report.notes.iter().any(|note| note.contains("not comparable")), "{:?}", report.notes);
    assert!(!evaluation.baselines.contains_key(&Baseline::BlackBox));
    // A roofline without any loss and without a host can only be faster.
    for row in &report.metrics {
        assert!(row.baselines[&Baseline::IdealRoofline] < row.predicted_ms, "{row:?}");
    }
}

#[test]
fn a_black_box_is_fitted_on_the_other_experiments() {
    let dir = tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| write_plain(dir.path(), name));
    let evaluation = judged(&cases(&[a, b])).unwrap();
    for report in &evaluation.experiments {
        let note = report.notes.iter().find(|note| note.starts_with("black box fitted")).expect("a note");
        assert!(note.contains("2 stages") && note.contains("of llama-3.1-8b at tensor_parallel_size = 1"), "{note}");
        // The other experiment is the same, so the line goes through its step periods of (390 - 19) / 39 and (410 - 21) / 39 ms.
        for row in report.metrics.iter().filter(|row| row.stage >= 0 && row.metric == Metric::E2E_MEAN) {
            let error_pct = 100.0 * (row.baselines[&Baseline::BlackBox] / row.measured_ms - 1.0);
            assert!(error_pct.abs() < 8.0, "{error_pct} {row:?}");
        }
    }
}

#[test]
fn a_client_that_counts_other_tokens_is_remarked_on() {
    let dir = tempdir().unwrap();
    let measured = MEASURED.replace("itl_mean,9.5", "itl_mean,12");
    let evaluation = judged(&cases(&[write(dir.path(), "a", PROFILE, SERVER, &measured)])).unwrap();
    let notes = &evaluation.experiments[0].notes;
    let said = "measured itl_mean counts 32 output tokens a request, the load asks for 40";
    assert!(notes.iter().any(|note| note.contains(said)), "{notes:?}");
}

#[test]
fn refused_requests_are_counted_or_leave_nothing_to_compare() {
    let dir = tempdir().unwrap();
    let short = SERVER.replace("max_model_len: 1024", "max_model_len: 339");
    let error = judged(&cases(&[write(dir.path(), "a", PROFILE, &short, MEASURED)])).unwrap_err().to_string();
    for text in ["nothing could be judged", "a:", "80 of 80 requests are refused", "max_model_len = 339"] {
        assert!(error.contains(text), "'{text}' is not in: {error}");
    }
    let runs = write_plain(dir.path(), "b");
    let evaluation = judged(&cases(&[dir.path().join("a"), runs])).unwrap();
    assert_eq!((evaluation.experiments.len(), evaluation.skipped[0].id.as_str()), (1, "a"));
}

#[test]
fn folders_are_searched_in_order_and_read_once() {
    let dir = tempdir().unwrap();
    let names = |paths: &[PathBuf]| -> Vec<String> {
        Experiment::find(paths).unwrap().into_iter().map(|experiment| experiment.name).collect()
    };
    let [b, a] = ["b", "a"].map(|name| write_plain(dir.path(), name));
    std::fs::create_dir(dir.path().join("notes")).unwrap();
    assert_eq!(names(&[dir.path().to_owned()]), ["a", "b"]);
    assert_eq!(names(&[b.clone(), dir.path().to_owned()]), ["b", "a"]);
    let elsewhere = write_plain(&dir.path().join("notes"), "a");
    assert_eq!(names(&[a.clone(), elsewhere.clone()]), [a.display().to_string(), elsewhere.display().to_string()]);
}

#[test]
fn folders_without_an_experiment_name_what_is_missing() {
    let dir = tempdir().unwrap();
    refused(dir.path(), &["no experiment", "profile.yaml, exp-config.yaml, measured.csv"]);
    refused(&dir.path().join("nowhere"), &["nowhere"]);
    let [a, b] = ["a", "b"].map(|name| write_plain(dir.path(), name));
    std::fs::remove_file(a.join("profile.yaml")).unwrap();
    std::fs::remove_file(a.join("measured.csv")).unwrap();
    std::fs::write(b.join("measured.csv"), "stage,metric,value_ms\n0,e2e_mean,NaN\n").unwrap();
    // The problems of all experiments at once.
    refused(dir.path(), &["a/profile.yaml", "row 1: column 'value_ms': found NaN"]);
    refused(&a.join("exp-config.yaml"), &["exp-config.yaml"]);
}

#[test]
fn every_file_is_read_strictly() {
    let dir = tempdir().unwrap();
    let with = |profile: &str, server: &str, measured: &str| write(dir.path(), "a", profile, server, measured);
    refused(&with(&PROFILE.replace("question_len", "question_length"), SERVER, MEASURED), &["question_length"]);
    refused(&with(PROFILE, &format!("{SERVER}max_num_sequences: 3\n"), MEASURED), &["max_num_sequences"]);
    refused(&with(PROFILE, SERVER, &MEASURED.replace("ttft_mean", "ttft_avg")), &["measured.csv", "found ttft_avg"]);
    let beyond = format!("{MEASURED}2,e2e_mean,400\n");
    refused(&with(PROFILE, SERVER, &beyond), &["stage 2 is measured", "profile.yaml has 2"]);
}

#[test]
fn models_that_cannot_be_run_are_listed_with_their_reason() {
    let dir = tempdir().unwrap();
    let unknown = SERVER.replace("llama-3.1-8b", "acme-7b");
    let large = SERVER.replace("llama-3.1-8b", "llama-3.1-70b").replace("total_kv_blocks: 4000\n", "");
    write(dir.path(), "a", PROFILE, &unknown, MEASURED);
    write(dir.path(), "b", PROFILE, &large, MEASURED);
    let experiments = Experiment::find(&[dir.path().to_owned()]).unwrap();
    let (cases, skipped) = serving_cases(&experiments, None);
    assert!(cases.is_empty());
    assert!(skipped[0].id == "a" && skipped[0].reason.contains("unknown model 'acme-7b'"), "{skipped:?}");
    assert!(skipped[1].id == "b" && skipped[1].reason.contains("GiB"), "{skipped:?}");
    let error = judge(&cases, skipped, SEED, &[], &|| {}).unwrap_err().to_string();
    assert!(error.contains("nothing could be judged") && error.contains("acme-7b"), "{error}");
}

/// Steps that take longer than predicted by one factor.
struct Slower<'a>(&'a dyn LatencyModel, f64);

impl LatencyModel for Slower<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.1 * self.0.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        self.0.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.0.kv_transfer_time_us(direction, bytes)
    }
}

#[test]
fn an_error_of_the_step_times_is_attributed_to_them() {
    let dir = tempdir().unwrap();
    let mut cases = cases(&[write_plain(dir.path(), "a")]);
    let slower = Slower(cases[0].rooflines.calibrated.as_ref(), 1.25);
    let seen = Metrics::of(&cases[0].replay(&slower, SEED, &mut []).unwrap());
    let of = |metric: Metric| ((-1, metric), predicted_ms(&seen, None, metric).unwrap());
    cases[0].measured = Measured::new([of(Metric::E2E_MEAN), of(Metric::TTFT_MEAN), of(Metric::ITL_MEAN)]);

    let report = judge(&cases, Vec::new(), SEED, &Baseline::REPLACED, &|| {}).unwrap();
    // 1 / 1.25 - 1 is -20 %, a little less as the host's share is the same.
    let before = report.summary[&Metric::E2E_MEAN].median_ape_pct;
    assert!((17.0..20.0).contains(&before), "{before}");
    let after = |baseline: Baseline| report.baselines[&baseline][&Metric::E2E_MEAN].median_ape_pct;
    assert!(after(Baseline::ScaledStepTimes) < 0.5);
    // No request waits at this load.
    assert!((after(Baseline::NoLimits) - before).abs() < 0.01);
    // Without a cache every prompt is computed, which takes longer and hides a part of the error.
    assert!(after(Baseline::NoPrefixCaching) < before);
    let missing: Vec<_> = Baseline::REPLACED.iter().filter(|of| !report.baselines.contains_key(of)).collect();
    assert_eq!(missing, [&Baseline::NoKvOffload, &Baseline::NoKvDisk, &Baseline::NoKvTransferTime], "there is no tier");
}

#[test]
fn components_that_do_not_apply_are_left_out() {
    let dir = tempdir().unwrap();
    let without = MEASURED.replace("-1,ttft_mean,20\n", "");
    let cases = cases(&[write(dir.path(), "a", PROFILE, SERVER, &without)]);
    let report = judge(&cases, Vec::new(), SEED, &Baseline::REPLACED, &|| {}).unwrap();
    // Without TTFT the time from the first token to the last is not known.
    let missing: Vec<_> = Baseline::REPLACED.iter().filter(|of| !report.baselines.contains_key(of)).collect();
    assert_eq!(
        missing,
        [&Baseline::ScaledStepTimes, &Baseline::NoKvOffload, &Baseline::NoKvDisk, &Baseline::NoKvTransferTime]
    );
}

fn slower_by_us(step_us: f64, models: &[&str]) -> Arc<Correction> {
    let mut correction = Correction { name: "made up".to_owned(), ..Correction::neutral() };
    correction.coefficients[Term::Steps.index()] = step_us;
    correction.source.models = models.iter().map(|model| (*model).to_owned()).collect();
    Arc::new(correction)
}

#[test]
fn a_corrected_prediction_stands_beside_the_calibrated_roofline() {
    let dir = tempdir().unwrap();
    let mut cases = cases(&[write_plain(dir.path(), "a")]);
    let plain = judged(&cases).unwrap();
    assert_eq!(replays(&cases, &[]), 3);
    let slower = slower_by_us(1000.0, &["llama-3.1-8b"]);
    correct_with(&mut cases, |_| Ok(Some(Arc::clone(&slower)))).unwrap();
    assert_eq!(replays(&cases, &[]), 4);
    let corrected = judged(&cases).unwrap();
    let experiment = &corrected.experiments[0];
    assert_eq!(experiment.correction.name.as_deref(), Some("made up"));
    for (row, before) in experiment.metrics.iter().zip(&plain.experiments[0].metrics) {
        assert_eq!(row.baselines.get(&Baseline::CalibratedRoofline), Some(&before.predicted_ms), "{row:?}");
        assert!(!before.baselines.contains_key(&Baseline::CalibratedRoofline));
    }
    // A gap between tokens is a step, and a step takes 1 ms longer.
    let itl_ms = |evaluation: &EvaluationReport| {
        evaluation.experiments[0].metrics.iter().find(|row| row.metric == Metric::ITL_MEAN).unwrap().predicted_ms
    };
    let added_ms = itl_ms(&corrected) - itl_ms(&plain);
    assert!((0.9..1.2).contains(&added_ms), "{added_ms}");
    let is_in_sample = |note: &&String| note.contains("made up was fitted on this model: not a test of it");
    assert_eq!(experiment.notes.iter().filter(is_in_sample).count(), 1, "{:?}", experiment.notes);

    let unseen = slower_by_us(1000.0, &["llama-2-7b"]);
    correct_with(&mut cases, |_| Ok(Some(Arc::clone(&unseen)))).unwrap();
    let notes = judged(&cases).unwrap().experiments[0].notes.clone();
    assert!(!notes.iter().any(|note| note.contains("not a test")), "{notes:?}");
    correct(&mut cases, "none").unwrap();
    assert_eq!(judged(&cases).unwrap(), plain);
    correct(&mut cases, "global").unwrap();
    assert_eq!(judged(&cases).unwrap().experiments[0].correction.level, "global");
}

#[test]
fn attribution_takes_the_corrected_prediction_apart() {
    let dir = tempdir().unwrap();
    let mut cases = cases(&[write_plain(dir.path(), "a")]);
    let idle = Arc::new(Correction { host: HostTimes::NONE, ..Correction::neutral() });
    correct_with(&mut cases, |_| Ok(Some(Arc::clone(&idle)))).unwrap();
    let report = judge(&cases, Vec::new(), SEED, &Baseline::REPLACED, &|| {}).unwrap();
    for row in &report.experiments[0].metrics {
        let (without, predicted) = (row.baselines[&Baseline::NoHostOverhead], row.predicted_ms);
        assert!(
            (without - predicted).abs() < 1e-12 * predicted,
            "{without} is not {predicted}, but the host takes no time"
        );
    }
}

#[test]
fn the_delays_of_the_host_are_distinguished() {
    let dir = tempdir().unwrap();
    let mut cases = cases(&[write_plain(dir.path(), "a")]);
    let host = HostTimes {
        queueing_us: 7000.0,
        scheduling_us: 6000.0,
        scheduling_us_per_running: 500.0,
        output_token_us: 2000.0,
        ..HostTimes::NONE
    };
    let slow = Arc::new(Correction { host, ..Correction::neutral() });
    correct_with(&mut cases, |_| Ok(Some(Arc::clone(&slow)))).unwrap();
    let report = judge(&cases, Vec::new(), SEED, &Baseline::REPLACED, &|| {}).unwrap();
    let of = |metric: Metric| report.experiments[0].metrics.iter().find(|row| row.metric == metric).unwrap();
    let less_ms = |metric: Metric, baseline: Baseline| of(metric).predicted_ms - of(metric).baselines[&baseline];
    // A token that is 2 ms late delays no gap, the way to the queue delays the first token, and a thread that takes no time shortens
    // every step.
    for (metric, output_ms) in [(Metric::TTFT_MEAN, 2.0), (Metric::E2E_MEAN, 2.0), (Metric::ITL_MEAN, 0.0)] {
        assert!((less_ms(metric, Baseline::NoOutputProcessing) - output_ms).abs() < 1e-3, "{metric}");
    }
    let queueing_ms = less_ms(Metric::TTFT_MEAN, Baseline::NoQueueing);
    assert!((queueing_ms - 7.0).abs() < 1.0, "{queueing_ms}");
    let scheduling_ms = less_ms(Metric::TTFT_MEAN, Baseline::NoScheduling);
    assert!(scheduling_ms > 1.0, "{scheduling_ms}");
    let (parts_ms, all_ms) = (queueing_ms + scheduling_ms + 2.0, less_ms(Metric::TTFT_MEAN, Baseline::NoHostOverhead));
    assert!((parts_ms - all_ms).abs() < 1.0, "{parts_ms} of {all_ms}");
}

#[test]
fn results_keep_their_order_and_their_bytes() {
    let dir = tempdir().unwrap();
    for name in ["d", "a", "c", "b"] {
        write_plain(dir.path(), name);
    }
    let done = std::sync::atomic::AtomicU64::new(0);
    let count = || {
        done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let cases = cases(&[dir.path().to_owned()]);
    let once = judge(&cases, Vec::new(), SEED, &[], &count).unwrap();
    assert_eq!(once.experiments.iter().map(|e| e.labels.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!(done.into_inner(), replays(&cases, &[]));
    assert_eq!(serde_json::to_string(&once).unwrap(), serde_json::to_string(&judged(&cases).unwrap()).unwrap());
}
