//! The limits of a load.

use ridgepoint::units::{GIB, NS_PER_S};
use ridgepoint::{Error, Result};

use super::Summary;
use crate::EngineConfig;

/// Longest prompt or output, tokens. It exceeds the context of any model, and the sum of two fits 32 bits.
pub const MAX_TOKENS: u32 = 10_000_000;
/// Latest arrival, ns: 10⁹ s, some 31 years. Clocks of 64 bits never overflow.
pub(super) const MAX_TIME_NS: u64 = 1_000_000_000 * NS_PER_S;
/// Longest stage, pause or generated load, s.
pub const MAX_DURATION_S: f64 = 1e8;
/// Highest rate, requests per second. No front end takes a thousand per millisecond.
pub const MAX_RATE_PER_S: f64 = 1e6;
/// Bytes that a replay keeps of a request while it waits; once it is answered, some 100 of them.
const REPLAY_BYTES: f64 = 250.0;
/// Least time that the replay of a request takes, s.
const REPLAY_S: f64 = 1e-6;
/// Most requests of a load: a replay of them takes 10 to 25 GB.
pub const MAX_REQUESTS: u64 = 100_000_000;
/// Maximum number of stages. A replay keeps statistics for each.
pub const MAX_STAGES: u32 = 1_000;

/// Refuses a load before it is drawn if `at_once` replays of `num_requests` may take more memory than is allowed.
///
/// # Errors
/// `ErrorKind::InvalidArgument` with the estimates of memory and time.
pub fn check_memory(num_requests: u64, at_once: usize, max_memory_gib: f64) -> Result<()> {
    let requests = num_requests as f64;
    let needed_gib = requests * at_once as f64 * REPLAY_BYTES / GIB;
    if needed_gib <= max_memory_gib {
        return Ok(());
    }
    let each = replays(at_once);
    let reason = format!(
        "is below the {needed_gib:.1} GiB that {each} of {num_requests} requests may take, for {:.0} s or longer: send fewer \
         requests, or allow more memory",
        (requests * REPLAY_S).max(1.0)
    );
    Err(Error::invalid_argument("max_memory_gib", max_memory_gib, reason))
}

/// Refuses a load that is drawn if `at_once` replays of it on so many engines each may take more memory than is allowed: beyond its requests
/// they keep tables of KV blocks.
///
/// # Errors
/// `ErrorKind::InvalidArgument` with the estimate.
pub fn check_block_memory(
    load: &Summary,
    (engine, engines): (&EngineConfig, u32),
    at_once: usize,
    max_memory_gib: f64,
) -> Result<()> {
    let requests = load.requests as f64;
    let tokens = requests * (load.mean_input_tokens + load.mean_output_tokens);
    let waiting = load.sessions.map_or(0.0, |sessions| load.requests.min(sessions) as f64);
    let waiting_tokens = waiting * load.mean_input_tokens;
    let table_gib = engine.table_bytes(engines, requests, tokens, waiting_tokens) * at_once as f64 / GIB;
    let needed_gib = table_gib + requests * at_once as f64 * REPLAY_BYTES / GIB;
    if needed_gib <= max_memory_gib {
        return Ok(());
    }
    let reason = format!(
        "is below the {needed_gib:.1} GiB that {} of {requests} requests may take, {table_gib:.1} GiB of them for tables of KV blocks: \
         send fewer tokens, give fewer or larger blocks on GPU, host and disk{}, or allow more memory",
        replays(at_once),
        if engines > 1 { ", or fewer replicas" } else { "" }
    );
    Err(Error::invalid_argument("max_memory_gib", max_memory_gib, reason))
}

fn replays(at_once: usize) -> String {
    if at_once > 1 { format!("{at_once} replays at once") } else { "a replay".to_owned() }
}

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

/// Records a number of requests that is too large, in all.
pub(super) fn check_most_requests(problems: &mut Vec<String>, name: &str, requests: u64) {
    if requests > MAX_REQUESTS {
        problems.push(format!("{requests} {name} are more than {MAX_REQUESTS}"));
    }
}

/// Records a rate that is not above zero, not finite or too high.
pub(super) fn check_rate(problems: &mut Vec<String>, name: &str, rate_per_s: f64) {
    if !(rate_per_s > 0.0 && rate_per_s <= MAX_RATE_PER_S) {
        problems
            .push(format!("{name} = {rate_per_s:?} must be above 0 and at most {MAX_RATE_PER_S} requests per second"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::Deployment;

    use crate::KvOffload;

    fn load(requests: usize, mean_input_tokens: f64) -> Summary {
        Summary { requests, stages: 1, sessions: None, mean_input_tokens, mean_output_tokens: 0.0, max_total_tokens: 1 }
    }

    #[test]
    fn blocks_of_gpu_host_and_disk_count() {
        let mut engine = EngineConfig::new(&Deployment::default(), 1_000_000, 10_000);
        let fits = |engine: &EngineConfig, load: &Summary| check_block_memory(load, (engine, 1), 1, 1.0).is_ok();
        assert!(fits(&engine, &load(1_000_000, 1_000.0)));
        // 20,000 prompts of 100,000 tokens are 125 million blocks of 16: few of them are on the GPU, and all on such a host.
        let long = load(20_000, 100_000.0);
        assert!(fits(&engine, &long));
        let tier = |num_cpu_blocks| {
            Some(KvOffload {
                num_cpu_blocks,
                block_bytes: 2 << 20,
                offload_prompt_only: false,
                contention: 1.0,
                disk: None,
            })
        };
        engine.kv_offload = tier(50_000_000);
        let refused = check_block_memory(&long, (&engine, 1), 1, 1.0).unwrap_err().to_string();
        assert!(refused.contains("of them for tables of KV blocks"), "{refused}");
        engine.kv_offload = tier(1_000_000);
        assert!(fits(&engine, &long));
        engine.num_gpu_blocks = 1 << 24;
        assert!(check_block_memory(&load(1, 1.0), (&engine, 1), 2, 1.0).is_err());
        assert!(check_block_memory(&load(1, 1.0), (&engine, 1), 1, 1.0).is_ok());
        let refused = check_block_memory(&load(1, 1.0), (&engine, 2), 1, 1.0).unwrap_err().to_string();
        assert!(refused.contains(", or fewer replicas"), "{refused}");
    }
}
