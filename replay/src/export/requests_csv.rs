//! A csv file with one row per request.

use std::io::{self, Write};

use ridgepoint::units::{NS_PER_MS, NS_PER_S};

use super::{over_ns, reached};
use crate::{Outcome, RequestRecord};

const COLUMNS: [&str; 17] = [
    "request",
    "stage",
    "outcome",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    "arrival_s",
    "scheduled_s",
    "first_token_s",
    "finish_s",
    "queued_ms",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "loaded_tokens",
    "kv_load_ms",
];

/// Writes one row per request, in the order of the records. Seconds count from the start of the workload. All times are
/// exact to the nanosecond. A cell is empty if the request did not get that far.
///
/// | column | meaning |
/// |---|---|
/// | `request` | position in [`Replay::records`](crate::Replay::records), from 0 |
/// | `stage`, `outcome` | stage of the load; `finished`, `rejected` or `unfinished` |
/// | `prompt_tokens`, `output_tokens` | as requested |
/// | `cached_tokens`, `preemptions` | prompt tokens found in the prefix cache; number of preemptions |
/// | `arrival_s`, `scheduled_s`, `first_token_s`, `finish_s` | sent; first scheduled; first token; last token or rejection |
/// | `queued_ms`, `ttft_ms`, `tpot_ms`, `e2e_ms` | as in [`StageMetrics`](crate::metrics::StageMetrics); the last two of finished requests |
/// | `loaded_tokens`, `kv_load_ms` | those of the cached tokens that came from the host's tier, or through it from the disk; time that the request waited for them |
///
/// # Errors
/// Errors of `out`.
pub fn write_requests_csv(out: impl Write, records: &[RequestRecord]) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(COLUMNS)?;
    for (index, record) in records.iter().enumerate() {
        let (scheduled_ns, first_token_ns) =
            (reached(record, record.scheduled_ns), reached(record, record.first_token_ns));
        let since = |ns: Option<u64>| decimal(ns.map(|ns| ns.saturating_sub(record.arrival_ns)), NS_PER_MS);
        let finished = Some(record).filter(|record| record.outcome == Outcome::Finished);
        let request = (
            index,
            record.stage,
            record.outcome,
            record.num_prompt_tokens,
            record.num_output_tokens,
            record.num_cached_tokens,
            record.num_preemptions,
        );
        let times = (
            decimal(Some(record.arrival_ns), NS_PER_S),
            decimal(scheduled_ns, NS_PER_S),
            decimal(first_token_ns, NS_PER_S),
            decimal(over_ns(record), NS_PER_S),
            since(scheduled_ns),
            since(first_token_ns),
            finished.and_then(RequestRecord::tpot_ms).map(|ms| format!("{ms:.6}")),
            since(finished.map(|record| record.finish_ns)),
        );
        rows.serialize((request, times, record.num_loaded_tokens, decimal(Some(record.load_ns), NS_PER_MS)))?;
    }
    rows.flush()
}

/// A time in a unit of `ns_per_unit`, with all digits.
fn decimal(ns: Option<u64>, ns_per_unit: u64) -> Option<String> {
    let digits = ns_per_unit.ilog10() as usize;
    ns.map(|ns| format!("{}.{:0digits$}", ns / ns_per_unit, ns % ns_per_unit))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{Full, three};
    use super::*;

    #[test]
    fn rows_are_exact_and_empty_where_a_request_did_not_get() {
        let mut out = Vec::new();
        write_requests_csv(&mut out, &three().records).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], COLUMNS.join(","));
        // 10.000001 ms queued, 50 ms to the first token, 100 ms in all: 25 ms for each of two tokens.
        assert_eq!(
            lines[1],
            "0,0,finished,100,3,64,1,1.000000000,1.010000001,1.050000000,1.100000000,10.000001,50.000000,25.000000,100.000000,0,0.000000"
        );
        assert_eq!(lines[2], "1,1,rejected,9000,3,0,0,1.200000000,,,1.200500000,,,,,0,0.000000");
        assert_eq!(lines[3], "2,1,unfinished,50,3,0,0,1.200000000,,,,,,,,0,0.000000");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn loads_from_the_host_have_columns_of_their_own() {
        let mut records = three().records;
        (records[0].num_loaded_tokens, records[0].load_ns) = (48, 2_500_001);
        let mut out = Vec::new();
        write_requests_csv(&mut out, &records).unwrap();
        let text = String::from_utf8(out).unwrap();
        // 48 of the 64 cached tokens came from the host, after 2.500001 ms.
        assert!(text.lines().nth(1).unwrap().ends_with(",100.000000,48,2.500001"), "{text}");
    }

    #[test]
    fn what_the_writer_says_is_returned() {
        let error = write_requests_csv(Full { room: 10 }, &three().records).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
