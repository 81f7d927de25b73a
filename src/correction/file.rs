//! The file of a correction (TOML): written by a fit, read back strictly. Uses `fitted`, `term`, `host`, `error`.
#![expect(clippy::indexing_slicing, reason = "there is a value for every term")]

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::fitted::{Correction, Level, Scatter, Source};
use super::host::HostTimes;
use super::range::FittedRange;
use super::term::{NUM_TERMS, Term};
use crate::error::{Error, Result};
use crate::input::{FileKind, read_text};

/// Longest delay of the host, µs: 10 s. Even one such delay per token of the longest prompt does not overflow the clock.
const MAX_HOST_US: f64 = 1e7;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Coefficient {
    value: f64,
    sd: f64,
    identified: bool,
}

/// Layout of the file. Correlations are those below the diagonal, a row per coefficient from the second on.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    level: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    correlations: Vec<Vec<f64>>,
    source: Source,
    scatter: Scatter,
    host: HostTimes,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<FittedRange>,
    coefficients: BTreeMap<String, Coefficient>,
}

impl Correction {
    /// Reads a file.
    ///
    /// # Errors
    /// `ErrorKind::Io`; `ErrorKind::Parse` for text that is not TOML or has other keys; `ErrorKind::Invalid` with everything that
    /// can't be: unknown or missing coefficients, values outside their bounds, correlations outside [-1, 1].
    pub fn load(path: impl AsRef<Path>) -> Result<Correction> {
        let path = path.as_ref();
        let text = read_text(FileKind::Correction, path)?;
        Correction::from_toml_str(&path.display().to_string(), &text)
    }

    /// Reads the text of a file that is called `origin` in errors and in [`Correction::name`].
    ///
    /// # Errors
    /// Those of [`Correction::load`], except `ErrorKind::Io`.
    pub fn from_toml_str(origin: &str, text: &str) -> Result<Correction> {
        let file: File =
            toml::from_str(text).map_err(|error| Error::parse(origin, error.to_string().trim().to_owned()))?;
        let mut problems = Vec::new();
        let level = match (file.level.as_str(), file.model) {
            ("global", None) => Level::Global,
            ("model", Some(model)) => Level::Model { model },
            (level, model) => {
                let model = model.map_or_else(|| "no model".to_owned(), |model| format!("model = '{model}'"));
                problems
                    .push(format!("level = '{level}' with {model}: must be 'global' alone or 'model' with a model"));
                Level::Global
            }
        };
        let names: Vec<&str> = Term::ALL.iter().map(|term| term.name()).collect();
        for name in file.coefficients.keys().filter(|name| !names.contains(&name.as_str())) {
            problems.push(format!("coefficients.{name} is not known; there are {}", names.join(", ")));
        }
        let (mut coefficients, mut sd, mut identified) = ([0.0; NUM_TERMS], [0.0; NUM_TERMS], [false; NUM_TERMS]);
        for (index, term) in Term::ALL.into_iter().enumerate() {
            let Some(of) = file.coefficients.get(term.name()) else {
                problems.push(format!("coefficients.{term} is missing"));
                continue;
            };
            let (least, greatest) = term.bounds();
            for (key, value, least, greatest) in
                [("value", of.value, least, greatest), ("sd", of.sd, 0.0, term.max_sd())]
            {
                if !(least..=greatest).contains(&value) {
                    problems.push(format!("coefficients.{term}.{key} = {value} must be from {least} to {greatest}"));
                }
            }
            (coefficients[index], sd[index], identified[index]) = (of.value, of.sd, of.identified);
        }
        let covariance = covariance(&file.correlations, &sd, &mut problems);
        let mut host = file.host;
        let bad = host.by_key().into_iter().filter(|(_, us)| !(0.0..=MAX_HOST_US).contains(&**us));
        problems.extend(bad.map(|(key, us)| format!("host.{key} = {us} must be from 0 to {MAX_HOST_US}")));
        for (key, value) in [("step", file.scatter.step), ("ttft", file.scatter.ttft)] {
            if !(0.0..=3.0).contains(&value) {
                problems.push(format!("scatter.{key} = {value} must be from 0 to 3"));
            }
        }
        if !problems.is_empty() {
            return Err(Error::invalid(origin, problems));
        }
        Ok(Correction {
            name: origin.to_owned(),
            level,
            coefficients,
            covariance,
            identified,
            host: file.host,
            scatter: file.scatter,
            source: file.source,
            range: file.range,
        })
    }

    /// The text of the file: the same correction gives the same bytes.
    ///
    /// # Errors
    /// Those of [`Correction::from_toml_str`]: what is written can be read.
    pub fn to_toml_string(&self) -> Result<String> {
        let sd = |index: usize| self.covariance[index][index].max(0.0).sqrt();
        let correlation = |row: usize, column: usize| {
            let scale = sd(row) * sd(column);
            if scale > 0.0 { round(self.covariance[row][column] / scale).clamp(-1.0, 1.0) } else { 0.0 }
        };
        let coefficient = |(index, term): (usize, Term)| {
            let value = round(self.coefficients[index]);
            let identified = self.identified[index];
            (term.name().to_owned(), Coefficient { value, sd: round(sd(index)), identified })
        };
        let mut host = self.host;
        host.by_key().into_iter().for_each(|(_, us)| *us = round(*us));
        let (level, model) = match &self.level {
            Level::Global => ("global".to_owned(), None),
            Level::Model { model } => ("model".to_owned(), Some(model.clone())),
        };
        let file = File {
            level,
            model,
            correlations: (1..NUM_TERMS).map(|row| (0..row).map(|column| correlation(row, column)).collect()).collect(),
            source: self.source.clone(),
            scatter: Scatter { step: round(self.scatter.step), ttft: round(self.scatter.ttft) },
            host,
            range: self.range,
            coefficients: Term::ALL.into_iter().enumerate().map(coefficient).collect(),
        };
        let text = toml::to_string(&file).map_err(|error| Error::parse(self.name.clone(), error.to_string()))?;
        Correction::from_toml_str(&self.name, &text).map(|_| text)
    }
}

/// To five significant digits: more would say more than is known.
fn round(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

fn covariance(rows: &[Vec<f64>], sd: &[f64; NUM_TERMS], problems: &mut Vec<String>) -> [[f64; NUM_TERMS]; NUM_TERMS] {
    let mut covariance = [[0.0; NUM_TERMS]; NUM_TERMS];
    for (index, sd) in sd.iter().enumerate() {
        covariance[index][index] = sd * sd;
    }
    let expected = (1..NUM_TERMS).collect::<Vec<_>>();
    let found: Vec<usize> = rows.iter().map(Vec::len).collect();
    if found != expected {
        problems.push(format!("correlations has rows of {found:?} numbers, must have {expected:?}"));
        return covariance;
    }
    for (below, values) in rows.iter().enumerate() {
        let row = below + 1;
        for (column, value) in values.iter().enumerate() {
            if !(-1.0..=1.0).contains(value) {
                problems.push(format!("correlations[{below}][{column}] = {value} must be from -1 to 1"));
            }
            let of = value * sd[row] * sd[column];
            (covariance[row][column], covariance[column][row]) = (of, of);
        }
    }
    covariance
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
