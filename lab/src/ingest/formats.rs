//! The list of file formats, and which of them a file has.

use std::path::Path;

use ridgepoint::input::FileKind;
use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::{HeadKind, head};

use super::format::Format;
use super::reports::{aiperf, guidellm, inference_perf, vllm_bench};
use super::{
    forward_pass, kv_events, metrics, other_tools, otlp, request_table, step_csv, step_table, token_jsonl, token_table,
    vllm_log,
};

/// Every format. A new one is a file with its `FORMAT` and a line here.
pub const FORMATS: [Format; 16] = [
    otlp::FORMAT,
    step_csv::FORMAT,
    forward_pass::FORMAT,
    inference_perf::FORMAT,
    guidellm::FORMAT,
    aiperf::FORMAT,
    vllm_bench::SGLANG_FORMAT,
    vllm_bench::FORMAT,
    token_jsonl::FORMAT,
    token_table::FORMAT,
    step_table::FORMAT,
    request_table::FORMAT,
    vllm_log::FORMAT,
    kv_events::FORMAT,
    kv_events::DUMP_FORMAT,
    metrics::FORMAT,
];

impl Format {
    /// Returns the format of a name.
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Detects the format of a file from its first 256 KiB.
    ///
    /// # Errors
    /// A file that cannot be read or is of no known format, such as a compressed one.
    pub fn detect(path: &Path) -> Result<Self> {
        let input = match ridgepoint_replay::input::open(FileKind::Trace, path) {
            Ok(input) => input,
            // A dump of KV events is no text.
            Err(_) if is_dump(path) => return Ok(kv_events::DUMP_FORMAT),
            Err(error) => return Err(error),
        };
        if !path.is_file() && !path.is_dir() {
            let message =
                "is a pipe or device, whose beginning can't be read twice: save it as a file, or name its format";
            return Err(Error::parse(path, message));
        }
        detected(input.head()).map_err(|found| Error::parse(path, found))
    }
}

fn is_dump(path: &Path) -> bool {
    path.is_file()
        && ridgepoint_replay::input::open(FileKind::KvEventDump, path).is_ok_and(|dump| kv_events::is_dump(dump.head()))
}

fn detected(bytes: &[u8]) -> std::result::Result<Format, String> {
    let head = head(bytes);
    if let Some(sentence) = other_tools::recognised(&head, bytes) {
        return Err(sentence.to_owned());
    }
    let known = FORMATS.into_iter().find(|format| (format.is_it)(&head, bytes));
    known.ok_or_else(|| {
        let found = match head.kind {
            HeadKind::Empty => "is empty".to_owned(),
            HeadKind::Csv => format!("begins with '{}'", cut(&head.names.join(","))),
            _ if head.names.is_empty() => "is JSON without keys".to_owned(),
            _ => format!("is JSON that begins with the keys {}", cut(&head.names.join(", "))),
        };
        let known = FORMATS.map(|format| format.name).join(", ");
        format!("{found}, which is none of the known formats ({known})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_known_by_its_head() {
        for (head, format) in [
            ("{\"resourceSpans\":[{\"resource\":{\"load_summary\":1", otlp::FORMAT),
            ("\n[ {\"resourceSpans\": []}]", otlp::FORMAT),
            ("{\"version\": 1, \"worker_id\": \"a\", \"timing_scope\": \"execute_model_cuda\"}", forward_pass::FORMAT),
            ("[{\"start_time\": 1.5, \"request\": \"{\\\"benchmarks\\\": 1}\", \"respon", inference_perf::FORMAT),
            ("{\"load_summary\": {\"count\": 9}}", inference_perf::FORMAT),
            ("{\"metadata\": {}, \"args\": {\"model\": \"benchmarks\"}", guidellm::FORMAT),
            ("{\"date\": \"x\", \"backend\": \"vllm\", \"num_prompts\": 5}", vllm_bench::FORMAT),
            ("{\"backend\": \"sglang\", \"sharegpt_output_len\": null, \"completed\": 5}", vllm_bench::SGLANG_FORMAT),
            ("{\"metadata\": {\"session_num\": 0}, \"metrics\": {}, \"error\": null}", aiperf::FORMAT),
            ("step.id,step.ts_start_ns\n1,2", step_csv::FORMAT),
            ("batch.decode_tokens,step.id\n1,2", step_csv::FORMAT),
            ("experiment,step_id,steps_to_next\n", step_table::FORMAT),
            ("{\"recv\": 1.5, \"seq\": 0, \"batch\": [1.5, [{\"type\": \"Block", kv_events::FORMAT),
            ("[1.5, [[\"BlockRemoved\", [1], \"GPU\"]], null, 3]", kv_events::FORMAT),
            ("# HELP a b\n# TYPE vllm:prompt_tokens_total counter\n", metrics::FORMAT),
            ("(EngineCore pid=5) INFO 01-02 03:04:05 [core.py:9] Iteration(1): 0 context", vllm_log::FORMAT),
            ("W0102 03:04:05 x\n(APIServer pid=5) WARNING 01-02 03:04:05 [vllm.py:9] a, b", vllm_log::FORMAT),
            ("# of a run\nexperiment,request_id,arrived_ns\n", request_table::FORMAT),
        ] {
            assert_eq!(detected(head.as_bytes()).map(|found| found.name), Ok(format.name), "{head}");
        }
    }

    #[test]
    fn what_is_none_says_what_was_found() {
        for (head, found) in [
            ("", "is empty"),
            ("\u{1f}\u{8b}", "begins with '\u{1f}\u{8b}'"),
            ("{}", "is JSON without keys"),
            ("{\"data\": [{\"resourceSpans\": 1}]}", "is JSON that begins with the keys data"),
            ("{\"a\": \"resourceSpans\"", "is JSON that begins with the keys a"),
            ("a,b\n1,2", "begins with 'a,b'"),
        ] {
            let message = detected(head.as_bytes()).map(|found| found.name).unwrap_err();
            assert!(message.starts_with(&format!("{found}, which is none of the known formats")), "{message}");
        }
    }
}
