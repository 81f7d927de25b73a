//! The lines of vLLM's log that count the transfers of KV blocks between the GPU and the CPU.

use std::ops::Range;

use ridgepoint::internals::units::US_PER_S;

use crate::ingest::Transfer;

/// What each line has that counts the transfers since the last one.
const MARK: &str = "KV Transfer metrics: ";

/// Times that copies may take between two lines, s. Bytes over any of them are finite.
const POSSIBLE_S: Range<f64> = 1e-9..1e9;

/// The transfers so far: stores to the CPU and loads from it.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    stores: Sums,
    loads: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    count: u64,
    bytes: u64,
    seconds: f64,
}

impl Transfers {
    /// Takes what a line says; most say nothing.
    ///
    /// # Source
    /// vLLM 0.32, the metrics of its offloading connector.
    pub(super) fn read(&mut self, line: &str) {
        let Some((_, rest)) = line.split_once(MARK) else { return };
        for (name, text) in rest.trim_end().split(", ").filter_map(|part| part.split_once('=')) {
            let Some(name) = name.strip_prefix("vllm:kv_offload_") else { continue };
            let (sums, name) = match (name.strip_prefix("store_"), name.strip_prefix("load_")) {
                (Some(name), _) => (&mut self.stores, name),
                (_, Some(name)) => (&mut self.loads, name),
                _ => continue,
            };
            let whole = || text.parse::<u64>().unwrap_or(0);
            match name {
                "bytes" => sums.bytes = sums.bytes.saturating_add(whole()),
                "size_count" => sums.count = sums.count.saturating_add(whole()),
                "time" => {
                    let seconds = text.parse().ok().filter(|seconds| POSSIBLE_S.contains(seconds));
                    sums.seconds += seconds.unwrap_or(0.0);
                }
                _ => {}
            }
        }
    }

    /// Both directions, as far as there were any.
    pub(super) fn finish(self) -> Vec<Transfer> {
        let of = |(direction, sums): (&str, Sums)| {
            let is_timed = sums.seconds > 0.0;
            (sums.count > 0).then(|| Transfer {
                direction: direction.to_owned(),
                count: sums.count,
                bytes: Some(sums.bytes),
                latency_us: is_timed.then(|| sums.seconds / sums.count as f64 * US_PER_S),
                bytes_per_s: is_timed.then(|| sums.bytes as f64 / sums.seconds),
                ..Transfer::default()
            })
        };
        [("GPU->CPU", self.stores), ("CPU->GPU", self.loads)].into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_intervals_add_up() {
        let mut transfers = Transfers::default();
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_store_bytes=1000, vllm:kv_offload_store_time=0.25, vllm:kv_offload_store_size_count=3");
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_store_bytes=3000, vllm:kv_offload_store_time=0.75, vllm:kv_offload_store_size_count=1\n");
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_cpu_cache_usage_perc=0.0");
        let found = transfers.finish();
        let expected = Transfer {
            direction: "GPU->CPU".to_owned(),
            count: 4,
            bytes: Some(4000),
            latency_us: Some(250_000.0),
            bytes_per_s: Some(4000.0),
            ..Transfer::default()
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_time_that_no_copy_takes_is_none() {
        for time in ["0.0", "1e-300", "-1", "inf"] {
            let mut transfers = Transfers::default();
            transfers.read(&format!(
                "KV Transfer metrics: vllm:kv_offload_load_bytes=18446744073709551615, vllm:kv_offload_load_size_count=1, \
                 vllm:kv_offload_load_time={time}"
            ));
            let found = transfers.finish();
            assert_eq!((found[0].latency_us, found[0].bytes_per_s), (None, None), "{time}");
        }
    }
}
