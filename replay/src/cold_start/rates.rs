//! The rates of a start, and those that are assumed, with wide intervals.

use std::fmt;
use std::str::FromStr;

use ridgepoint::Hardware;
use ridgepoint::units::GIGA;
use serde::{Deserialize, Serialize};

use super::term::{Seconds, Source};

/// Storage of the weights when the server starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Storage {
    /// A network file system or an object store.
    Network,
    /// A local NVMe disk.
    Nvme,
    /// The host's page cache, which an earlier start has filled.
    PageCache,
    /// Storage of a known rate, bytes per second.
    Given(f64),
}

impl Storage {
    /// The kinds from the slowest to the fastest.
    pub(super) const KINDS: [Storage; 3] = [Storage::Network, Storage::Nvme, Storage::PageCache];

    pub(super) fn speed(self) -> Option<usize> {
        Storage::KINDS.iter().position(|kind| *kind == self)
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::Network => f.pad("network"),
            Storage::Nvme => f.pad("nvme"),
            Storage::PageCache => f.pad("page-cache"),
            Storage::Given(bytes_per_s) => write!(f, "{} GB/s", bytes_per_s / GIGA),
        }
    }
}

impl FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Storage::KINDS.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| "must be nvme, network or page-cache".to_owned())
    }
}

/// The rates that a start depends on. Those in seconds are times of one process; all ranks start side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateName {
    /// Bytes per second at which all ranks together read the checkpoint.
    StorageBytesPerS,
    /// Bytes per second at which each rank copies its weights to its GPU.
    HostToDeviceBytesPerS,
    /// Seconds from the start of the server until its ranks begin to load: processes, imports, communicators.
    ProcessStartS,
    /// Seconds to make the model's modules and to process its weights after they were loaded.
    ModelInitS,
    /// Seconds per layer in which Dynamo traces the model.
    DynamoSPerLayer,
    /// Seconds in which Inductor compiles the traced graphs.
    InductorS,
    /// Seconds in which compiled graphs are read from the compile cache.
    CompileWarmS,
    /// Seconds per layer to capture a graph between attention calls.
    PiecewiseGraphSPerLayer,
    /// Seconds per layer to capture a graph of a whole step.
    FullGraphSPerLayer,
    /// Seconds to select, tune and load kernels.
    KernelWarmUpS,
    /// Seconds for the allocator, the workspaces and the first use of libraries in the profiling run.
    BuffersS,
    /// Seconds by which the first step after the start takes longer than later ones.
    FirstStepS,
}

impl RateName {
    /// All rates.
    pub const ALL: [RateName; 12] = [
        RateName::StorageBytesPerS,
        RateName::HostToDeviceBytesPerS,
        RateName::ProcessStartS,
        RateName::ModelInitS,
        RateName::DynamoSPerLayer,
        RateName::InductorS,
        RateName::CompileWarmS,
        RateName::PiecewiseGraphSPerLayer,
        RateName::FullGraphSPerLayer,
        RateName::KernelWarmUpS,
        RateName::BuffersS,
        RateName::FirstStepS,
    ];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            RateName::StorageBytesPerS => "storage_bytes_per_s",
            RateName::HostToDeviceBytesPerS => "host_to_device_bytes_per_s",
            RateName::ProcessStartS => "process_start_s",
            RateName::ModelInitS => "model_init_s",
            RateName::DynamoSPerLayer => "dynamo_s_per_layer",
            RateName::InductorS => "inductor_s",
            RateName::CompileWarmS => "compile_warm_s",
            RateName::PiecewiseGraphSPerLayer => "piecewise_graph_s_per_layer",
            RateName::FullGraphSPerLayer => "full_graph_s_per_layer",
            RateName::KernelWarmUpS => "kernel_warm_up_s",
            RateName::BuffersS => "buffers_s",
            RateName::FirstStepS => "first_step_s",
        }
    }

    /// The assumed rate and its origin.
    pub(super) fn assumed(self, hardware: &Hardware, storage: Storage) -> Rate {
        let assumed = |value, lower, upper, origin: &str| Rate {
            value,
            lower,
            upper,
            source: Source::Assumed,
            origin: origin.to_owned(),
        };
        match self {
            RateName::StorageBytesPerS => match storage {
                Storage::Given(bytes_per_s) => Rate {
                    source: Source::Physics,
                    ..assumed(bytes_per_s, bytes_per_s, bytes_per_s, "the rate that was given")
                },
                Storage::Network => {
                    assumed(GIGA, 0.2 * GIGA, 3.0 * GIGA, "a link of 10 to 25 Gbit/s, less where others share it")
                }
                Storage::Nvme => assumed(
                    3.0 * GIGA,
                    1.0 * GIGA,
                    7.0 * GIGA,
                    "page faults of a mapped file; disks on PCIe Gen4 read at most 7 GB/s",
                ),
                Storage::PageCache => assumed(
                    20.0 * GIGA,
                    8.0 * GIGA,
                    60.0 * GIGA,
                    "minor page faults of a mapped file, of several ranks or one",
                ),
            },
            RateName::HostToDeviceBytesPerS => {
                // A GPU whose link is not known is taken to have PCIe Gen5.
                let most = 0.8 * hardware.host_link.map_or(64.0 * GIGA, |link| link.unidirectional_bytes_per_s);
                let origin = "copies from pageable memory through a staging buffer; at most 80 % of the bus";
                assumed(8.0 * GIGA, 3.0 * GIGA, most.max(8.0 * GIGA), origin)
            }
            RateName::ProcessStartS => assumed(
                20.0,
                8.0,
                75.0,
                "logs of vLLM 0.32 on two cores without a GPU: 27 to 94 s, less on the cores of a GPU host",
            ),
            RateName::ModelInitS => assumed(1.5, 0.4, 8.0, "no GPU was measured; longer if weights are repacked"),
            RateName::DynamoSPerLayer => assumed(0.15, 0.05, 0.45, "no GPU was measured: 2 to 14 s for 32 layers"),
            RateName::InductorS => assumed(
                20.0,
                6.0,
                60.0,
                "logs of vLLM 0.32 on two cores, with Dynamo's share: 18 to 42 s; no GPU was measured",
            ),
            RateName::CompileWarmS => assumed(4.0, 1.0, 15.0, "no GPU was measured"),
            RateName::PiecewiseGraphSPerLayer | RateName::FullGraphSPerLayer => assumed(
                2.5e-3,
                0.8e-3,
                7.5e-3,
                "vLLM's remark that capturing usually takes 5 to 20 s (gpu_model_runner.py), spread over 86 graphs of 32 \
                 layers and widened downwards",
            ),
            RateName::KernelWarmUpS => assumed(
                2.0,
                0.3,
                20.0,
                "no GPU was measured; vLLM remarks that DeepGEMM's kernels alone take a couple of minutes (envs.py)",
            ),
            RateName::BuffersS => assumed(1.5, 0.3, 6.0, "no GPU was measured"),
            RateName::FirstStepS => {
                assumed(0.2, 0.02, 2.0, "no GPU was measured; kernels that the warm-up did not meet")
            }
        }
    }
}

/// A rate with its 90 % interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// The rate.
    pub value: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
    /// Its source.
    pub source: Source,
    /// Its origin, in words.
    pub origin: String,
}

impl Rate {
    /// The time of `work` at a rate per second.
    pub fn time_of(&self, work: f64) -> Seconds {
        Seconds { estimate_s: work / self.value, lower_s: work / self.upper, upper_s: work / self.lower }
    }

    /// The time of `count` pieces at a rate in seconds for each.
    pub fn times(&self, count: f64) -> Seconds {
        Seconds { estimate_s: count * self.value, lower_s: count * self.lower, upper_s: count * self.upper }
    }

    /// The larger or the smaller of two rates, end by end.
    pub(super) fn combined(self, other: &Rate, choose: fn(f64, f64) -> f64) -> Rate {
        Rate {
            value: choose(self.value, other.value),
            lower: choose(self.lower, other.lower),
            upper: choose(self.upper, other.upper),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_storage_come_back() {
        for storage in Storage::KINDS {
            assert_eq!(storage.to_string().parse(), Ok(storage));
        }
        assert_eq!(Storage::Given(7e9).to_string(), "7 GB/s");
        assert!("tape".parse::<Storage>().is_err());
    }
}
