//! The lines of vLLM's log that count the transfers of KV blocks between the GPU and the CPU.

use std::ops::Range;

use crate::ingest::CopyLog;
use crate::transfers::CopySums;

/// What each line has that counts the transfers since the last one.
const MARK: &str = "KV Transfer metrics: ";

/// Times that copies may take between two lines, s. Bytes over any of them are finite.
const POSSIBLE_S: Range<f64> = 1e-9..1e9;

/// The transfers so far: stores to the CPU and loads from it, line by line.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    stores: Vec<CopySums>,
    loads: Vec<CopySums>,
}

impl Transfers {
    /// Takes what a line says; most say nothing.
    ///
    /// # Source
    /// vLLM 0.32, the metrics of its offloading connector.
    pub(super) fn read(&mut self, line: &str) {
        let Some((_, rest)) = line.split_once(MARK) else { return };
        let (mut store, mut load) = (CopySums::default(), CopySums::default());
        for (name, text) in rest.trim_end().split(", ").filter_map(|part| part.split_once('=')) {
            let Some(name) = name.strip_prefix("vllm:kv_offload_") else { continue };
            let (sums, name) = match (name.strip_prefix("store_"), name.strip_prefix("load_")) {
                (Some(name), _) => (&mut store, name),
                (_, Some(name)) => (&mut load, name),
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
        self.stores.extend((store.count > 0).then_some(store));
        self.loads.extend((load.count > 0).then_some(load));
    }

    /// The lines with transfers; `None` where there are none.
    pub(super) fn finish(self) -> Option<CopyLog> {
        let is_empty = self.stores.is_empty() && self.loads.is_empty();
        (!is_empty).then_some(CopyLog { is_log: true, sums: [self.stores, self.loads] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_interval() {
        let mut transfers = Transfers::default();
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_store_bytes=1000, vllm:kv_offload_store_time=0.25, vllm:kv_offload_store_size_count=3");
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_store_bytes=3000, vllm:kv_offload_store_time=0.75, vllm:kv_offload_store_size_count=1\n");
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_cpu_cache_usage_perc=0.0");
        let found = transfers.finish().unwrap();
        let stores =
            [CopySums { count: 3, bytes: 1000, seconds: 0.25 }, CopySums { count: 1, bytes: 3000, seconds: 0.75 }];
        assert_eq!(found, CopyLog { is_log: true, sums: [stores.to_vec(), Vec::new()] });
        assert_eq!(Transfers::default().finish(), None);
    }

    #[test]
    fn a_time_that_no_copy_takes_is_none() {
        for time in ["0.0", "1e-300", "-1", "inf"] {
            let mut transfers = Transfers::default();
            transfers.read(&format!(
                "KV Transfer metrics: vllm:kv_offload_load_bytes=18446744073709551615, vllm:kv_offload_load_size_count=1, \
                 vllm:kv_offload_load_time={time}"
            ));
            let found = transfers.finish().unwrap();
            assert_eq!(found.sums[1], [CopySums { count: 1, bytes: u64::MAX, seconds: 0.0 }], "{time}");
        }
    }
}
