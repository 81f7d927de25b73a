//! The load of a replay: its flags, and the workload that they ask for.

use clap::{ArgGroup, Args};
use ridgepoint::arguments::Argument;
use ridgepoint_replay::export::BenchRun;
use ridgepoint_replay::workload::{GeneratedLoad, Load, ReplicaShare, load_arguments};

use crate::flags::{FlagRows, Flags};
use crate::outcome::Failure;

/// The arguments of a load.
#[derive(Debug, Clone)]
pub struct OfLoad;

impl FlagRows for OfLoad {
    fn rows() -> Vec<&'static Argument> {
        load_arguments().iter().collect()
    }
}

/// The load that clients send.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("load").required(true).multiple(true).args(["profile", "requests", "concurrency", "request_rate"]))]
pub struct LoadArgs {
    #[command(flatten)]
    flags: Flags<OfLoad>,
}

/// A load as the command line gives it.
pub struct GivenLoad {
    /// The load.
    pub load: Load,
    /// Seed of everything random.
    pub seed: u64,
}

impl LoadArgs {
    /// Reads the load.
    ///
    /// # Errors
    /// Numbers out of range or that do not go together.
    pub fn read(&self) -> Result<GivenLoad, Failure> {
        let given = load_arguments().read_all("the command line", &self.flags.given)?;
        let path = |name: &str| given.get::<std::path::PathBuf>(name);
        let load = match (path("profile"), path("requests")) {
            (Some(path), _) => Load::Profile { path },
            (None, Some(path)) => {
                let format = given.get("requests_format");
                Load::RequestFile { path, format, sent: GeneratedLoad::from_given(&given) }
            }
            (None, None) => Load::Generated(GeneratedLoad::from_given(&given)),
        };
        Ok(GivenLoad { load, seed: given.get("seed").unwrap_or(0) })
    }
}

impl GivenLoad {
    /// The benchmark's arguments in vLLM's result file, for one of `replicas` replicas.
    pub fn bench_run<'a>(&self, model: &'a str, replicas: u32) -> BenchRun<'a> {
        let own = BenchRun { model_id: model, ..BenchRun::default() };
        let (Load::Generated(load) | Load::RequestFile { sent: load, .. }) = &self.load else { return own };
        let share = ReplicaShare::new(replicas);
        let turns = f64::from(load.turns.unwrap_or(1));
        BenchRun {
            request_rate: load.request_rate.map(|rate| share.rate_per_s(rate) * turns),
            burstiness: load.request_rate.map(|_| load.burstiness.unwrap_or(1.0)),
            max_concurrency: load.concurrency.map(|concurrency| share.concurrency(concurrency)),
            ..own
        }
    }
}
