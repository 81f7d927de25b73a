//! The loads of a grid, and the share of them that one replica of a server gets.
use std::sync::Arc;

use ridgepoint::Result;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::RequestFile;
use ridgepoint_replay::workload::{
    ArrivalPattern, ClosedLoop, GeneratedSessions, NormalLengths, OpenLoop, ReplicaShare, RequestShape, SessionShape,
    SessionStarts, Summary, Workload,
};

/// One load of a grid. With limits and neither rate nor concurrency, the highest rate is searched; without limits, the requests of a
/// file are sent at the times that it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// Rate over the whole server, requests/s.
    pub rate_per_s: Option<f64>,
    /// Requests in flight over the whole server.
    pub concurrency: Option<u32>,
    /// Shape of the gamma distribution of gaps; 1 is Poisson.
    pub burstiness: f64,
    /// Lengths of prompt and output; `None` for the requests of a file.
    pub lengths: Option<(NormalLengths, NormalLengths)>,
    /// Number of requests, or of sessions if there is a session; `None` for the requests of a file.
    pub num_requests: Option<u64>,
    /// The turns of sessions, if requests continue each other or share a prefix. Rate and concurrency are then those of sessions.
    pub session: Option<SessionPoint>,
    /// Seed of arrival times and lengths.
    pub seed: u64,
}

/// What generated sessions have beside lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionPoint {
    /// Turns of each session.
    pub turns: u32,
    /// Tokens that all prompts begin with.
    pub prefix_len_tokens: u32,
    /// Mean time between two turns, s.
    pub think_time_s: f64,
}

impl LoadPoint {
    /// The turns of the sessions.
    fn shape(&self) -> Option<SessionShape> {
        let (SessionPoint { turns, prefix_len_tokens, think_time_s }, (input, output)) =
            self.session.zip(self.lengths)?;
        Some(SessionShape { turns, prefix_len: prefix_len_tokens, input, output, think_time_s })
    }

    /// The number of generated requests.
    fn num_generated(&self) -> u64 {
        let turns = self.session.map_or(1, |session| u64::from(session.turns));
        self.num_requests.unwrap_or(0).saturating_mul(turns)
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
            Source::Generated => load.num_generated(),
            Source::Requests(file) => file.list().num_requests(),
            Source::Profile(profile) => profile.num_requests(),
        }
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
        match self {
            Source::Generated => generated(load, rate_per_s, share),
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
        if let Some(session) = load.session {
            // Each turn has the turns before it.
            let of_turn = summary.mean_input_tokens + summary.mean_output_tokens;
            summary.mean_input_tokens +=
                f64::from(session.prefix_len_tokens) + of_turn * f64::from(session.turns) / 2.0;
            summary.sessions = usize::try_from(load.num_requests.unwrap_or(0)).ok();
        }
        summary
    }

    /// Mean prompt tokens, mean output tokens and number of requests of a load.
    pub fn shape(&self, load: &LoadPoint) -> (f64, f64, u64) {
        let summary = match self {
            Source::Generated => {
                let mean = |of: Option<NormalLengths>| of.map_or(0.0, |of| of.mean);
                let (input, output) = load.lengths.unzip();
                return (mean(input), mean(output), load.num_generated());
            }
            Source::Requests(file) => file.summary(),
            Source::Profile(profile) => profile.summary(load.seed),
        };
        (summary.mean_input_tokens, summary.mean_output_tokens, summary.requests as u64)
    }
}

fn generated(load: &LoadPoint, rate_per_s: Option<f64>, share: ReplicaShare) -> Result<Box<dyn Workload>> {
    let (input, output) = load.lengths.unwrap_or((NormalLengths::fixed(1), NormalLengths::fixed(1)));
    if let Some(shape) = load.shape() {
        let starts = match load.concurrency {
            Some(concurrency) => SessionStarts::Concurrency(share.concurrency(concurrency)),
            None => SessionStarts::Rate {
                pattern: ArrivalPattern::of_burstiness(load.burstiness),
                per_s: share.rate_per_s(rate_per_s.unwrap_or(1.0)),
            },
        };
        let num_sessions = share.requests(load.num_requests.unwrap_or(1));
        return Ok(Box::new(GeneratedSessions::new(starts, num_sessions, shape, load.seed)?.workload()));
    }
    let shape = RequestShape::drawn(input, output, load.seed);
    let num_requests = share.requests(load.num_requests.unwrap_or(1));
    if let Some(concurrency) = load.concurrency {
        return Ok(Box::new(ClosedLoop::new(share.concurrency(concurrency), num_requests, shape)?));
    }
    let pattern = ArrivalPattern::of_burstiness(load.burstiness);
    let rate_per_s = share.rate_per_s(rate_per_s.unwrap_or(1.0));
    Ok(Box::new(OpenLoop::new(pattern, rate_per_s, num_requests, shape, load.seed)?))
}
