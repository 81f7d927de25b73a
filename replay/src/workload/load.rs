//! The loads of a replay: a file, or requests generated from a few numbers, shared out over replicas.

use std::path::PathBuf;

use ridgepoint::{Error, Result};
use serde::Deserialize;

use super::lengths::lockstep;
use super::profile::Profile;
use super::requests::{Format, RequestFile};
use super::sessions::{GeneratedSessions, SessionShape, SessionStarts};
use super::{ArrivalPattern, ClosedLoop, NormalLengths, OpenLoop, ReplicaShare, RequestShape, Summary, Workload};

/// A load by its source. [`Load::open`] reads or generates it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
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
    },
    /// A closed loop: a fixed number of requests in flight.
    ClosedLoop {
        /// Requests in flight.
        concurrency: u32,
        /// Prompt tokens of each request.
        input_len: u32,
        /// Generated tokens of each request.
        output_len: u32,
        /// Number of requests.
        num_requests: u64,
    },
    /// An open loop: requests at random times.
    OpenLoop {
        /// Mean rate.
        requests_per_s: f64,
        /// Prompt tokens of each request.
        input_len: u32,
        /// Generated tokens of each request.
        output_len: u32,
        /// Number of requests.
        num_requests: u64,
        /// Shape of the gamma distribution of arrival gaps; 1 is Poisson.
        burstiness: f64,
    },
    /// Sessions of several turns, each of which continues the one before: at random times, or a fixed number of them at once. One of
    /// `sessions_per_s` and `concurrency` is given.
    Sessions {
        /// Mean rate of starts.
        sessions_per_s: Option<f64>,
        /// Sessions in progress.
        concurrency: Option<u32>,
        /// Number of sessions.
        num_sessions: u64,
        /// Turns of each session; sessions of one turn share the prefix alone.
        turns: u32,
        /// Tokens at the beginning of every prompt, the same in all sessions.
        #[serde(default)]
        prefix_len: u32,
        /// New prompt tokens of each turn, behind the prefix and the turns before.
        input_len: u32,
        /// Generated tokens of each turn.
        output_len: u32,
        /// Mean of the exponential time between the end of a turn and the next, s.
        #[serde(default)]
        think_time_s: f64,
        /// Shape of the gamma distribution of gaps between starts; 1, the default, is Poisson.
        burstiness: Option<f64>,
    },
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

    /// The share of a list of requests that one of `replicas` replicas gets.
    ///
    /// # Errors
    /// A share without requests, and those of `check`, which gets its number of requests.
    pub fn of_requests(file: RequestFile, replicas: u32, check: &dyn Fn(u64) -> Result<()>) -> Result<Self> {
        let share = ReplicaShare::new(replicas);
        let list = share.list(file.list().clone())?;
        check(list.num_requests())?;
        let (summary, notes) =
            (list.summary(), file.notes.into_iter().chain(share.note_on_figures(None, None)).collect());
        Ok(OpenedLoad { workload: list.workload(), name: file.origin, summary, notes })
    }
}

impl Load {
    /// Reads or generates the load, and takes the share of one of `replicas` data-parallel replicas. A profile cannot be
    /// shared out; its notes say so.
    ///
    /// # Errors
    /// Those of [`Profile::read`], [`RequestFile::read`], [`ClosedLoop::new`], [`OpenLoop::new`] and [`GeneratedSessions::new`].
    pub fn open(&self, seed: u64, replicas: u32) -> Result<OpenedLoad> {
        self.open_if(seed, replicas, &|_| Ok(()))
    }

    /// Does the same if `check` allows the number of requests, which it gets before any is drawn.
    ///
    /// # Errors
    /// Those of [`Load::open`] and of `check`.
    pub fn open_if(&self, seed: u64, replicas: u32, check: &dyn Fn(u64) -> Result<()>) -> Result<OpenedLoad> {
        let share = ReplicaShare::new(replicas);
        let opened = |name, workload, summary, notes| Ok(OpenedLoad { workload, name, summary, notes });
        match self {
            Load::Profile { path } => OpenedLoad::of_profile(Profile::read(path)?, seed, replicas, check),
            Load::RequestFile { path, format } => {
                OpenedLoad::of_requests(RequestFile::read(path, *format)?, replicas, check)
            }
            Load::ClosedLoop { concurrency, input_len, output_len, num_requests } => {
                let own = share.concurrency(*concurrency);
                let shape = RequestShape::new(*input_len, *output_len);
                let closed = ClosedLoop::new(own, share.requests(*num_requests), shape)?;
                check(share.requests(*num_requests))?;
                let of = if own == *concurrency { String::new() } else { format!(" of {concurrency}") };
                let note = share.note_on_figures(None, Some(*concurrency));
                let lengths = [input_len, output_len].map(|tokens| NormalLengths::fixed(*tokens));
                let lockstep = lockstep(own, lengths.each_ref(), 0.0);
                let (summary, notes) = (closed.summary(), note.into_iter().chain(lockstep).collect());
                opened(format!("{own}{of} in flight"), Box::new(closed), summary, notes)
            }
            Load::OpenLoop { requests_per_s, input_len, output_len, num_requests, burstiness } => {
                let pattern = ArrivalPattern::of_burstiness(*burstiness);
                let own = share.rate_per_s(*requests_per_s);
                let shape = RequestShape::new(*input_len, *output_len);
                let open = OpenLoop::new(pattern, own, share.requests(*num_requests), shape, seed)?;
                check(share.requests(*num_requests))?;
                let (summary, note) = (open.summary(), share.note_on_figures(Some(*requests_per_s), None));
                let name = match note {
                    None => format!("{requests_per_s} requests/s"),
                    Some(_) => format!("{own} of {requests_per_s} requests/s per replica"),
                };
                opened(name, Box::new(open), summary, note.into_iter().collect())
            }
            Load::Sessions {
                sessions_per_s,
                concurrency,
                num_sessions,
                turns,
                prefix_len,
                input_len,
                output_len,
                think_time_s,
                burstiness,
            } => {
                let (starts, when) = session_starts(*sessions_per_s, *concurrency, *burstiness, share)?;
                let name = format!("{}, {when}", if *turns > 1 { "sessions" } else { "requests with a shared prefix" });
                let shape = SessionShape {
                    turns: *turns,
                    prefix_len: *prefix_len,
                    input: NormalLengths::fixed(*input_len),
                    output: NormalLengths::fixed(*output_len),
                    think_time_s: *think_time_s,
                };
                let sessions = GeneratedSessions::new(starts, share.requests(*num_sessions), shape, seed)?;
                let summary = sessions.summary();
                check(summary.requests as u64)?;
                let note = share.note_on_figures(None, None);
                let notes = note.into_iter().chain(sessions.lockstep());
                opened(name, Box::new(sessions.workload()), summary, notes.collect())
            }
        }
    }
}

/// When the sessions of one replica start, with the number of them that says when as text.
fn session_starts(
    sessions_per_s: Option<f64>,
    concurrency: Option<u32>,
    burstiness: Option<f64>,
    share: ReplicaShare,
) -> Result<(SessionStarts, String)> {
    match (sessions_per_s, concurrency) {
        (Some(total_per_s), None) => {
            let pattern = ArrivalPattern::of_burstiness(burstiness.unwrap_or(1.0));
            let per_s = share.rate_per_s(total_per_s);
            let of = if share.is_whole() { String::new() } else { format!(" of {total_per_s}") };
            Ok((SessionStarts::Rate { pattern, per_s }, format!("{per_s}{of} per second")))
        }
        (None, Some(total)) => {
            if let Some(burstiness) = burstiness {
                let problem = format!(
                    "burstiness = {burstiness} has no place beside concurrency, which starts a session when another one ends"
                );
                return Err(Error::invalid("load", vec![problem]));
            }
            let own = share.concurrency(total);
            let of = if own == total { String::new() } else { format!(" of {total}") };
            Ok((SessionStarts::Concurrency(own), format!("{own}{of} at once")))
        }
        _ => {
            let problem = "sessions start at a rate (sessions_per_s), or a fixed number of them is in progress (concurrency): give one";
            Err(Error::invalid("load", vec![problem.to_owned()]))
        }
    }
}
