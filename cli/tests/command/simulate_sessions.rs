//! `ridgepoint simulate` and `sweep` with sessions of several turns.

use crate::cli_support;

use cli_support::{Folder, run, simulate};
use serde_json::Value;

const SERVER: &str = "--model llama-3.1-8b --hardware h100 --max-model-len 4096";
const TURNS: &str = "--turns 3 --input-len 100 --output-len 10";

fn json_of(line: &str) -> Value {
    simulate(&format!("{SERVER} {line} --format json")).json()
}

#[test]
fn generated_sessions_grow_share_and_think() {
    let json = json_of(&format!("--concurrency 2 --num-sessions 4 --prefix-len 320 {TURNS}"));
    let (run, sessions) = (&json["stages"][0], &json["sessions"]);
    // Prompts of 420, 530 and 640 tokens.
    assert_eq!((run["finished"].as_u64(), run["input_tokens"].as_u64()), (Some(12), Some(4 * 1590)));
    assert_eq!(sessions["sessions"], 4);
    assert_eq!((&sessions["first_turns"]["requests"], &sessions["later_turns"]["requests"]), (&4.into(), &8.into()));
    // The first turns of two sessions at once share the 20 blocks of the prefix in the step that computes them.
    assert_eq!(sessions["first_turns"]["cached_tokens"], 3 * 320);
    // At least the whole blocks of the prompts before: 416 and 528.
    assert!(sessions["later_turns"]["cached_tokens"].as_u64().unwrap() >= 4 * (416 + 528), "{sessions}");
    let thinking = json_of(&format!("--concurrency 2 --num-sessions 4 --prefix-len 320 {TURNS} --think-time-s 30"));
    let duration_s = |json: &Value| json["stages"][0]["duration_s"].as_f64().unwrap();
    assert!(duration_s(&thinking) > duration_s(&json) + 30.0, "{}", duration_s(&thinking));
}

#[test]
fn the_table_lists_sessions_and_turns() {
    let table = simulate(&format!("{SERVER} --request-rate 5 --num-sessions 4 {TURNS} --seed 3")).stdout;
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "load sessions, 5 per second: 4 sessions of 3.0 turns on average: 12 requests in 1 stage",
        "turns sent finished",
        "first 4 4",
        "later 8 8",
    ] {
        assert!(table.contains(part), "'{part}' is not in {table}");
    }
}

#[test]
fn a_prefix_needs_no_turns() {
    let json = json_of("--concurrency 1 --num-requests 3 --random-prefix-len 160 --input-len 40 --output-len 2");
    assert_eq!((&json["stages"][0]["input_tokens"], &json["counters"]["cached_tokens"]), (&600.into(), &320.into()));
    assert!(json["sessions"].is_null());
}

#[test]
fn sessions_come_from_files_and_go_to_token_lines() {
    let folder = Folder::new();
    let turns = "session_id,arrival,input_len,output_len,think_time_s\na,0,64,20,\na,,200,5,2.5\nb,1,30,4,\n";
    let path = folder.write("turns.csv", turns);
    let (csv, tokens) = (folder.path("out.csv"), folder.path("tokens.jsonl"));
    let json = json_of(&format!("--requests {path} --output-csv {csv} --output-tokens {tokens}"));
    assert_eq!((&json["sessions"]["sessions"], &json["stages"][0]["finished"]), (&2.into(), &3.into()));
    assert!(json["load"].as_str().unwrap().contains("2 sessions of 1.5 turns on average"), "{}", json["load"]);
    let rows = folder.read("out.csv");
    assert_eq!(rows.lines().count(), 4);
    assert_eq!(folder.read("tokens.jsonl").lines().count(), 4);
    let agent = r#"{"session_id": 1, "arrival_time_ns": 0, "sub_requests": [{"input_toks": 50, "output_toks": 5}, {"input_toks": 9, "output_toks": 2}]}"#;
    let json = json_of(&format!("--requests {}", folder.write("agent.jsonl", agent)));
    assert!(json["warnings"].to_string().contains("input_toks is taken as the whole prompt"), "{}", json["warnings"]);
}

#[test]
fn flags_that_do_not_go_together_are_reported() {
    let fails = |code, line: &str, said: &[&str]| simulate(&format!("{SERVER} {line}")).fails(code, said);
    let lengths = "--input-len 5 --output-len 5";
    fails(2, &format!("--request-rate 1 {lengths} --turns 2"), &["--num-requests", "--num-sessions"]);
    fails(2, &format!("--request-rate 1 {lengths} --turns 2 --num-requests 4"), &["--turns", "cannot be used with"]);
    fails(2, &format!("--request-rate 1 {lengths} --num-sessions 4"), &["--turns"]);
    fails(
        2,
        &format!("--request-rate 1 {lengths} --num-requests 4 --think-time-s 1"),
        &["--think-time-s", "cannot be used with"],
    );
    fails(2, &format!("--concurrency 1 {lengths} --think-time-s 1"), &["--turns"]);
    fails(2, &format!("--concurrency 1 {lengths} --turns 0"), &["'0'", "--turns"]);
    fails(2, &format!("--concurrency 1 {lengths} --turns 2 --think-time-s -1"), &["at least 0"]);
    fails(2, "--requests r.csv --turns 2", &["cannot be used with"]);
    fails(
        1,
        &format!("--concurrency 1 {lengths} --turns 4000000"),
        &["the last of 4000000 turns has a prompt of up to"],
    );
    fails(1, &format!("--concurrency 1 {lengths} --turns 2 --think-time-s 1e9"), &["think_time_s = 1000000000"]);
    fails(1, &format!("--concurrency 1 {lengths} --turns 9000 --num-sessions 9000"), &["max_memory_gib", "81000000"]);
}

#[test]
fn a_sweep_varies_turns_and_finds_the_sessions_per_second() {
    let folder = Folder::new();
    let grid = |load: &str, rest: &str| {
        let text = format!(
            "[server]\nmodel = 'llama-3.1-8b'\nhardware = 'h100'\nmax_model_len = 4096\n[load]\ninput_len_tokens = 100\n\
             output_len_tokens = 10\nprefix_len_tokens = 64\nnum_sessions = 20\n{load}{rest}"
        );
        folder.write("grid.toml", text)
    };
    let sweep =
        |path: &str, out: &str| run(&["sweep", "--efficiency", "ideal", path, "--out", out, "--format", "json"]);
    let out = folder.path("rows.json");
    sweep(&grid("request_rate_per_s = 4\nturns = [1, 3]\nthink_time_s = 0.5\n", ""), &out).json();
    let rows: Value = serde_json::from_str(&folder.read("rows.json")).unwrap();
    let of = |row: usize, key: &str| rows[row][key].clone();
    assert_eq!((of(0, "finished"), of(1, "finished")), (20.into(), 60.into()));
    assert_eq!((of(1, "turns"), of(1, "num_requests"), of(1, "prefix_len_tokens")), (3.into(), 60.into(), 64.into()));
    let out = folder.path("slo.json");
    sweep(&grid("turns = 2\n", "[slo]\nttft_p99_ms = 200\nhighest_rate_per_s = 50\n"), &out).json();
    let rows: Value = serde_json::from_str(&folder.read("slo.json")).unwrap();
    assert!(rows[0]["request_rate_per_s"].as_f64().unwrap() > 1.0, "{rows}");
}
