//! The lines of vLLM's log that count the transfers of KV blocks between the GPU and the CPU.

use std::ops::Range;

use crate::ingest::CopyLog;
use crate::transfers::CopySums;

/// What each line has that counts the transfers since the last one.
const MARK: &str = "KV Transfer metrics: ";

/// Times that copies may take between two lines, s. Bytes over any of them are finite.
const POSSIBLE_S: Range<f64> = 1e-9..1e9;

/// Most copies or bytes between two lines: an exabyte.
const MOST: u64 = 1_000_000_000_000_000_000;

/// The transfers so far: stores to the CPU and loads from it, line by line.
#[derive(Debug, Default)]
pub(super) struct Transfers([Vec<CopySums>; 2]);

impl Transfers {
    /// Takes what a line says; most say nothing.
    ///
    /// # Errors
    /// A count that no server reaches.
    ///
    /// # Source
    /// vLLM 0.32, the metrics of its offloading connector.
    pub(super) fn read(&mut self, line: &str) -> Result<(), String> {
        let Some((_, rest)) = line.split_once(MARK) else { return Ok(()) };
        let mut sums = [CopySums::default(); 2];
        for (key, text) in rest.trim_end().split(", ").filter_map(|part| part.split_once('=')) {
            let Some(name) = key.strip_prefix("vllm:kv_offload_") else { continue };
            let mut of = ["store_", "load_"].into_iter().zip(&mut sums);
            let found = of.find_map(|(of, sums)| Some((name.strip_prefix(of)?, sums)));
            let Some((name, sums)) = found else { continue };
            let whole = || match text.parse::<u64>() {
                Ok(count) if count > MOST => Err(format!("{key} is {count}, expected at most {MOST}")),
                count => Ok(count.unwrap_or(0)),
            };
            match name {
                "bytes" => sums.bytes = sums.bytes.saturating_add(whole()?),
                "size_count" => sums.count = sums.count.saturating_add(whole()?),
                "time" => {
                    let seconds = text.parse().ok().filter(|seconds| POSSIBLE_S.contains(seconds));
                    sums.seconds += seconds.unwrap_or(0.0);
                }
                _ => {}
            }
        }
        self.0.iter_mut().zip(sums).for_each(|(known, sums)| known.extend((sums.count > 0).then_some(sums)));
        Ok(())
    }

    /// The lines with transfers; `None` where there are none.
    pub(super) fn finish(self) -> Option<CopyLog> {
        self.0.iter().any(|sums| !sums.is_empty()).then_some(CopyLog { is_log: true, sums: self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_interval() {
        let mut transfers = Transfers::default();
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_store_bytes=1000, vllm:kv_offload_store_time=0.25, vllm:kv_offload_store_size_count=3").unwrap();
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_store_bytes=3000, vllm:kv_offload_store_time=0.75, vllm:kv_offload_store_size_count=1\n").unwrap();
        transfers.read("[x] KV Transfer metrics: vllm:kv_offload_cpu_cache_usage_perc=0.0").unwrap();
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
                "KV Transfer metrics: vllm:kv_offload_load_bytes=1000000000000000000, vllm:kv_offload_load_size_count=1, \
                 vllm:kv_offload_load_time={time}"
            ))
            .unwrap();
            let found = transfers.finish().unwrap();
            assert_eq!(found.sums[1], [CopySums { count: 1, bytes: MOST, seconds: 0.0 }], "{time}");
        }
    }
}
