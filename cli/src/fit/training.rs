//! `ridgepoint fit --training-tables`: the files of the tables and of the lines through them, and what is printed of them.

use std::path::{Path, PathBuf};

use ridgepoint::{Correction, Error, Result};
use ridgepoint_lab::training::{HeldOut, LineFit, TrainingReport};

use super::FittedSteps;
use crate::output::Kind;
use crate::text::{Page, Rows, count, four_digits, shown};

/// The files that a folder may get.
pub fn paths(folder: &Path) -> [(PathBuf, Kind); 4] {
    [
        ("alpha.csv", Kind::TrainingTable),
        ("beta.csv", Kind::TrainingTable),
        ("ridge.toml", Kind::LatencyModel),
        ("lasso.toml", Kind::LatencyModel),
    ]
    .map(|(name, kind)| (folder.join(name), kind))
}

/// The files of a folder. A table without rows is none.
pub fn files(folder: &Path, fitted: &FittedSteps, correction: &Correction) -> Result<Vec<(PathBuf, Kind, String)>> {
    let Some(training) = &fitted.training else { return Ok(Vec::new()) };
    let (mut alpha, mut beta) = (Vec::new(), Vec::new());
    training.write_alpha(&mut alpha).map_err(|error| Error::io(folder.join("alpha.csv"), error))?;
    training.write_beta(&mut beta).map_err(|error| Error::io(folder.join("beta.csv"), error))?;
    let tables = [("alpha.csv", alpha), ("beta.csv", beta)].into_iter().filter(|(_, rows)| !rows.is_empty());
    let table = |(name, rows): (&str, Vec<u8>)| {
        (folder.join(name), Kind::TrainingTable, String::from_utf8_lossy(&rows).into_owned())
    };
    let mut files: Vec<(PathBuf, Kind, String)> = tables.map(table).collect();
    for black_box in training.black_boxes(&correction.source.data, &correction.host) {
        files.push((
            folder.join(format!("{}.toml", black_box.method)),
            Kind::LatencyModel,
            black_box.to_toml_string()?,
        ));
    }
    Ok(files)
}

/// Lays out the sizes of the tables, the lines and their errors.
pub fn lay_out(report: &TrainingReport, page: &mut Page) {
    page.blank();
    for (name, rows, left_out) in [
        ("alpha.csv: ", report.alpha_rows, &report.alpha_left_out),
        ("beta.csv: ", report.beta_rows, &report.beta_left_out),
    ] {
        let left_out = if left_out.total() > 0 { format!("; left out: {left_out}") } else { String::new() };
        page.paragraph(name, &format!("{} rows{left_out}", count(rows)));
    }
    let percent = |figure: fn(&HeldOut) -> Option<f64>| {
        move |of: &&LineFit| shown(of.held_out.as_ref().and_then(figure), |pct| format!("{pct:.1} %"))
    };
    let lines = || report.alpha_lines.iter().chain(&report.beta_lines);
    let rows = Rows::of(lines())
        .left("line", |of| format!("{}: {}", of.target, of.method))
        .right("penalty", |of| four_digits(of.penalty))
        .right("rows", |of| count(of.rows))
        .right("held-out rows", |of| shown(of.held_out, |of| count(of.rows)))
        .right("mean error", |of| shown(of.held_out, |of| four_digits(of.mean_absolute)))
        .right("of the mean", percent(|of| of.of_mean_pct))
        .right("median error", percent(|of| of.median_ape_pct))
        .right("mean error of a row", percent(|of| of.mean_ape_pct));
    if lines().next().is_some() {
        page.rows(&rows, &["penalty", "rows"]);
    }
    for of in lines() {
        let term = |(column, value): (&&str, &f64)| format!(" + {}·{column}", four_digits(*value));
        let sum: String = of.coefficients.iter().map(term).collect();
        let listed = |what: &str, names: &[&str]| {
            if names.is_empty() { String::new() } else { format!("; {what}: {}", names.join(", ")) }
        };
        let (dropped, not_used) = (listed("dropped", &of.dropped), listed("unknown or constant", &of.not_used));
        let text = format!("{}{sum}{dropped}{not_used}", four_digits(of.intercept)).replace("+ -", "− ");
        page.paragraph(&format!("{} ({}): ", of.target, of.method), &text);
    }
    report.notes.iter().for_each(|note| page.paragraph("! ", note));
}
