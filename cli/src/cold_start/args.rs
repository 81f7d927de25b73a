//! The arguments of a start, which `cold-start` and `simulate --cold` share.

use std::path::Path;

use clap::Args;
use ridgepoint::{Hardware, Model};
use ridgepoint_replay::cold_start::{CompileCache, FittedRates, Rates, Storage};

use crate::common::{number_in, one_of};
use crate::outcome::Failure;

const START: &str = "Start of the server";
const BYTES_PER_GB: f64 = 1e9;

/// What a start finds on its host.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Where the weights lie: network, nvme or page-cache [default: that of the fitted rates, else nvme]
    #[arg(long, value_name = "KIND", value_parser = one_of(KINDS), help_heading = START)]
    storage: Option<Storage>,
    /// Rate at which all ranks together read the weights, GB/s
    #[arg(long, value_name = "RATE", value_parser = number_in(1e-3..=1e5), allow_negative_numbers = true, help_heading = START)]
    #[arg(conflicts_with = "storage")]
    pub storage_gb_s: Option<f64>,
    /// vLLM's compile cache: cold, or warm from an earlier start [default: cold]
    #[arg(long, value_name = "STATE", value_parser = one_of(CACHES), help_heading = START)]
    compile_cache: Option<CompileCache>,
}

const KINDS: [(&str, &str, Storage); 3] = [
    ("network", "A network file system or an object store", Storage::Network),
    ("nvme", "A local NVMe disk", Storage::Nvme),
    ("page-cache", "The host's page cache, which an earlier start has filled", Storage::PageCache),
];

const CACHES: [(&str, &str, CompileCache); 2] = [
    ("cold", "The model is traced and compiled", CompileCache::Cold),
    ("warm", "Compiled graphs are loaded", CompileCache::Warm),
];

/// The rates of a start, with remarks on them.
pub struct OpenedRates {
    pub rates: Rates,
    /// The file that they were read from.
    pub fitted: Option<FittedRates>,
    pub notes: Vec<String>,
}

impl StartArgs {
    /// Whether any of them was given.
    pub fn is_given(&self) -> bool {
        self.storage.is_some() || self.storage_gb_s.is_some() || self.compile_cache.is_some()
    }

    pub fn compile_cache(&self) -> CompileCache {
        self.compile_cache.unwrap_or_default()
    }

    /// Takes the rates of a file, and assumes the others.
    ///
    /// # Errors
    /// A file that cannot be read or is at fault.
    pub fn rates(&self, file: Option<&Path>, model: &Model, hardware: &Hardware) -> Result<OpenedRates, Failure> {
        let fitted = file.map(FittedRates::load).transpose()?;
        let given = self.storage_gb_s.map(|rate| Storage::Given(rate * BYTES_PER_GB)).or(self.storage);
        let storage = given.or_else(|| Some(fitted.as_ref()?.storage)).unwrap_or(Storage::Nvme);
        let notes = fitted.as_ref().map(|fitted| fitted.remarks(&model.name, &hardware.name, storage));
        let rates = Rates::new(hardware, storage, fitted.as_ref());
        Ok(OpenedRates { rates, fitted, notes: notes.unwrap_or_default() })
    }
}
