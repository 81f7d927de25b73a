//! The plots of `evaluate steps`.

use ridgepoint::internals::units::US_PER_MS;
use ridgepoint_lab::evaluate::steps::report::{StepEvaluation, StepExperiment};

use super::canvas::Series;
use super::lines::{quantiles, survival};
use super::scatter::predicted_over_measured;
use super::{Drawn, Figure, sorted_out};

/// Fewer single steps than this say little of a distribution; then it is that of windows.
const MIN_SINGLE: usize = 20;

/// All plots, in a stable order, and what could not be drawn.
pub fn figures(evaluation: &StepEvaluation) -> (Vec<Figure>, Vec<String>) {
    let runs = &evaluation.experiments;
    let mut drawn: Vec<(String, Drawn)> = vec![(
        "steps-predicted-over-measured.svg".to_owned(),
        predicted_over_measured(
            "Steps: predicted and measured time",
            "ms",
            series(runs, &|of| {
                of.judged
                    .iter()
                    .map(|of| (of.point.measured_us / US_PER_MS, of.point.predicted_us / US_PER_MS))
                    .collect()
            }),
        ),
    )];
    let names = unique(runs.iter().map(|run| file_name(&run.name)).collect());
    for (run, name) in runs.iter().zip(names) {
        let (what, measured, predicted) = times_ms(run);
        drawn.push((
            format!("steps-itl-survival-{name}.svg"),
            survival(&format!("{}: {what}", run.name), &measured, &predicted),
        ));
        drawn.push((
            format!("steps-period-qq-{name}.svg"),
            quantiles(&format!("{}: {what}", run.name), &measured, &predicted),
        ));
    }
    sorted_out(drawn)
}

fn series(runs: &[StepExperiment], points: &dyn Fn(&StepExperiment) -> Vec<(f64, f64)>) -> Vec<Series> {
    runs.iter().map(|run| Series { name: run.name.clone(), points: points(run) }).collect()
}

/// Measured and predicted times whose distributions are compared, and what they are.
fn times_ms(run: &StepExperiment) -> (&'static str, Vec<f64>, Vec<f64>) {
    if run.single_us.len() >= MIN_SINGLE {
        let (measured, predicted) = run.single_us.iter().map(|(m, p)| (m / US_PER_MS, p / US_PER_MS)).unzip();
        return ("periods of single steps", measured, predicted);
    }
    let of_window = |of: &ridgepoint_lab::evaluate::steps::report::JudgedWindow| {
        (of.point.measured_us / US_PER_MS, of.point.predicted_us / US_PER_MS)
    };
    let (measured, predicted) = run.judged.iter().map(of_window).unzip();
    ("mean periods of windows", measured, predicted)
}

/// A name that any file system takes.
fn file_name(name: &str) -> String {
    const MAX_CHARS: usize = 80;
    let safe =
        |character: char| if character.is_ascii_alphanumeric() || "-_.".contains(character) { character } else { '_' };
    let name: String = name.chars().map(safe).take(MAX_CHARS).collect();
    if name.is_empty() { "run".to_owned() } else { name }
}

/// Names of which none is there twice, whatever the case of letters counts for.
fn unique(names: Vec<String>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let mut candidate = name.clone();
        let mut number = 2;
        while taken.iter().any(|other| other.eq_ignore_ascii_case(&candidate)) {
            candidate = format!("{name}-{number}");
            number += 1;
        }
        taken.push(candidate);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe_and_differ() {
        assert_eq!(file_name("../a b/ç"), ".._a_b__");
        assert_eq!(file_name(""), "run");
        let names = unique(["a", "A", "a", "a-2"].map(str::to_owned).to_vec());
        assert_eq!(names, ["a", "A-2", "a-3", "a-2-2"]);
    }
}
