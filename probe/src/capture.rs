//! Writes the warm requests and those of the ladder as per-token JSONL, which `ridgepoint ingest`, `fit` and `evaluate capture` read.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::connection::ms;
use crate::record::RequestRecord;
use crate::report::Report;

/// A line. The keys are those of vllm-vcr.
#[derive(Serialize)]
struct Line<'a> {
    request_id: usize,
    arrival_ms: f64,
    prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    ttft_ms: f64,
    itl_ms: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    itl_tokens: Option<Vec<u64>>,
    concurrency: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a str>,
}

/// The numbers of requests that were written and left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Written {
    /// Lines of requests.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests whose prompt the server did not count.
    pub uncounted: u64,
    /// Requests whose tokens came all at once, so that they have no times.
    pub buffered: u64,
}

/// Writes a capture. The cold request is not in it, as no step of an engine explains it.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &Report, mut out: impl Write) -> Result<Written> {
    let engine_version = report.server.version.as_ref().map(|version| format!("vllm-{version}"));
    let gpu = report.before.host.as_ref().and_then(|host| Some(host.gpus.as_ref()?.first()?.name.clone()));
    let meta = json!({
        "model": report.model, "gpu": gpu, "source": "ridgepoint probe", "vllm_version": engine_version, "url": report.url,
    });
    serde_json::to_writer(&mut out, &json!({"meta": without_nulls(meta)}))?;
    out.write_all(b"\n")?;
    let mut written = Written::default();
    let warm = report.warm_1.iter().chain(&report.warm);
    let mut records: Vec<&RequestRecord> = warm.chain(report.ladder.iter().flat_map(|rung| &rung.records)).collect();
    records.sort_by_key(|record| record.started);
    let first = records.first().map(|record| record.started).unwrap_or_default();
    for (request_id, record) in records.into_iter().enumerate() {
        let (Some(ttft_ms), Some(output_tokens)) = (record.ttft_ms, record.completion_tokens) else {
            written.failed += 1;
            continue;
        };
        let Some(prompt_tokens) = record.prompt_tokens.filter(|tokens| *tokens > 0) else {
            written.uncounted += 1;
            continue;
        };
        if record.remarks.contains(&crate::fault::Remark::Buffered) {
            written.buffered += 1;
            continue;
        }
        let (itl_ms, tokens): (Vec<f64>, Vec<u64>) = record.chunk_gaps_ms().unzip();
        let line = Line {
            request_id,
            arrival_ms: ms(record.started.saturating_sub(first)),
            prompt_tokens,
            cached_tokens: record.cached_tokens.unwrap_or(0).min(prompt_tokens),
            output_tokens,
            ttft_ms,
            itl_ms,
            itl_tokens: tokens.iter().any(|count| *count != 1).then_some(tokens),
            concurrency: record.in_flight,
            finish_reason: record.finish_reason.as_deref(),
        };
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
        written.requests += 1;
    }
    out.flush()?;
    Ok(written)
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(keys) = &mut value {
        keys.retain(|_, value| !value.is_null());
    }
    value
}
