//! The arguments that several subcommands share: global flags, prediction settings, parsers of values.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ridgepoint::unstable::efficiency::ENGINES;
use ridgepoint::{EfficiencyMode, Engine, Options};
use ridgepoint_lab::served::engine_of;

use crate::data_dir::refuse_unread_tables;
use crate::input_paths::Named;
use crate::outcome::{Failure, Format};

/// Flags of every subcommand.
#[derive(Debug, Args)]
pub struct Common {
    /// Print a table, or JSON with stable keys; JSON is alone on stdout
    #[arg(long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub format: Format,
    /// Folder whose hardware/, models/ and bench_data/ take precedence over the built-in ones
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// What the command line names besides outputs.
    #[arg(skip)]
    pub named: Vec<Named>,
}

impl Common {
    /// The folder of user data, where one was given.
    pub fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// Refuses a data folder that does not exist, or has tables where none are read: look-ups would silently find nothing.
    ///
    /// # Errors
    /// A folder that is not there, or a table at another place than `bench_data/<gpu>/<operator>.csv`.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.data_dir {
            Some(dir) if !dir.is_dir() => Err(Failure::input(format!(
                "--data-dir {}: no such folder; give one that holds hardware/, models/ or bench_data/",
                dir.display()
            ))),
            Some(dir) => refuse_unread_tables(dir),
            None => Ok(()),
        }
    }
}

/// Settings of a prediction.
#[derive(Debug, Args)]
pub struct PredictionArgs {
    /// Kernel efficiencies: measured tables, or the ideal roofline
    #[arg(long, value_parser = one_of(EFFICIENCIES), default_value = "tables", value_name = "KIND", help_heading = PREDICTION)]
    pub efficiency: EfficiencyMode,
    /// Serving engine whose kernels are predicted; the scheduler is always vLLM's
    #[arg(long, value_parser = PossibleValuesParser::new(ENGINES), default_value = "vllm", value_name = "NAME", help_heading = PREDICTION)]
    engine: String,
    /// Engine version, as in 0.24. The nearest measured version stands in for one without measurements [default: 0.15 for vllm, the
    /// newest measured one for others]
    #[arg(long, value_parser = engine_version, value_name = "X.Y", help_heading = PREDICTION)]
    engine_version: Option<String>,
    #[command(flatten)]
    pub correction: CorrectionArg,
}

fn engine_version(text: &str) -> Result<String, &'static str> {
    Engine::parse("vllm", Some(text)).map(|_| text.to_owned()).ok_or("must be a version such as 0.24 or 0.24.0")
}

impl PredictionArgs {
    /// The options of a step model with these settings.
    pub fn options(&self, common: &Common) -> Options {
        Options {
            efficiency: self.efficiency,
            engine: engine_of(&self.engine, self.engine_version.as_deref()).unwrap_or_default(),
            data_dir: common.data_dir.clone(),
            correction: self.correction.correction.as_str().into(),
            ..Options::default()
        }
    }
}

const EFFICIENCIES: [(&str, &str, EfficiencyMode); 2] = [
    ("tables", "Efficiency tables calibrated on measured kernels", EfficiencyMode::Tables),
    ("ideal", "The textbook roofline", EfficiencyMode::Ideal),
];

/// Heading of the settings of a prediction.
pub const PREDICTION: &str = "Prediction";

/// Which correction a prediction takes.
#[derive(Debug, Args)]
pub struct CorrectionArg {
    /// Correction fitted to engine runs: none, global, auto (the recommended one) or a file of `ridgepoint fit`
    #[arg(long, value_name = "none|global|auto|FILE", default_value = "auto", help_heading = PREDICTION)]
    pub correction: String,
}

/// How much memory replays may take.
#[derive(Debug, Args)]
pub struct MemoryArg {
    /// Memory that replays may take, GiB; a load that may take more is refused with an estimate
    #[arg(long, value_name = "GIB", value_parser = above_zero, allow_negative_numbers = true, default_value_t = 1.0)]
    pub max_memory_gib: f64,
}

/// A parser of one of several values; each has a name and a line of help.
pub fn one_of<T, const N: usize>(
    choices: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> + use<T, N>
where
    T: Clone + Send + Sync + 'static,
{
    let values = choices.each_ref().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).try_map(move |given| {
        let found = choices.iter().find(|(name, ..)| *name == given);
        found.map(|(.., value)| value.clone()).ok_or("is not one of the values")
    })
}

/// Parses a finite number of at least 0.
///
/// # Errors
/// The allowed range.
pub fn at_least_zero(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "must be a finite number of at least 0".to_owned())
}

/// A parser of numbers within a range.
pub fn number_in(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let value = text.parse::<f64>().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| format!("must be a number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a positive number.
///
/// # Errors
/// The allowed range.
pub fn above_zero(text: &str) -> Result<f64, String> {
    at_least_zero(text).ok().filter(|value| *value > 0.0).ok_or_else(|| "must be a finite number above zero".to_owned())
}
