//! The arguments that several subcommands share: global flags, prediction settings, parsers of values.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ridgepoint::Options;
use ridgepoint::arguments::{Argument, Section};
use ridgepoint_lab::prediction::{PREDICTION_ARGUMENTS, Prediction, prediction_arguments};
use ridgepoint_replay::server_config::EngineLog;
use serde_json::{Map, Value};

use crate::data_dir::refuse_unread_tables;
use crate::flags::{self, FlagRows, Flags};
use crate::input_paths::NamedPath;
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
    pub named: Vec<NamedPath>,
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
                "--data-dir {}: no such folder; give one that contains hardware/, models/ or bench_data/",
                dir.display()
            ))),
            Some(dir) => refuse_unread_tables(dir),
            None => Ok(()),
        }
    }
}

/// Settings of a prediction.
#[derive(Debug, Clone)]
pub struct OfPrediction;

impl FlagRows for OfPrediction {
    fn rows() -> Vec<&'static Argument> {
        PREDICTION_ARGUMENTS.iter().collect()
    }
}

/// Settings of a prediction.
#[derive(Debug, Args)]
pub struct PredictionArgs {
    #[command(flatten)]
    flags: Flags<OfPrediction>,
    /// Log of the server's start, or its /metrics: model, sizes, limits, version and KV cache where neither flags nor a file give them
    #[arg(long, value_name = "FILE", help_heading = PREDICTION)]
    engine_log: Option<PathBuf>,
    #[arg(skip)]
    log: OnceLock<EngineLog>,
}

impl PredictionArgs {
    /// The server's log; `None` without one.
    fn log(&self) -> Result<Option<&EngineLog>, Failure> {
        let Some(path) = &self.engine_log else { return Ok(None) };
        if let Some(log) = self.log.get() {
            return Ok(Some(log));
        }
        let log = EngineLog::read(path)?;
        Ok(Some(self.log.get_or_init(|| log)))
    }

    /// The arguments that the server's log says; none without a log.
    ///
    /// # Errors
    /// A log that cannot be read, or does not say what the server is.
    pub fn logged(&self) -> Result<Map<String, Value>, Failure> {
        Ok(self.log()?.map(EngineLog::arguments).unwrap_or_default())
    }

    /// The flags as a command line has them, those alone that were given.
    pub fn typed(&self) -> Vec<String> {
        let of_row = |(name, value): (&String, &Value)| match value.as_bool() {
            Some(on) => vec![format!("--{}={on}", flags::flag(name))],
            None => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                vec![format!("--{}", flags::flag(name)), text]
            }
        };
        let log = self.engine_log.iter().flat_map(|path| ["--engine-log".to_owned(), path.display().to_string()]);
        self.flags.given.iter().flat_map(of_row).chain(log).collect()
    }

    /// The options of a step model with these settings. The engine's version is that of its log unless one is given.
    ///
    /// # Errors
    /// A wrong version of an engine, as wrong usage; a log that cannot be read.
    pub fn options(&self, common: &Common) -> Result<Options, Failure> {
        let mut given = self.flags.given.clone();
        let version = self.log()?.and_then(|log| log.engine_version.as_deref()?.strip_prefix("vllm-"));
        if let Some(version) =
            version.filter(|_| !["engine", "engine_version"].iter().any(|name| given.contains_key(*name)))
        {
            given.insert("engine_version".to_owned(), version.into());
        }
        let given = prediction_arguments().read_all("the command line", &given);
        let given = given.map_err(|error| Failure::usage(error.problems().join("; ")))?;
        Ok(Prediction::options(&given, common.data_dir()))
    }
}

/// Heading of the settings of a prediction.
pub const PREDICTION: &str = flags::heading(Section::Prediction);

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
