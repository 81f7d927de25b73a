//! The loads of a grid, and the share of them that one replica of a server gets.
use std::sync::Arc;

use ridgepoint::Result;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::RequestFile;
use ridgepoint_replay::workload::{GeneratedLoad, ReplicaShare, Summary, Workload};

/// One load of a grid. With limits and neither rate nor concurrency, the highest rate is searched; without limits, the requests of a
/// file are sent at the times that it has, or scaled to the rate. Rate and concurrency are those of the whole server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// Its numbers; lengths and counts are absent for the requests of a file.
    pub generated: GeneratedLoad,
    /// Seed of arrival times and lengths.
    pub seed: u64,
}

impl LoadPoint {
    /// The load at a rate, requests per second, or with so many requests in flight where it has a concurrency; with the rate, if it is one.
    pub(super) fn sent_at(&self, amount: f64) -> (Self, Option<f64>) {
        match self.generated.concurrency {
            None => (*self, Some(amount)),
            Some(_) => (self.of_users(amount), None),
        }
    }

    /// The load of so many users, each of whom waits for an answer before the next request.
    pub(super) fn of_users(&self, users: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast that saturates")]
        let concurrency = Some(users.round().max(1.0) as u32);
        LoadPoint { generated: GeneratedLoad { concurrency, ..self.generated }, ..*self }
    }

    /// The load with another number of requests, those of all turns; a file is as long as it is.
    pub(super) fn with_requests(&self, number: impl FnOnce(u64) -> u64) -> Self {
        let turns = u64::from(self.generated.turns.unwrap_or(1));
        let count = Some(number(self.generated.total_requests()).div_ceil(turns));
        let generated = match self.generated.num_sessions {
            Some(_) => GeneratedLoad { num_sessions: count, ..self.generated },
            None => GeneratedLoad { num_requests: count, ..self.generated },
        };
        LoadPoint { generated, ..*self }
    }
}

/// Where the requests of all loads of a grid come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Generated as each load says.
    Generated,
    /// A list of requests.
    Requests(Arc<RequestFile>),
    /// A profile of inference-perf.
    Profile(Arc<Profile>),
}

impl Source {
    /// The path of the file, if there is one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Source::Generated => None,
            Source::Requests(file) => Some(&file.origin),
            Source::Profile(profile) => Some(&profile.origin),
        }
    }

    /// The number of requests of a load, without drawing them.
    pub(super) fn num_requests(&self, load: &LoadPoint) -> u64 {
        match self {
            Source::Generated => load.generated.total_requests(),
            Source::Requests(file) => file.list().num_requests(),
            Source::Profile(profile) => profile.num_requests(),
        }
    }

    /// Whether another seed sends other requests.
    pub(super) fn is_drawn(&self) -> bool {
        matches!(self, Source::Generated)
    }

    /// Whether the requests are those of a list without arrivals, whose times are drawn from the seed.
    pub(super) fn lacks_arrivals(&self) -> bool {
        matches!(self, Source::Requests(file) if file.lacks_arrivals)
    }

    /// Remarks on the file.
    pub fn notes(&self) -> &[String] {
        match self {
            Source::Generated => &[],
            Source::Requests(file) => &file.notes,
            Source::Profile(profile) => &profile.notes,
        }
    }

    /// One replica's share of a load. `rate_per_s` is that of the whole server, if there is one. The same seed sends the same requests
    /// at any rate, only closer together.
    ///
    /// # Errors
    /// Loads that last too long.
    pub fn workload(
        &self,
        load: &LoadPoint,
        rate_per_s: Option<f64>,
        share: ReplicaShare,
    ) -> Result<Box<dyn Workload>> {
        let sent = GeneratedLoad { request_rate: rate_per_s.or(load.generated.request_rate), ..load.generated };
        match self {
            Source::Generated => Ok(sent.workload(share, load.seed)?),
            Source::Requests(file) if file.lacks_arrivals => {
                Ok(share.list(file.list().clone())?.sent_as(&sent, share, load.seed)?)
            }
            Source::Requests(file) => {
                let list = file.list();
                let stretch = rate_per_s.zip(list.mean_rate_per_s()).map(|(rate, own)| own / rate);
                let list = share.list(list.clone())?;
                Ok(match stretch {
                    None => list.workload(),
                    Some(stretch) => list.stretched(stretch)?.workload(),
                })
            }
            Source::Profile(profile) => Ok(profile.workload(load.seed)),
        }
    }

    /// A load in a few figures.
    pub(super) fn summary(&self, load: &LoadPoint) -> Summary {
        let mut summary = match self {
            Source::Generated => {
                let (mean_input_tokens, mean_output_tokens, num_requests) = self.shape(load);
                let requests = usize::try_from(num_requests).unwrap_or(usize::MAX);
                Summary { requests, mean_input_tokens, mean_output_tokens, ..Summary::default() }
            }
            Source::Requests(file) => file.summary(),
            Source::Profile(profile) => profile.summary(load.seed),
        };
        let GeneratedLoad { turns, prefix_len, .. } = load.generated;
        if load.generated.has_sessions() {
            // Each turn has the turns before it.
            let of_turn = summary.mean_input_tokens + summary.mean_output_tokens;
            summary.mean_input_tokens +=
                f64::from(prefix_len.unwrap_or(0)) + of_turn * f64::from(turns.unwrap_or(1)) / 2.0;
            summary.sessions = usize::try_from(load.generated.count()).ok();
        }
        summary
    }

    /// Mean prompt tokens, mean output tokens and number of requests of a load.
    pub fn shape(&self, load: &LoadPoint) -> (f64, f64, u64) {
        let summary = match self {
            Source::Generated => {
                let GeneratedLoad { input_len, output_len, .. } = load.generated;
                let [input, output] = [input_len, output_len].map(|of| of.map_or(0.0, |of| of.mean));
                return (input, output, load.generated.total_requests());
            }
            Source::Requests(file) => file.summary(),
            Source::Profile(profile) => profile.summary(load.seed),
        };
        (summary.mean_input_tokens, summary.mean_output_tokens, summary.requests as u64)
    }
}
