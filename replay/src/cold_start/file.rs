//! The file of fitted rates (TOML): written by a fit, read back strictly. Uses `rates`, `input`, `error`.

use std::collections::BTreeMap;
use std::path::Path;

use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::input::{FileKind, read_text};
use ridgepoint::{Error, Result};
use serde::{Deserialize, Serialize};

use super::rates::{Rate, RateName, Storage};
use super::term::Source;

/// Range of a rate. Times are up to a day, bytes per second are far below the upper end.
const RATES: (f64, f64) = (1e-9, 1e15);
/// Largest standard deviation of a logarithm.
const MAX_SD: f64 = 5.0;

/// A fitted rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRate {
    /// The rate.
    pub value: f64,
    /// Standard deviation of its logarithm.
    pub sd: f64,
    /// Whether the logs determine it. If not, it was assumed.
    pub identified: bool,
}

/// Rates that were fitted to start-up logs of one model on one kind of GPU and storage.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedRates {
    /// The file, or the logs, in messages.
    pub name: String,
    /// Short name of the model.
    pub model: String,
    /// Short name of the GPU.
    pub hardware: String,
    /// Storage of the weights.
    pub storage: Storage,
    /// Number of starts that were logged.
    pub logs: u64,
    /// Standard deviation of the logarithm of a time between starts.
    pub scatter: f64,
    /// The rates.
    pub rates: BTreeMap<RateName, FittedRate>,
}

/// Layout of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatesFile {
    model: String,
    hardware: String,
    storage: String,
    logs: u64,
    scatter: f64,
    cold_start: BTreeMap<String, FittedRate>,
}

impl FittedRates {
    /// Reads a file.
    ///
    /// # Errors
    /// `ErrorKind::Io`; `ErrorKind::Parse` for text that is not TOML or has other keys; `ErrorKind::Invalid` with everything that
    /// cannot be: unknown rates and storage, values out of their range.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_toml_str(&path.display().to_string(), &read_text(FileKind::ColdStart, path)?)
    }

    /// Reads the text of a file that is called `origin` in errors.
    ///
    /// # Errors
    /// Those of [`FittedRates::load`], except `ErrorKind::Io`.
    pub fn from_toml_str(origin: &str, text: &str) -> Result<Self> {
        let file: RatesFile =
            toml::from_str(text).map_err(|error| Error::parse(origin, error.to_string().trim().to_owned()))?;
        let mut problems = Vec::new();
        let storage = file.storage.parse().unwrap_or_else(|reason| {
            problems.push(format!("storage = '{}' {reason}", file.storage));
            Storage::Nvme
        });
        let mut check = |key: &str, value: f64, (least, most): (f64, f64)| {
            if !(least..=most).contains(&value) {
                problems.push(format!("{key} = {value} must be from {least} to {most}"));
            }
        };
        check("scatter", file.scatter, (0.0, MAX_SD));
        for (name, rate) in &file.cold_start {
            check(&format!("cold_start.{name}.value"), rate.value, RATES);
            check(&format!("cold_start.{name}.sd"), rate.sd, (0.0, MAX_SD));
        }
        let mut rates = BTreeMap::new();
        for (name, rate) in file.cold_start {
            match RateName::ALL.into_iter().find(|known| known.name() == name) {
                Some(known) => drop(rates.insert(known, rate)),
                None => {
                    let known = RateName::ALL.map(RateName::name).join(", ");
                    problems.push(format!("cold_start.{name} is not known; there are {known}"));
                }
            }
        }
        if rates.is_empty() && problems.is_empty() {
            problems.push("has no rate in [cold_start]".to_owned());
        }
        if !problems.is_empty() {
            return Err(Error::invalid(origin, problems));
        }
        let RatesFile { model, hardware, logs, scatter, .. } = file;
        Ok(FittedRates { name: origin.to_owned(), model, hardware, storage, logs, scatter, rates })
    }

    /// The text of the file: equal rates give equal bytes.
    ///
    /// # Errors
    /// Those of [`FittedRates::from_toml_str`]: what is written can be read.
    pub fn to_toml_string(&self) -> Result<String> {
        let file = RatesFile {
            model: self.model.clone(),
            hardware: self.hardware.clone(),
            storage: self.storage.to_string(),
            logs: self.logs,
            scatter: self.scatter,
            cold_start: self.rates.iter().map(|(name, rate)| (name.name().to_owned(), *rate)).collect(),
        };
        let text = toml::to_string(&file).map_err(|error| Error::parse("fitted rates", error.to_string()))?;
        Self::from_toml_str("fitted rates", &text).map(|_| text)
    }

    /// A rate with its interval for another start: the rate's own uncertainty and the scatter between starts.
    ///
    /// # Formula
    /// `value·exp(±1.645·√(sd² + scatter²))`.
    pub fn rate(&self, name: RateName) -> Option<Rate> {
        let FittedRate { value, sd, identified } = *self.rates.get(&name)?;
        let factor = (SDS_OF_90_PCT * sd.hypot(self.scatter)).exp();
        let logs = if self.logs == 1 { "one log".to_owned() } else { format!("{} logs", self.logs) };
        let (source, origin) = match identified {
            true => (Source::Fitted, format!("{logs} of {} on {}", self.model, self.hardware)),
            false => (Source::Assumed, format!("not identified by {logs}")),
        };
        Some(Rate { value, lower: value / factor, upper: value * factor, source, origin })
    }

    /// Remarks if the rates were fitted on another model, GPU or kind of storage.
    pub fn remarks(&self, model: &str, hardware: &str, storage: Storage) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.model != model || self.hardware != hardware {
            remarks.push(format!(
                "the rates of {} were fitted on {} on {} and are carried over to {model} on {hardware}",
                self.name, self.model, self.hardware
            ));
        }
        if self.storage != storage {
            remarks.push(format!(
                "the rate of storage in {} is that of {}: the rate of {storage} is assumed",
                self.name, self.storage
            ));
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::Hardware;

    use super::*;
    use crate::cold_start::Rates;

    fn fitted() -> FittedRates {
        let rate = FittedRate { value: 2.5e9, sd: 0.06, identified: true };
        FittedRates {
            name: "a.toml".to_owned(),
            model: "llama-3.1-8b".to_owned(),
            hardware: "h100_sxm".to_owned(),
            storage: Storage::Nvme,
            logs: 3,
            scatter: 0.08,
            rates: BTreeMap::from([
                (RateName::StorageBytesPerS, rate),
                (RateName::InductorS, FittedRate { value: 20.0, sd: 0.7, identified: false }),
            ]),
        }
    }

    #[test]
    fn a_file_comes_back_to_the_bit() {
        let text = fitted().to_toml_string().unwrap();
        assert_eq!(FittedRates::from_toml_str("a.toml", &text).unwrap(), fitted());
    }

    #[test]
    fn an_interval_holds_the_rate_and_the_scatter() {
        let rate = fitted().rate(RateName::StorageBytesPerS).unwrap();
        // √(0.06² + 0.08²) = 0.1, and e^0.1645 = 1.1788.
        assert!((rate.upper / 2.5e9 - 1.1788).abs() < 1e-3, "{rate:?}");
        assert!((rate.lower * rate.upper / 2.5e9f64.powi(2) - 1.0).abs() < 1e-12);
        assert_eq!(rate.source, Source::Fitted);
        assert_eq!(fitted().rate(RateName::InductorS).unwrap().source, Source::Assumed);
        assert_eq!(fitted().rate(RateName::BuffersS), None);
    }

    #[test]
    fn a_fitted_rate_of_storage_keeps_kinds_in_their_order() {
        let hardware = Hardware::find("h100").unwrap();
        let mut fitted = fitted();
        let rates = |fitted: &FittedRates, storage| {
            Some(Rates::new(&hardware, storage, Some(fitted)).of(RateName::StorageBytesPerS).value)
        };
        fitted.rates.insert(RateName::StorageBytesPerS, FittedRate { value: 50e9, sd: 0.1, identified: true });
        let of_kinds = [Storage::Network, Storage::Nvme, Storage::PageCache].map(|storage| rates(&fitted, storage));
        assert_eq!(of_kinds, [Some(1e9), Some(50e9), Some(50e9)]);
        fitted.storage = Storage::PageCache;
        fitted.rates.insert(RateName::StorageBytesPerS, FittedRate { value: 2e9, sd: 0.1, identified: true });
        let of_kinds = [Storage::Network, Storage::Nvme, Storage::PageCache].map(|storage| rates(&fitted, storage));
        assert_eq!(of_kinds, [Some(1e9), Some(2e9), Some(2e9)]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_key_and_value() {
        let text = fitted().to_toml_string().unwrap();
        for (from, to, expected) in [
            ("value = 2500000000.0", "value = -1.0", "cold_start.storage_bytes_per_s.value = -1 must be from"),
            ("sd = 0.06", "sd = nan", "cold_start.storage_bytes_per_s.sd = NaN must be from 0 to 5"),
            ("storage = \"nvme\"", "storage = \"tape\"", "storage = 'tape' must be nvme, network or page-cache"),
            ("scatter = 0.08", "scatter = inf", "scatter = inf must be from 0 to 5"),
            ("cold_start.inductor_s", "cold_start.inductors", "cold_start.inductors is not known; there are storage_"),
            ("logs = 3", "logs = 3\nlog = 3", "log"),
        ] {
            assert!(text.contains(from), "{from} is not in {text}");
            let error = FittedRates::from_toml_str("a.toml", &text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains("a.toml") && error.contains(expected), "{error}");
        }
    }
}
