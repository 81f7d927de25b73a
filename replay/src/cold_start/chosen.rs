//! The rates that a start takes: fitted ones in the place of assumed ones. Uses `rates`, `file`.
#![expect(clippy::indexing_slicing, reason = "there is a rate for every name")]

use ridgepoint::Hardware;

use super::file::FittedRates;
use super::rates::{Rate, RateName, Storage};

/// The rates of a start on one kind of storage and GPU.
#[derive(Debug, Clone)]
pub struct Rates {
    storage: Storage,
    rates: [Rate; RateName::ALL.len()],
}

impl Rates {
    /// Takes fitted rates and assumes those that were not fitted. A fitted rate of storage holds for the kind of storage that it was
    /// fitted on. Other kinds take assumed rates, clamped so that a slower kind is never predicted to be faster than the fitted one.
    pub fn new(hardware: &Hardware, storage: Storage, fitted: Option<&FittedRates>) -> Self {
        let rate = |name: RateName| {
            let assumed = name.assumed(hardware, storage);
            let Some((fitted, found)) = fitted.and_then(|fitted| Some((fitted, fitted.rate(name)?))) else {
                return assumed;
            };
            if name != RateName::StorageBytesPerS || fitted.storage == storage {
                return found;
            }
            match (storage.speed(), fitted.storage.speed()) {
                (Some(own), Some(other)) if own > other => assumed.combined(&found, f64::max),
                (Some(own), Some(other)) if own < other => assumed.combined(&found, f64::min),
                _ => assumed,
            }
        };
        Rates { storage, rates: RateName::ALL.map(rate) }
    }

    /// The kind of storage.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// A rate by its name.
    pub fn of(&self, name: RateName) -> &Rate {
        &self.rates[name as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_assumed_rate_lies_within_its_interval_and_in_its_place() {
        for gpu in ["a100", "h100", "l40s", "b200"] {
            let hardware = Hardware::find(gpu).unwrap();
            for storage in Storage::KINDS {
                let rates = Rates::new(&hardware, storage, None);
                for (at, name) in RateName::ALL.into_iter().enumerate() {
                    let Rate { value, lower, upper, .. } = rates.of(name);
                    assert!(
                        0.0 < *lower && lower < value && value < upper,
                        "{gpu} {} {lower} {value} {upper}",
                        name.name()
                    );
                    assert_eq!(name as usize, at);
                }
            }
        }
    }
}
