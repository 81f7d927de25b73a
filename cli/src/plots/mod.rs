//! Plots of evaluations as SVG files. Pixel formats would need fonts that a server may not have.

mod capture;
mod charts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use ridgepoint_lab::evaluate::capture::CaptureReport;
use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::report::{CaseResult, EvaluationReport, TraceResult};

use crate::common::Common;
use crate::outcome::Failure;
use crate::output::{Force, Kind, OutputFolder, Outputs};
use charts::{PlotResult, Series, predicted_over_measured, quantiles, survival};

/// Least number of single steps whose distribution is shown; with fewer it is that of windows.
const MIN_SINGLE: usize = 20;
/// Largest number of characters of a run's name in the name of a file.
const MAX_FILE_NAME_CHARS: usize = 80;

/// The flag `--plot` of the subcommands of `evaluate`.
#[derive(Debug, Args)]
pub struct Plot {
    /// Folder to write plots to, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// The plots of an evaluation.
pub struct Plots {
    folder: Option<OutputFolder>,
    /// The beginning of the files' names.
    kind: &'static str,
    /// The outputs that they are among.
    pub outputs: Outputs,
}

impl Plot {
    /// Makes the folder, so that its faults are known before anything is computed. The names of files will begin with `kind`.
    ///
    /// # Errors
    /// A folder that cannot be made or written to.
    pub fn prepare(&self, kind: &'static str, common: &Common) -> Result<Plots, Failure> {
        let mut outputs = Outputs::new(common, self.force);
        let folder = self.plot.clone().map(OutputFolder::make).transpose()?;
        if let Some(folder) = &folder {
            outputs.probe(&folder.path.join(scatter_file(kind)), Kind::Plot)?;
        }
        Ok(Plots { folder, kind, outputs })
    }
}

impl Plots {
    /// Writes the plots of a report if `--plot` was given. Returns a note for each plot that could not be drawn.
    ///
    /// # Errors
    /// Files that cannot be written, or must not be replaced. Then none is.
    pub fn write(self, report: &EvaluationReport) -> Result<Vec<String>, Failure> {
        self.write_figures(|kind| figures(report, kind))
    }

    /// Writes the plots of a judged capture, as [`Plots::write`] those of a report.
    ///
    /// # Errors
    /// Those of [`Plots::write`].
    pub fn write_capture(self, report: &CaptureReport) -> Result<Vec<String>, Failure> {
        self.write_figures(|kind| capture::figures(report, kind))
    }

    fn write_figures(
        mut self,
        figures: impl FnOnce(&str) -> Vec<(String, PlotResult)>,
    ) -> Result<Vec<String>, Failure> {
        let (mut notes, mut files) = (Vec::new(), Vec::new());
        let Some(folder) = &self.folder else { return Ok(notes) };
        for (file, drawn) in figures(self.kind) {
            match drawn {
                Ok(svg) => files.push((folder.path.join(file), Kind::Plot, svg)),
                Err(reason) => notes.push(format!("{file}: not drawn: {reason}")),
            }
        }
        self.outputs.write_all(files)?;
        Ok(notes)
    }
}

/// The name of the plot that every evaluation has.
fn scatter_file(kind: &str) -> String {
    format!("{kind}-predicted-over-measured.svg")
}

/// The names of files with their plots, in a stable order.
fn figures(report: &EvaluationReport, kind: &str) -> Vec<(String, PlotResult)> {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for of in &report.experiments {
        for row in of.metrics.iter().filter(|row| row.stage == WHOLE_RUN) {
            let name = if of.trace.is_some() { of.labels.name.clone() } else { row.metric.to_string() };
            series.entry(name).or_default().push((row.measured_ms, row.predicted_ms));
        }
    }
    let series = series.into_iter().map(|(name, points)| Series { name, points }).collect();
    let scatter = predicted_over_measured("Predicted and measured time", "ms", series);
    let mut figures = vec![(scatter_file(kind), scatter)];
    let traces = report.experiments.iter().filter_map(|of| Some((of, of.trace.as_ref()?)));
    for (number, (of, trace)) in (1..).zip(traces) {
        let name = file_name(number, &of.labels.name);
        let (subject, times_ms) = times_ms(of, trace);
        let title = format!("{}: {subject}", of.labels.name);
        let (measured_ms, predicted_ms): (Vec<f64>, Vec<f64>) = times_ms.into_iter().unzip();
        let curves = [("measured", &measured_ms[..]), ("predicted", &predicted_ms)];
        let share = "share of steps that take longer than t";
        figures.push((format!("{kind}-itl-survival-{name}.svg"), survival(&title, share, &curves)));
        let models = [("1st to 99th percentile", &predicted_ms[..])];
        figures.push((format!("{kind}-period-qq-{name}.svg"), quantiles(&title, &measured_ms, &models)));
    }
    figures
}

/// Measured and predicted times whose distributions are compared, and their description.
fn times_ms(of: &CaseResult, trace: &TraceResult) -> (&'static str, Vec<(f64, f64)>) {
    if trace.single_steps_ms.len() >= MIN_SINGLE {
        return ("periods of single steps", trace.single_steps_ms.clone());
    }
    ("mean periods of windows", of.metrics.iter().map(|row| (row.measured_ms, row.predicted_ms)).collect())
}

/// The number and the name of a run in characters that any file system takes.
fn file_name(number: usize, name: &str) -> String {
    let is_odd = |character: char| !character.is_ascii_alphanumeric() && !"-_.".contains(character);
    let name: String = name.chars().take(MAX_FILE_NAME_CHARS).collect();
    format!("{number}-{}", name.replace(is_odd, "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe() {
        assert_eq!(file_name(3, "../a b/ç"), "3-.._a_b__");
    }
}
