//! Delays that a server plants come back, and no request of a ladder is lost.
#![expect(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use ridgepoint_probe::{Api, Ladder, Remark, Report, Settings, Target, probe};
use support::mock::{Mock, document, end, events, last, piece, stream, token};
use support::planted::{Prices, start};

fn settings(mock: &Mock) -> Settings {
    Settings::new(Target::parse(&mock.url()).unwrap())
}

fn run(settings: &Settings) -> Report {
    probe(settings, Arc::new(|| ())).unwrap()
}

/// Within 25 ms and 50 % above what was planted, and never below: a busy machine delays, and nothing speeds up.
#[track_caller]
fn assert_about(measured_ms: f64, planted_ms: f64) {
    assert!(measured_ms >= planted_ms - 0.5, "{measured_ms} of {planted_ms} ms");
    assert!(measured_ms <= 1.5 * planted_ms + 25.0, "{measured_ms} of {planted_ms} ms");
}

#[test]
fn cold_and_warm_delays_come_back() {
    let mock = Mock::start(|incoming, out| {
        let ttft = if incoming.number == 0 { 400 } else { 60 };
        stream(incoming, out, Duration::from_millis(ttft), Duration::from_millis(8))
    });
    let report = run(&Settings { max_tokens: 10, ..settings(&mock) });
    assert_eq!((report.model.as_str(), report.server.version.as_deref()), ("planted", Some("0.32.0")));
    let cold = report.cold.as_ref().unwrap();
    assert_about(cold.ttft_ms.unwrap(), 400.0);
    assert_eq!((cold.completion_tokens, cold.prompt_tokens), (Some(10), Some(13)));
    assert!(cold.connect.is_some());
    let warm = report.warm_summary();
    assert_eq!((warm.requests, warm.failed), (5, 0));
    assert_about(warm.ttft_ms.unwrap().median, 60.0);
    assert_about(warm.itl_ms.unwrap().median, 8.0);
    // Nine gaps a request, unless a busy machine lets tokens catch up with each other.
    assert!((35..=45).contains(&warm.itl_ms.unwrap().count), "{warm:?}");
    assert_about(warm.wall_ms.unwrap().median, 60.0 + 9.0 * 8.0);
    assert!(report.penalty().unwrap() > 2.0, "{:?}", report.penalty());
    // The connection is kept: one for all of them.
    assert!(report.warm.iter().all(|record| record.connect.is_none()));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["warm"]["requests"], 5);
    assert!(json["warm"]["ttft_ms"]["median"].is_f64() && json["warm"]["itl_ms"]["median"].is_f64(), "{json}");
    assert!(json["cold"]["ttft_ms"].is_f64() && json["penalty"].is_f64() && json["diagnosis"].is_string());
    assert_eq!(json["outcomes"], serde_json::json!({"ok": 7}));
}

#[test]
fn a_ladder_of_200_requests_loses_none() {
    let mock = start(Prices { step_us: 1000.0, decode_us: 20.0, prefill_token_us: 10.0, cold_us: 0.0 });
    let ladder = Ladder { input_lens: vec![32, 512], concurrencies: vec![1, 8], requests: 50 };
    let report = run(&Settings { max_tokens: 4, ladder: Some(ladder), num_warm: 1, ..settings(&mock) });
    assert_eq!(report.ladder.len(), 4);
    for rung in &report.ladder {
        assert_eq!((rung.ok, rung.records().len()), (50, 50), "{:?}", rung.outcomes);
        let (least, most) = (rung.prompt_tokens.unwrap().min, rung.prompt_tokens.unwrap().max);
        assert!((least - rung.input_len as f64).abs() < 0.5 && (most - least).abs() < 0.5, "{:?}", rung.prompt_tokens);
    }
    assert_eq!(report.outcomes()["ok"], 203);
    // 1 ms and 10 µs a token.
    assert_about(report.ladder[2].ttft_ms.unwrap().median, 6.12);
    let mut names: Vec<&str> = report.records().map(|record| record.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 203);
}

#[test]
fn a_ladder_leaves_out_what_is_longer_than_the_model_takes() {
    let mock = Mock::start(|incoming, out| stream(incoming, out, Duration::ZERO, Duration::ZERO));
    let ladder = Ladder { input_lens: vec![8190], concurrencies: vec![1], requests: 3 };
    let report = run(&Settings { max_tokens: 4, ladder: Some(ladder), ..settings(&mock) });
    assert!(report.ladder.is_empty() && report.notes[0].contains("max_model_len 8192"), "{:?}", report.notes);
}

#[test]
fn chats_keys_and_headers_are_sent_and_the_key_is_in_no_report() {
    let mock = Mock::start(|incoming, out| {
        let has = |text: &str| incoming.headers.contains(text);
        if !has("authorization: Bearer secret\r\n") || !has("x-team: a\r\n") || incoming.path != "/v1/chat/completions"
        {
            return document(out, 401, "application/json", r#"{"error": {"message": "no key"}}"#);
        }
        events(out)?;
        piece(
            out,
            "data: {\"choices\": [{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n",
        )?;
        std::thread::sleep(Duration::from_millis(50));
        piece(out, "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"hi\"}}]}\n\n")?;
        piece(out, last(incoming, 1))?;
        end(out)
    });
    let with_key = Settings {
        api: Api::Chat,
        api_key: Some("secret\n".to_owned()),
        headers: vec![("x-team".to_owned(), "a".to_owned())],
        max_tokens: 1,
        num_warm: 1,
        ..settings(&mock)
    };
    let report = run(&with_key);
    assert_eq!(report.outcomes()["ok"], 3, "{:?}", report.outcomes());
    assert_about(report.cold.as_ref().unwrap().ttft_ms.unwrap(), 50.0);
    assert!(!serde_json::to_string(&report).unwrap().contains("secret"));
    let report = run(&Settings { api_key: None, ..with_key });
    assert_eq!(report.outcomes(), [("unauthorised", 1)].into_iter().collect());
    assert!(report.stopped.unwrap().contains("no key"));
}

#[test]
fn prompts_differ_unless_they_should_not() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let prompts = Arc::clone(&seen);
    let mock = Mock::start(move |incoming, out| {
        prompts.lock().unwrap().push(incoming.json()["prompt"].as_str().unwrap_or_default().to_owned());
        stream(incoming, out, Duration::ZERO, Duration::ZERO)
    });
    let of = |is_same_prompt| {
        run(&Settings { is_same_prompt, max_tokens: 1, num_warm: 2, ..settings(&mock) });
        let mut found = std::mem::take(&mut *seen.lock().unwrap());
        found.sort();
        found.dedup();
        found
    };
    assert_eq!((of(false).len(), of(true)), (4, vec!["Say hello from a small language model.".to_owned()]));
}

#[test]
fn a_server_with_several_models_needs_a_name_and_one_without_a_list_too() {
    let mock = Mock::start(|incoming, out| stream(incoming, out, Duration::ZERO, Duration::ZERO));
    let report = run(&Settings { model: Some("other".to_owned()), num_warm: 1, max_tokens: 1, ..settings(&mock) });
    assert_eq!(report.model, "other");
    let target = Target::parse(&format!("{}/elsewhere", mock.url())).unwrap();
    let report = run(&Settings { target, ..settings(&mock) });
    assert_eq!(report.outcomes(), [("not_found", 1)].into_iter().collect());
    assert!(report.stopped.unwrap().contains("--model"));
}

#[test]
fn a_capture_has_a_line_for_each_warm_request() {
    let mock = Mock::start(|incoming, out| {
        if incoming.number == 2 {
            return document(out, 500, "text/plain", "no");
        }
        events(out)?;
        piece(out, token("a"))?;
        std::thread::sleep(Duration::from_millis(20));
        piece(out, token("b") + &token("c"))?;
        piece(out, last(incoming, 3))?;
        end(out)
    });
    let report = run(&Settings { max_tokens: 3, num_warm: 3, ..settings(&mock) });
    let mut out = Vec::new();
    let written = ridgepoint_probe::capture::write(&report, &mut out).unwrap();
    assert_eq!((written.requests, written.failed), (3, 1));
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        (lines[0]["meta"]["source"].as_str(), lines[0]["meta"]["model"].as_str()),
        (Some("ridgepoint probe"), Some("planted"))
    );
    assert_eq!((lines[1]["output_tokens"].as_u64(), lines[1]["itl_tokens"][0].as_u64()), (Some(3), Some(2)));
    assert!(report.remarks()["several_tokens"] == 4 && report.warm[0].fault().is_some());
    assert!(report.warm_1.unwrap().remarks.contains(&Remark::SeveralTokens));
}
