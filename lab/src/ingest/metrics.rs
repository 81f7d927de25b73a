//! Replies of vLLM's `/metrics`.

use std::collections::HashSet;
use std::path::Path;

use ridgepoint::{Error, Result};
use ridgepoint_replay::input::for_each_line;

use super::Capture;
use super::format::Format;
use super::server_totals::{COUNTERS, MetricsReply};

/// A reply of `/metrics`.
pub(super) const FORMAT: Format = Format {
    name: "metrics",
    about: "vLLM's /metrics; two files, of before and after the run",
    holds_steps: false,
    is_it: |_, text| {
        let text = String::from_utf8_lossy(text);
        text.lines().any(|line| line.starts_with("# TYPE ") || line.starts_with("vllm:")) && !text.starts_with('{')
    },
    read,
};

/// Largest value of a counter; FLOPs of years stay far below, and no sum of such values is infinite.
const MAX_COUNT: f64 = 1e30;

const STARTED: &str = "process_start_time_seconds";

/// The gauge whose labels are the settings of the KV cache.
const CONFIG: &str = "vllm:cache_config_info";

/// Reads a reply.
///
/// # Errors
/// A file that cannot be read, a counter that is no number from 0 to 10³⁰, none of vLLM's counters.
pub fn read(path: &Path) -> Result<Capture> {
    let origin = path.display().to_string();
    let mut found = MetricsReply { file: origin, ..MetricsReply::default() };
    let mut seen = HashSet::new();
    for_each_line(path, |_, line| {
        let line = std::str::from_utf8(line).map_err(|_| "is not UTF-8".to_owned())?;
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        if name == CONFIG {
            let size = line.split(['{', ',']).find_map(|label| label.strip_prefix("block_size=\""));
            found.block_size = size.and_then(|size| size.trim_end_matches('"').parse().ok()).filter(|size| *size > 0);
        }
        let counter = COUNTERS.iter().find(|(known, _)| *known == name);
        if counter.is_none() && name != STARTED {
            return Ok(());
        }
        let series = line.rsplit_once('}').map_or_else(|| name.to_owned(), |(series, _)| format!("{series}}}"));
        if seen.contains(&series) {
            return Err(format!("{series} is there twice: give each reply a file of its own"));
        }
        seen.insert(series);
        let text = line.rsplit_once('}').map_or(line, |(_, rest)| rest);
        let text = text.strip_prefix(name).unwrap_or(text).split_ascii_whitespace().next().unwrap_or_default();
        let value = text
            .parse()
            .ok()
            .filter(|value| (0.0..=MAX_COUNT).contains(value))
            .ok_or_else(|| format!("{name} is '{text}', expected a number from 0 to {MAX_COUNT:e}"))?;
        match counter {
            Some((_, total)) => *found.counters.entry(total).or_default() += value,
            None => found.started_s = Some(value),
        }
        Ok(())
    })?;
    if found.counters.is_empty() {
        return Err(Error::parse(path, "has none of vLLM's counters: write what GET /metrics replies"));
    }
    Ok(Capture { metrics: Some(found), ..Capture::default() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::request::{RequestRow, RequestTrace};
    use super::super::server_totals::{Total, totals};
    use super::*;
    use crate::ingest::Run;

    fn reply(name: &str, lines: &str) -> Result<MetricsReply> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, lines).unwrap();
        read(&path).map(|capture| capture.metrics.unwrap())
    }

    #[test]
    fn the_size_of_a_block_is_a_label() {
        let of =
            |labels: &str| reply("a", &format!("{BEFORE}vllm:cache_config_info{{{labels}}} 1.0\n")).unwrap().block_size;
        let others = "_block_size_resolved=\"True\",effective_attention_block_size=\"64\",hash_block_size=\"None\"";
        assert_eq!(of(&format!("{others},block_size=\"32\",engine=\"0\"")), Some(32));
        assert_eq!(of(&format!("block_size=\"48\",{others}")), Some(48));
        assert_eq!((of(others), of("block_size=\"0\"")), (None, None));
    }

    const BEFORE: &str = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.5e+09\n\
        vllm:request_success_total{engine=\"0\",finished_reason=\"stop\"} 2.0\nvllm:prompt_tokens_total{engine=\"0\"} 100.0\n\
        vllm:prompt_tokens_created{engine=\"0\"} 1.7e+09\n";

    fn after() -> String {
        let later = BEFORE.replace("} 2.0", "} 5.0").replace("} 100.0", "} 1.6e+02");
        later + "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"} 1.0\n"
    }

    #[test]
    fn a_file_of_two_replies_is_refused() {
        let error = reply("a", &format!("{BEFORE}{}", after())).unwrap_err().to_string();
        assert!(error.contains("process_start_time_seconds is there twice"), "{error}");
    }

    #[test]
    fn totals_are_those_between_the_replies_in_either_order() {
        let (before, after) = (reply("a", BEFORE).unwrap(), reply("b", &after()).unwrap());
        let request = |prompt| RequestRow { num_prompt_tokens: Some(prompt), ..RequestRow::default() };
        let rows = [RequestTrace { run: Run::default(), requests: vec![request(25.into()), request(35.into())] }];
        let expected = [
            Total { name: "requests", server: 4.0, rows: Some(2.0) },
            Total { name: "prompt_tokens", server: 60.0, rows: Some(60.0) },
        ];
        for replies in [[before.clone(), after.clone()], [after, before]] {
            assert_eq!(totals(&replies, &rows, None).unwrap(), expected);
        }
        assert!(totals(&[], &rows, None).unwrap().is_empty());
    }

    #[test]
    fn replies_that_do_not_belong_together_are_refused() {
        let (before, after) = (reply("a", BEFORE).unwrap(), reply("b", &after()).unwrap());
        let restarted = MetricsReply { started_s: Some(2e9), ..after.clone() };
        let mixed =
            MetricsReply { counters: BTreeMap::from([("requests", 9.0), ("prompt_tokens", 3.0)]), ..after.clone() };
        for (replies, said) in [
            (vec![after.clone()], "from before the run as well"),
            (vec![before.clone(), after.clone(), after], "more than two replies"),
            (vec![before.clone(), restarted], "started again"),
            (vec![before, mixed], "started again"),
        ] {
            let error = totals(&replies, &[], None).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn broken_counters_are_named() {
        for value in ["many", "-1.0", "NaN", "1e308"] {
            let line = format!("vllm:prompt_tokens_total{{engine=\"0\"}} {value}\n");
            let error = reply("a", &line).unwrap_err().to_string();
            let said = format!("line 1: vllm:prompt_tokens_total is '{value}', expected a number from 0 to 1e30");
            assert!(error.contains(&said), "{error}");
        }
        assert!(reply("a", "# TYPE x counter\nx 1\n").unwrap_err().to_string().contains("none of vLLM's counters"));
    }
}
