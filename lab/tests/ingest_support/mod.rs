//! OTLP JSON made by hand: attributes, events, spans, exports.
#![allow(dead_code)]

use serde_json::{Value, json};

/// An attribute list: whole numbers as strings, as protobuf's JSON has them.
pub fn attributes(pairs: &[(&str, Value)]) -> Value {
    let one = |(key, value): &(&str, Value)| {
        let value = match value {
            Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            Value::Object(_) => value.clone(),
            other => json!({ "stringValue": other }),
        };
        json!({ "key": key, "value": value })
    };
    Value::Array(pairs.iter().map(one).collect())
}

pub fn event(name: &str, pairs: &[(&str, Value)]) -> Value {
    json!({ "timeUnixNano": "0", "name": name, "attributes": attributes(pairs) })
}

/// A journey event at a monotonic time in ns, and at the same time of day after 10¹⁸ ns.
pub fn at(name: &str, ns: u64, pairs: &[(&str, Value)]) -> Value {
    let mut all = vec![("ts.monotonic", json!(ns))];
    all.extend(pairs.iter().cloned());
    let mut event = event(name, &all);
    event["timeUnixNano"] = json!((1_000_000_000_000_000_000 + ns).to_string());
    event
}

pub fn span(name: &str, pairs: &[(&str, Value)], events: Vec<Value>) -> Value {
    json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "parentSpanId": "", "kind": 1,
        "name": name, "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000",
        "attributes": attributes(pairs), "events": events, "status": {}
    })
}

pub fn export(resource: &[(&str, Value)], scope: &str, spans: Vec<Value>) -> Value {
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(resource) },
        "scopeSpans": [{ "scope": { "name": scope, "version": "0.15.1" }, "spans": spans }]
    }]})
}

/// A summary: step, start in ns, (requests, tokens) of prefills, decodes.
pub fn summary(step_id: u64, start_ns: u64, prefill: (u32, u64), decodes: u32) -> Value {
    event(
        "step.BATCH_SUMMARY",
        &[
            ("step.id", json!(step_id)),
            ("step.ts_start_ns", json!(start_ns)),
            ("step.ts_end_ns", json!(start_ns + 400_000)),
            ("step.duration_us", json!(400)),
            ("queue.running_depth", json!(prefill.0 + decodes)),
            ("queue.waiting_depth", json!(3)),
            ("batch.num_prefill_reqs", json!(prefill.0)),
            ("batch.num_decode_reqs", json!(decodes)),
            ("batch.scheduled_tokens", json!(prefill.1 + u64::from(decodes))),
            ("batch.prefill_tokens", json!(prefill.1)),
            ("batch.decode_tokens", json!(decodes)),
            ("batch.num_finished", json!(0)),
            ("batch.num_preempted", json!(1)),
            ("kv.usage_gpu_ratio", json!(0.25)),
            ("kv.blocks_total_gpu", json!(1000)),
            ("kv.blocks_free_gpu", json!(750)),
        ],
    )
}

/// A snapshot of a request: step, id, phase, (computed, scheduled, prompt, output) tokens.
pub fn snapshot(step_id: u64, id: &str, phase: &str, tokens: (u32, u32, u32, u32)) -> Value {
    event(
        "step.REQUEST_SNAPSHOT",
        &[
            ("step.id", json!(step_id)),
            ("request.id", json!(id)),
            ("request.phase", json!(phase)),
            ("request.num_computed_tokens", json!(tokens.0)),
            ("request.scheduled_tokens_this_step", json!(tokens.1)),
            ("request.num_prompt_tokens", json!(tokens.2)),
            ("request.num_output_tokens", json!(tokens.3)),
            ("request.effective_prompt_len", json!(tokens.2 - 64)),
            ("kv.blocks_allocated_gpu", json!(7)),
        ],
    )
}

/// The engine's span of a request: queued at `ns`, scheduled 1 ms, first token 21 ms and finished 101 ms later.
pub fn core_span(id: &str, ns: u64) -> Value {
    span(
        "llm_core",
        &[("gen_ai.request.id", json!(id))],
        vec![
            at("journey.QUEUED", ns, &[("prefill_total_tokens", json!(575)), ("scheduler.step", json!(40))]),
            at(
                "journey.SCHEDULED",
                ns + 1_000_000,
                &[
                    ("schedule.kind", json!("FIRST")),
                    ("scheduler.step", json!(41)),
                    ("prefill_total_tokens", json!(575)),
                ],
            ),
            at("journey.PREEMPTED", ns + 5_000_000, &[("num_preemptions", json!(1))]),
            at(
                "journey.SCHEDULED",
                ns + 6_000_000,
                &[
                    ("schedule.kind", json!("RESUME")),
                    ("scheduler.step", json!(45)),
                    ("prefill_total_tokens", json!(579)),
                ],
            ),
            at("journey.FIRST_TOKEN", ns + 21_000_000, &[("scheduler.step", json!(46))]),
            at(
                "journey.FINISHED",
                ns + 101_000_000,
                &[
                    ("scheduler.step", json!(61)),
                    ("decode_done_tokens", json!(16)),
                    ("decode_max_tokens", json!(16)),
                    ("finish.status", json!("length")),
                ],
            ),
        ],
    )
}

/// The server's span of a request whose engine queues it at `ns`.
pub fn api_span(id: &str, ns: u64) -> Value {
    span(
        "llm_request",
        &[
            ("gen_ai.request.id", json!(id)),
            ("gen_ai.response.model", json!("llama-2-70b")),
            ("gen_ai.request.temperature", json!(0.5)),
        ],
        vec![
            at("api.ARRIVED", ns - 3_000_000, &[]),
            at("api.HANDOFF_TO_CORE", ns - 500_000, &[]),
            at("api.FIRST_RESPONSE", ns + 23_000_000, &[]),
            at("api.DEPARTED", ns + 104_000_000, &[]),
        ],
    )
}
