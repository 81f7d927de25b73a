//! Files of a replay for other programs: `vllm bench serve`'s JSON, a csv row per request, a trace for Perfetto. Each writer
//! takes an [`io::Write`](std::io::Write), and equal replays give equal bytes.

mod otlp;
mod perfetto;
mod requests_csv;
mod token_jsonl;
mod token_times;
mod vllm_bench;

pub use otlp::OtlpTrace;
pub use perfetto::PerfettoTrace;
pub use requests_csv::write_requests_csv;
pub use token_jsonl::{TokenMeta, TokenSteps};
pub use token_times::TokenTimes;
pub use vllm_bench::{BenchRun, write_vllm_bench};

use super::record::{Outcome, RequestRecord};

/// A time of a request in ns; `None` if the request did not get that far.
fn reached(record: &RequestRecord, ns: u64) -> Option<u64> {
    let is_over = record.outcome != Outcome::Unfinished;
    Some(ns).filter(|ns| record.outcome != Outcome::Rejected && (is_over || *ns > 0))
}

/// Time at which the client had the last token or the rejection, ns.
fn over_ns(record: &RequestRecord) -> Option<u64> {
    (record.outcome != Outcome::Unfinished).then_some(record.finish_ns)
}

#[cfg(test)]
mod fixtures {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::Replay;
    use crate::record::EngineCounters;

    /// Three requests. The first has 100 prompt tokens (64 cached), is sent at 1 s, is preempted once and gets tokens at 1.05,
    /// 1.07 and 1.1 s. The second is rejected. The third has not begun to run.
    pub fn three() -> Replay {
        let first = RequestRecord {
            outcome: Outcome::Finished,
            num_prompt_tokens: 100,
            num_output_tokens: 3,
            num_cached_tokens: 64,
            num_preemptions: 1,
            arrival_ns: 1_000_000_000,
            scheduled_ns: 1_010_000_001,
            first_token_ns: 1_050_000_000,
            finish_ns: 1_100_000_000,
            ..RequestRecord::default()
        };
        let refused = RequestRecord {
            stage: 1,
            outcome: Outcome::Rejected,
            num_prompt_tokens: 9000,
            num_output_tokens: 3,
            arrival_ns: 1_200_000_000,
            finish_ns: 1_200_500_000,
            ..RequestRecord::default()
        };
        let waiting = RequestRecord { outcome: Outcome::Unfinished, num_prompt_tokens: 50, finish_ns: 0, ..refused };
        let mut gaps = Histogram::<u64>::new(3).unwrap();
        gaps.record(20_000_000).unwrap();
        gaps.record(30_000_000).unwrap();
        Replay {
            records: vec![first, refused, waiting],
            inter_token_ns: vec![gaps],
            counters: EngineCounters::default(),
            tokens_come_together: false,
            offload: None,
        }
    }

    /// A writer that fails after `room` bytes.
    pub struct Full {
        pub room: usize,
    }

    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.room < bytes.len() {
                return Err(std::io::Error::new(std::io::ErrorKind::StorageFull, "no room"));
            }
            self.room -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
