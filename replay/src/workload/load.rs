//! The loads of a replay: a file, or requests generated from a few numbers, shared out over replicas.

use std::path::PathBuf;

use ridgepoint::Result;

use super::generated_load::GeneratedLoad;
use super::profile::Profile;
use super::requests::{Format, RequestFile};
use super::{ReplicaShare, Summary, Workload};

/// A load by its source. [`Load::open`] reads or generates it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Load {
    /// A profile of the load generator inference-perf.
    Profile {
        /// Path of the file.
        path: PathBuf,
    },
    /// A list of requests.
    RequestFile {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file; `None` detects it from the content.
        format: Option<Format>,
        /// The rate, burstiness or concurrency at which a list without arrivals is sent; nothing else of it counts.
        sent: GeneratedLoad,
    },
    /// Requests or sessions of a few numbers.
    Generated(GeneratedLoad),
}

/// A load that is ready to be replayed.
pub struct OpenedLoad {
    /// The requests.
    pub workload: Box<dyn Workload + Send>,
    /// Name of the load: its file, or its rate or concurrency.
    pub name: String,
    /// Summary of the requests.
    pub summary: Summary,
    /// Remarks of the file, and on the replayed share.
    pub notes: Vec<String>,
}

impl OpenedLoad {
    /// The load of a profile that was read. Its notes say so if it cannot be shared out to `replicas`.
    ///
    /// # Errors
    /// Those of `check`, which gets the number of requests before any is drawn.
    pub fn of_profile(
        mut profile: Profile,
        seed: u64,
        replicas: u32,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Self> {
        let unshared = "a profile cannot be shared out to replicas: one of them is replayed, with all of the load";
        profile.notes.extend((replicas > 1).then(|| unshared.to_owned()));
        check(profile.num_requests())?;
        let (workload, summary) = (profile.workload(seed), profile.summary(seed));
        Ok(OpenedLoad { workload, name: profile.origin, summary, notes: profile.notes })
    }

    /// The share of a list of requests that one of `replicas` replicas gets. A list without arrivals is sent as `sent` says, drawn from
    /// `seed`.
    ///
    /// # Errors
    /// A share without requests, and those of `check`, which gets its number of requests; a list without arrivals that is given neither a
    /// rate nor a concurrency; a list with arrivals that is given one.
    pub fn of_requests(
        file: RequestFile,
        sent: &GeneratedLoad,
        seed: u64,
        replicas: u32,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Self> {
        file.check_sent(sent)?;
        let share = ReplicaShare::new(replicas);
        let list = share.list(file.list().clone())?;
        check(list.num_requests())?;
        let workload = if file.lacks_arrivals { list.sent_as(sent, share, seed)? } else { list.workload() };
        let name = match (sent.request_rate, sent.concurrency) {
            (Some(rate), _) => format!("{}, {rate} per second", file.origin),
            (_, Some(at_once)) => format!("{}, {at_once} at once", file.origin),
            _ => file.origin,
        };
        let note = share.note_on_figures(sent.request_rate, sent.concurrency);
        Ok(OpenedLoad { workload, name, summary: list.summary(), notes: file.notes.into_iter().chain(note).collect() })
    }
}

impl Load {
    /// Reads or generates the load, and takes the share of one of `replicas` data-parallel replicas. A profile cannot be
    /// shared out; its notes say so.
    ///
    /// # Errors
    /// Those of [`Profile::read`], [`RequestFile::read`], and [`GeneratedLoad::workload`].
    pub fn open(&self, seed: u64, replicas: u32) -> Result<OpenedLoad> {
        self.open_if(seed, replicas, &|_| Ok(()))
    }

    /// Does the same if `check` allows the number of requests, which it gets before any is drawn.
    ///
    /// # Errors
    /// Those of [`Load::open`] and of `check`.
    pub fn open_if(&self, seed: u64, replicas: u32, check: &dyn Fn(u64) -> Result<()>) -> Result<OpenedLoad> {
        match self {
            Load::Profile { path } => OpenedLoad::of_profile(Profile::read(path)?, seed, replicas, check),
            Load::RequestFile { path, format, sent } => OpenedLoad::of_requests(
                RequestFile::read_if(path, *format, replicas, check)?,
                sent,
                seed,
                replicas,
                check,
            ),
            Load::Generated(load) => load.open(seed, ReplicaShare::new(replicas), check),
        }
    }
}
