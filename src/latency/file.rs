//! The file of a fitted black box (TOML): written by a fit, read back strictly. Uses `black_box`, `input`, `error`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::BlackBox;
use crate::error::{Error, Result};
use crate::input::{FileKind, read_text};

/// Largest coefficient, µs: 10 s. Even one such delay per token of the longest prompt does not overflow the clock.
const MAX_US: f64 = 1e7;

/// A black box with what it was fitted on, and a line through waits in the queue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedBlackBox {
    /// How it was fitted: `ridge` or `lasso`.
    pub method: String,
    /// The measurements, in words.
    pub data: String,
    /// Short name of the model.
    pub model: String,
    /// Short name of the GPU.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Steps that were fitted.
    pub rows: u64,
    /// The delays.
    pub black_box: BlackBox,
    /// The line through waits in the queue: `intercept` and coefficients by column, ms. A replay's waits follow from its steps and
    /// scheduler instead, and no [`LatencyModel`](super::LatencyModel) sees the queue.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_wait_ms: BTreeMap<String, f64>,
}

impl FittedBlackBox {
    /// Reads a file.
    ///
    /// # Errors
    /// `ErrorKind::Io`; `ErrorKind::Parse` for text that is not TOML or has other keys; `ErrorKind::Invalid` with every coefficient
    /// out of its range.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_toml_str(&path.display().to_string(), &read_text(FileKind::LatencyModel, path)?)
    }

    /// Reads the text of a file that is called `origin` in errors.
    ///
    /// # Errors
    /// Those of [`FittedBlackBox::load`], except `ErrorKind::Io`.
    ///
    /// ```
    /// use ridgepoint::latency::FittedBlackBox;
    /// let text = "method = 'ridge'\ndata = 'a'\nmodel = 'b'\nhardware = 'c'\ntensor_parallel_size = 1\nrows = 9\n\
    ///     [black_box]\nbeta0_us = 5000.0\nbeta1_us = -3.0";
    /// let error = FittedBlackBox::from_toml_str("line.toml", text).unwrap_err();
    /// assert!(error.to_string().contains("black_box.beta1_us = -3 must be from 0 to 10000000"), "{error}");
    /// ```
    pub fn from_toml_str(origin: &str, text: &str) -> Result<Self> {
        let file: Self =
            toml::from_str(text).map_err(|error| Error::parse(origin, error.to_string().trim().to_owned()))?;
        let mut problems = Vec::new();
        for (key, value) in file.black_box.by_key() {
            if !(0.0..=MAX_US).contains(&value) {
                problems.push(format!("black_box.{key} = {value} must be from 0 to {MAX_US}"));
            }
        }
        for (key, value) in &file.queue_wait_ms {
            if !value.is_finite() {
                problems.push(format!("queue_wait_ms.{key} = {value} must be a finite number"));
            }
        }
        if problems.is_empty() { Ok(file) } else { Err(Error::invalid(origin, problems)) }
    }

    /// The text of the file: equal black boxes give equal bytes.
    ///
    /// # Errors
    /// Those of [`FittedBlackBox::from_toml_str`]: what is written can be read.
    pub fn to_toml_string(&self) -> Result<String> {
        let text = toml::to_string(self).map_err(|error| Error::parse("black box", error.to_string()))?;
        Self::from_toml_str("black box", &text).map(|_| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted() -> FittedBlackBox {
        FittedBlackBox {
            method: "lasso".to_owned(),
            data: "a trace".to_owned(),
            model: "llama-3.1-8b".to_owned(),
            hardware: "h100_sxm".to_owned(),
            tensor_parallel_size: 1,
            rows: 600,
            black_box: BlackBox { beta0_us: 5000.125, alpha0_us: 3000.0, ..BlackBox::default() }.with_prices([
                10.0,
                0.1 + 0.2,
                0.0,
                1e-7,
                2e-9,
                0.5,
            ]),
            queue_wait_ms: BTreeMap::from([("intercept".to_owned(), 0.25), ("queue_depth".to_owned(), -1.5)]),
        }
    }

    #[test]
    fn a_file_comes_back_to_the_bit() {
        let text = fitted().to_toml_string().unwrap();
        assert_eq!(FittedBlackBox::from_toml_str("a.toml", &text).unwrap(), fitted());
    }

    #[test]
    fn what_cannot_be_is_refused_with_key_and_value() {
        let text = fitted().to_toml_string().unwrap();
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} is not in {text}");
            FittedBlackBox::from_toml_str("a.toml", &text.replace(from, to)).unwrap_err().to_string()
        };
        for (from, to, expected) in [
            ("beta1_us = 10.0", "beta1_us = nan", "black_box.beta1_us = NaN must be"),
            ("beta1_us = 10.0", "beta1_us = 1e300", "black_box.beta1_us = 1000"),
            ("squared_request_us = 0.5", "squared_request_us = -0.5", "black_box.squared_request_us = -0.5 must be"),
            ("queue_depth = -1.5", "queue_depth = inf", "queue_wait_ms.queue_depth = inf must be"),
            ("beta1_us = 10.0", "beta9_us = 10.0", "beta9_us"),
            ("rows = 600", "rows = -1", "rows"),
            ("method = \"lasso\"\n", "", "method"),
        ] {
            let error = refused(from, to);
            assert!(error.contains("a.toml") && error.contains(expected), "{error}");
        }
        assert!(fitted_with_nan().to_toml_string().is_err(), "what could not be read is not written");
    }

    fn fitted_with_nan() -> FittedBlackBox {
        FittedBlackBox { black_box: BlackBox { beta0_us: f64::NAN, ..BlackBox::default() }, ..fitted() }
    }
}
