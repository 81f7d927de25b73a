//! `ridgepoint evaluate scorecard`: all serving runs by the limits of the fidelity paper, and how well predictions carry over.

use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::Model;
use ridgepoint_lab::evaluate::case::{Case, correct};
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::evaluate::report::EvaluationReport;
use ridgepoint_lab::evaluate::scorecard::{
    Errors, MAX_E2E_PCT, MAX_TTFT_AND_ITL_PCT, Scorecard, ScoredRun, Transfer, left_out_by,
};
use ridgepoint_lab::stats::ErrorSummary;

use super::judging::{judge_cases, leave_one_out};
use super::table::{absolute, signed};
use crate::calibrate::check_borrowed;
use crate::common::Common;
use crate::outcome::{Failure, Outcome, Report};
use crate::text::{Page, Rows, shown};

/// The GPU whose tables predict the kernels of other GPUs.
const LENDER: &str = "h100_sxm";

/// The GPUs whose kernels are predicted.
const BORROWERS: [&str; 2] = ["a100_sxm", "h200_sxm"];

/// The arguments of `evaluate scorecard`.
#[derive(Debug, Args)]
pub struct ScorecardArgs {
    /// Folder with serving*/ (experiments) and kernels/<gpu>/ (timings), or folders of experiments
    #[arg(value_name = "DATA", required = true)]
    paths: Vec<PathBuf>,
    /// Judge this correction instead of those fitted without each model: none, global, auto or a file. Nothing is left out then
    #[arg(long, value_name = "none|global|auto|FILE")]
    correction: Option<String>,
    /// Seed of random arrival times and lengths
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Judges all runs.
///
/// # Errors
/// Files that are missing or at fault; nothing that can be judged.
pub fn run(args: &ScorecardArgs, common: &Common) -> Result<Outcome<Scorecard>, Failure> {
    let data_dir = common.data_dir();
    let experiments = Experiment::find(&serving_folders(&args.paths))?;
    let (mut cases, skipped) = serving_cases(&experiments, data_dir);
    let judge = |cases: &mut Vec<Case>, by: Option<GroupBy>| -> Result<EvaluationReport, Failure> {
        match by {
            Some(by) => leave_one_out(cases, by, args.seed)?,
            None => correct(cases, args.correction.as_deref().unwrap_or("auto"))?,
        }
        judge_cases(cases, skipped.clone(), args.seed, &[])
    };
    let mut left_out = Vec::new();
    let mut without = |by: GroupBy, cases: &mut Vec<Case>| -> Result<EvaluationReport, Failure> {
        let report = judge(cases, Some(by))?;
        left_out.push(Errors::of(&left_out_by(by), &report.experiments.iter().collect::<Vec<_>>()));
        Ok(report)
    };
    let (judged, report) = match &args.correction {
        Some(correction) => (format!("correction {correction}"), judge(&mut cases, None)?),
        None => {
            without(GroupBy::Workload, &mut cases)?;
            (left_out_by(GroupBy::Model), without(GroupBy::Model, &mut cases)?)
        }
    };
    let transfers = transfers(&args.paths, common)?;
    let format_of = |name: &str| {
        let format = Model::find_in(data_dir, name).ok().and_then(|model| model.main_weight_format());
        format.map(|format| format.to_string())
    };
    let card = Scorecard::new(&judged, &report, left_out, transfers, format_of);
    let mut notes = Vec::new();
    if !card.skipped.is_empty() {
        notes.push(format!("{} runs could not be judged; the result lists the reasons", card.skipped.len()));
    }
    Ok(Outcome { missed: card.missed(), result: card, notes })
}

/// The folders of experiments: `serving*` of a folder that has any, else the folder itself.
fn serving_folders(paths: &[PathBuf]) -> Vec<PathBuf> {
    let of = |path: &PathBuf| {
        let is_serving =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("serving"));
        let found: Vec<PathBuf> = folders(path).into_iter().filter(is_serving).collect();
        if found.is_empty() { vec![path.clone()] } else { found }
    };
    paths.iter().flat_map(of).collect()
}

/// Kernels of other GPUs by the tables of one; without errors where the data has no kernels of a GPU.
fn transfers(paths: &[PathBuf], common: &Common) -> Result<Vec<Transfer>, Failure> {
    let lender = ridgepoint_replay::find_hardware(common.data_dir(), LENDER)?;
    let mut all = Vec::new();
    for name in BORROWERS {
        let transfer = |operator: &str, errors: Option<ErrorSummary>| Transfer {
            from: LENDER.to_owned(),
            to: name.to_owned(),
            operator: operator.to_owned(),
            errors,
        };
        let dirs: Vec<PathBuf> = paths.iter().flat_map(|path| folders(&path.join("kernels").join(name))).collect();
        if dirs.is_empty() {
            all.push(transfer("all", None));
            continue;
        }
        let hardware = ridgepoint_replay::find_hardware(common.data_dir(), name)?;
        let reports = check_borrowed(&dirs, &hardware, &lender, common)?;
        all.extend(reports.into_iter().map(|(operator, report)| transfer(operator, report.total)));
    }
    Ok(all)
}

/// The folders in a folder, sorted; none if it cannot be read.
fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

impl Report for Scorecard {
    fn lay_out(&self, page: &mut Page) {
        page.fact("judged", &self.judged);
        page.blank();
        let verdict = |passed: bool| if passed { "pass" } else { "FAIL" }.to_owned();
        let rows = Rows::of(&self.experiments)
            .left("run", |of: &&ScoredRun| of.name.clone())
            .right("E2E mean", |of| shown(of.e2e_mean_pct, signed))
            .left("P1", move |of| verdict(of.passed_p1))
            .right("TTFT mean", |of| shown(of.ttft_mean_pct, signed))
            .right("ITL mean", |of| shown(of.itl_mean_pct, signed))
            .left("P2", move |of| verdict(of.passed_p2));
        page.rows(&rows, &[]);
        let all = self.experiments.len();
        page.line(&format!(
            "P1 (E2E within {MAX_E2E_PCT} %): {} of {all}; P2 (TTFT and ITL within {MAX_TTFT_AND_ITL_PCT} %): {} of {all}",
            self.passed_p1, self.passed_p2
        ));
        page.blank();
        let rows = Rows::of(&self.inversions)
            .left("order of p99 (P3)", |of| of.metric.to_string())
            .left("by", |of| of.predictor.map_or("prediction".to_owned(), |of| of.to_string().replace('_', " ")))
            .right("pairs", |of| of.pairs.to_string())
            .right("inverted", |of| of.inverted.to_string())
            .right("disjoint pairs", |of| of.disjoint_pairs.to_string())
            .right("inverted", |of| of.disjoint_inverted.to_string());
        page.rows(&rows, &[]);
        page.blank();
        let median = |of: &Option<ErrorSummary>| shown(*of, |of| absolute(of.median_ape_pct));
        let rows = Rows::of(self.left_out.iter().chain(&self.formats))
            .left("median error (P4, P6)", |of: &&Errors| of.of.clone())
            .right("runs", |of| of.runs.to_string())
            .right("E2E mean", move |of| median(&of.e2e_mean))
            .right("largest", |of| shown(of.e2e_mean, |of| absolute(of.max_ape_pct)))
            .right("TTFT mean", move |of| median(&of.ttft_mean))
            .right("TTFT p99", move |of| median(&of.ttft_p99))
            .right("ITL mean", move |of| median(&of.itl_mean));
        page.rows(&rows, &["largest"]);
        page.blank();
        let rows = Rows::of(&self.transfers)
            .left("kernels by another GPU's tables (P5)", |of| format!("{} to {}: {}", of.from, of.to, of.operator))
            .right("rows", |of| shown(of.errors, |of| of.rows.to_string()))
            .right("median", |of| of.errors.map_or("no data".to_owned(), |of| absolute(of.median_ape_pct)))
            .right("mean", |of| shown(of.errors, |of| absolute(of.mape_pct)));
        page.rows(&rows, &[]);
        page.blank();
        let rows = Rows::of(&self.coverage)
            .left("in 90 % interval", |of| of.metric.to_string())
            .right("runs", |of| of.runs.to_string())
            .right("covered", |of| absolute(of.covered_pct));
        page.rows(&rows, &[]);
        page.blank();
        let rows = Rows::of(&self.paper)
            .left("experiment of the paper", |of| format!("{} {}", of.model, of.workload))
            .right("runs", |of| of.runs.to_string())
            .right("largest E2E error", |of| of.max_e2e_mean_pct.map_or("no data".to_owned(), absolute));
        page.rows(&rows, &[]);
    }
}
