//! The limits of a load.

use crate::units::NS_PER_S;

/// Longest prompt or output, tokens. It exceeds the context of any model, and the sum of two fits 32 bits.
pub const MAX_TOKENS: u32 = 10_000_000;
/// Latest arrival, ns: 10⁹ s, some 31 years. Clocks of 64 bits never overflow.
pub(super) const MAX_TIME_NS: u64 = 1_000_000_000 * NS_PER_S;
/// Longest stage, pause or generated load, s.
pub(super) const MAX_DURATION_S: f64 = 1e8;
/// Highest rate, requests per second. No front end takes a thousand per millisecond.
pub const MAX_RATE_PER_S: f64 = 1e6;
/// Most requests of a load. A replay keeps some 100 bytes of each, and 300 while it waits: 10 to 30 GB in total.
pub const MAX_REQUESTS: u64 = 100_000_000;
/// Maximum number of stages. A replay keeps statistics for each.
pub const MAX_STAGES: u32 = 1_000;

/// Records a length that is zero or too long.
pub(super) fn check_tokens(problems: &mut Vec<String>, name: &str, tokens: u32) {
    if !(1..=MAX_TOKENS).contains(&tokens) {
        problems.push(format!("{name} = {tokens} must be from 1 to {MAX_TOKENS} tokens"));
    }
}

/// Records a number of requests that is zero or too large.
pub(super) fn check_requests(problems: &mut Vec<String>, name: &str, requests: u64) {
    if !(1..=MAX_REQUESTS).contains(&requests) {
        problems.push(format!("{name} = {requests} must be from 1 to {MAX_REQUESTS}"));
    }
}

/// Records a rate that is not above zero, not finite or too high.
pub(super) fn check_rate(problems: &mut Vec<String>, name: &str, rate_per_s: f64) {
    if !(rate_per_s > 0.0 && rate_per_s <= MAX_RATE_PER_S) {
        problems
            .push(format!("{name} = {rate_per_s:?} must be above 0 and at most {MAX_RATE_PER_S} requests per second"));
    }
}
