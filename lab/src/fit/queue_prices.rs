//! The prices of the engine's queues as parameters of a fit: what an iteration takes of the host's thread for each running,
//! waiting, preempted and resumed request. Periods hold it where scheduling is synchronous.

use ridgepoint::latency::HostTimes;

use super::widths::Widths;
use crate::solver::Parameter;

/// Number of the prices, which are in the order of [`HostTimes::queue_prices_us`].
pub(super) const NUM_QUEUE_PRICES: usize = 4;

/// Name, unit, and standard deviation of the prior of each price (assumed). That of a running request is narrow, because
/// periods hardly distinguish it from `request_us`: vLLM 0.32 took 8 µs on one core of a server.
const TABLE: [(&str, &str, f64); NUM_QUEUE_PRICES] = [
    ("scheduling_us_per_running", "µs per running request and step", 2.0),
    ("scheduling_us_per_waiting", "µs per waiting request and step", 20.0),
    ("preemption_us", "µs per preempted request", 1000.0),
    ("resume_us", "µs per resumed request", 1000.0),
];

/// The prices as parameters, with those of a host as the prior's means.
pub(super) fn parameters(host: &HostTimes, widths: &Widths) -> impl Iterator<Item = Parameter> {
    let of = move |((name, unit, sd_us), prior_us): ((&'static str, &'static str, f64), f64)| {
        Parameter::overhead(name, unit, prior_us, widths.of(name, false) * sd_us)
    };
    TABLE.into_iter().zip(host.queue_prices_us()).map(of)
}

/// The names of the prices.
pub(super) fn names() -> [&'static str; NUM_QUEUE_PRICES] {
    TABLE.map(|(name, ..)| name)
}
