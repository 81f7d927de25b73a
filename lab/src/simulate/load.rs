//! A load of a few numbers, as flags and bodies of requests give it.

use ridgepoint_replay::workload::Load;

/// Rounds of a closed loop whose number of requests is not given.
pub const ROUNDS: u64 = 10;

/// Requests or sessions of a few numbers. One of `request_rate` and `concurrency` is given, with lengths.
#[derive(Debug, Clone, Copy, Default)]
pub struct GeneratedLoad {
    /// Requests in flight; with `turns`, sessions at once.
    pub concurrency: Option<u32>,
    /// Requests per second at random times; with `turns`, sessions that start per second.
    pub request_rate: Option<f64>,
    /// Prompt tokens of each request; with `turns`, new tokens of each turn.
    pub input_len: Option<u32>,
    /// Output tokens of each request or turn.
    pub output_len: Option<u32>,
    /// Number of requests.
    pub num_requests: Option<u32>,
    /// Shape of the gamma distribution of the gaps between requests; 1 is Poisson.
    pub burstiness: Option<f64>,
    /// Turns of each session.
    pub turns: Option<u32>,
    /// Number of sessions.
    pub num_sessions: Option<u32>,
    /// Tokens at the beginning of every prompt that all requests share.
    pub prefix_len: Option<u32>,
    /// Mean time from the end of a turn to the next, s.
    pub think_time_s: Option<f64>,
}

impl GeneratedLoad {
    /// The load of these numbers: sessions if there are turns or a shared prefix, and equal requests otherwise.
    pub fn load(&self) -> Load {
        let GeneratedLoad { request_rate, concurrency, burstiness, .. } = *self;
        let [input_len, output_len] = [self.input_len, self.output_len].map(Option::unwrap_or_default);
        let [num_requests, num_sessions] = [self.num_requests, self.num_sessions].map(|number| number.map(u64::from));
        let rounds = concurrency.map_or(0, |concurrency| ROUNDS * u64::from(concurrency));
        let prefix_len = self.prefix_len.unwrap_or(0);
        if self.turns.is_some() || prefix_len > 0 {
            return Load::Sessions {
                sessions_per_s: request_rate,
                concurrency,
                num_sessions: num_sessions.or(num_requests).unwrap_or(rounds),
                turns: self.turns.unwrap_or(1),
                prefix_len,
                input_len,
                output_len,
                think_time_s: self.think_time_s.unwrap_or(0.0),
                burstiness,
            };
        }
        if let Some(concurrency) = concurrency {
            let num_requests = num_requests.unwrap_or(rounds);
            return Load::ClosedLoop { concurrency, input_len, output_len, num_requests };
        }
        Load::OpenLoop {
            requests_per_s: request_rate.unwrap_or_default(),
            input_len,
            output_len,
            num_requests: num_requests.unwrap_or_default(),
            burstiness: burstiness.unwrap_or(1.0),
        }
    }
}
