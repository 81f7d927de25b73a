//! Tests of loads: their product, which keys go together, and what a replica gets of them.

use ridgepoint_replay::workload::{NormalLengths, ReplicaShare};

use super::*;
use crate::sweep::Grid;

/// The loads of a grid.
struct Loads {
    source: Source,
    points: Vec<LoadPoint>,
    varied: Vec<String>,
}

const SERVER: &str = "[server]\nmodel = 'qwen3-8b'\nhardware = 'h100'\n";
const SLO: &str = "\n[slo]\nttft_p99_ms = 500\n";

fn read(load: &str, slo: &str) -> std::result::Result<Loads, Vec<String>> {
    match Grid::parse("grid.toml", &format!("{SERVER}[load]\n{load}{slo}")) {
        Ok(grid) => Ok(Loads {
            varied: grid.loads.iter().map(|of| of.varied.clone()).collect(),
            points: grid.loads.iter().map(|of| of.value).collect(),
            source: grid.source,
        }),
        Err(error) => Err(error.problems().to_vec()),
    }
}

fn loads(text: &str) -> Loads {
    read(text, "").unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn problems(text: &str) -> Vec<String> {
    read(text, "").err().unwrap()
}

const LENGTHS: &str = "input_len_tokens = 100\noutput_len_tokens = 10\n";

fn sent(source: &Source, load: &LoadPoint, rate_per_s: Option<f64>, replicas: u32) -> Vec<(u64, u32)> {
    let mut workload = source.workload(load, rate_per_s, ReplicaShare::new(replicas)).unwrap();
    std::iter::from_fn(|| workload.next_request())
        .map(|request| (request.arrival_ns, request.num_prompt_tokens))
        .collect()
}

/// Requests at 10, 11, 12 and 14 s: 3 gaps in 4 s are 0.75 per second.
fn file() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.csv");
    std::fs::write(&path, "arrival,input_len,output_len\n10,1,1\n11,2,1\n12,3,1\n14,4,1\n").unwrap();
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn every_combination_is_a_load_and_the_seed_changes_fastest() {
    let text = "request_rate_per_s = [1, 2.5]\ninput_len_tokens = [10, 20, 30]\nburstiness = [0.5, 1]\nseed = [7, 8]\noutput_len_tokens = 5\nnum_requests = 50";
    let Loads { points: found, varied, .. } = loads(text);
    // 3 inputs × 1 output × 2 shapes × 2 rates × 2 seeds.
    assert_eq!(found.len(), 24);
    let of = |at: usize| {
        let load = found[at].generated;
        (load.input_len.unwrap(), load.burstiness.unwrap(), load.request_rate, found[at].seed)
    };
    assert_eq!(of(0), (NormalLengths::fixed(10), 0.5, Some(1.0), 7));
    assert_eq!(of(1), (NormalLengths::fixed(10), 0.5, Some(1.0), 8));
    assert_eq!(of(2), (NormalLengths::fixed(10), 0.5, Some(2.5), 7));
    assert_eq!(of(4), (NormalLengths::fixed(10), 1.0, Some(1.0), 7));
    assert_eq!(of(23), (NormalLengths::fixed(30), 1.0, Some(2.5), 8));
    assert_eq!(varied[2], "input_len_tokens 10, burstiness 0.5, request_rate_per_s 2.5, seed 7");
    assert_eq!(loads(&format!("concurrency = 1\n{LENGTHS}")).varied, [""]);
}

#[test]
fn closed_loops_have_ten_requests_for_each_in_flight_by_default() {
    let found = loads(&format!("concurrency = [4, 16]\n{LENGTHS}")).points;
    let of = |load: &LoadPoint| (load.generated.concurrency, load.generated.count());
    assert_eq!(of(&found[0]), (Some(4), 40));
    assert_eq!(of(&found[1]), (Some(16), 160));
    let found = loads(&format!("concurrency = 4\nnum_requests = 9\n{LENGTHS}"));
    assert_eq!(found.points[0].generated.count(), 9);
    assert_eq!(sent(&found.source, &found.points[0], None, 1).len(), 4, "the rest is sent as others finish");
    assert_eq!(sent(&found.source, &found.points[0], None, 2).len(), 2);
}

#[test]
fn a_rate_scales_the_same_arrivals_and_replicas_share_it() {
    let found = loads(&format!("request_rate_per_s = 8\nnum_requests = 101\nseed = 5\n{LENGTHS}"));
    let load = &found.points[0];
    let (one, twice) = (sent(&found.source, load, Some(8.0), 1), sent(&found.source, load, Some(16.0), 1));
    assert_eq!((one.len(), twice.len()), (101, 101));
    assert!(one.iter().zip(&twice).all(|(one, twice)| one.0.abs_diff(2 * twice.0) <= 2), "same gaps, half as long");
    // 101 requests on 4 replicas are 26 each, at a quarter of the rate.
    let quarter = sent(&found.source, load, Some(8.0), 4);
    assert_eq!((quarter.len(), quarter[..20].to_vec()), (26, sent(&found.source, load, Some(2.0), 1)[..20].to_vec()));
}

#[test]
fn lengths_can_be_drawn() {
    let text = "request_rate_per_s = 1\nnum_requests = 300\noutput_len_tokens = 3\ninput_len_tokens = [64, { min = 10, max = 90, mean = 50, std_dev = 10 }]";
    let found = loads(text);
    assert!(sent(&found.source, &found.points[0], Some(1.0), 1).iter().all(|(_, tokens)| *tokens == 64));
    let drawn = sent(&found.source, &found.points[1], Some(1.0), 1);
    assert!(drawn.iter().all(|(_, tokens)| (10..=90).contains(tokens)) && drawn[0].1 != drawn[1].1, "{drawn:?}");
    assert_eq!(found.source.shape(&found.points[1]), (50.0, 3.0, 300));
    assert_eq!(found.varied[1], r#"input_len_tokens {"max":90,"mean":50,"min":10,"std_dev":10}"#);
}

#[test]
fn a_list_is_sent_as_it_is_or_at_a_rate() {
    let (_folder, path) = file();
    let found = loads(&format!("requests = '{path}'"));
    assert_eq!((found.points.len(), found.points[0].generated.request_rate), (1, None));
    let as_recorded = sent(&found.source, &found.points[0], None, 1);
    assert_eq!(as_recorded, [(10_000_000_000, 1), (11_000_000_000, 2), (12_000_000_000, 3), (14_000_000_000, 4)]);
    // Twice its own rate is half its times; the second of two replicas' requests are left out.
    let twice = sent(&found.source, &found.points[0], Some(1.5), 2);
    assert_eq!(twice, [(5_000_000_000, 1), (6_000_000_000, 3)]);
    let found = loads(&format!("requests = '{path}'\nrequest_rate_per_s = [1, 2, 3]"));
    assert_eq!(found.points.len(), 3);
}

#[test]
fn sessions_are_made_of_turns_and_share_a_prefix() {
    let text = "request_rate_per_s = 2\nnum_sessions = 6\nturns = [1, 3]\nprefix_len_tokens = 50\nthink_time_s = 2.5\n";
    let found = loads(&format!("{text}{LENGTHS}"));
    let session = |load: &LoadPoint| (load.generated.turns, load.generated.prefix_len, load.generated.think_time_s);
    assert_eq!(session(&found.points[1]), (Some(3), Some(50), Some(2.5)));
    assert_eq!((found.source.num_requests(&found.points[0]), found.source.num_requests(&found.points[1])), (6, 18));
    assert_eq!((found.varied[0].as_str(), found.varied[1].as_str()), ("turns 1", "turns 3"));
    // What nobody waits for is the first turns, half of them on one of two replicas.
    let first = sent(&found.source, &found.points[1], Some(2.0), 2);
    assert_eq!((first.len(), first[0].1), (3, 150));
    let found = loads(&format!("concurrency = 4\nturns = 2\n{LENGTHS}"));
    assert_eq!((found.points[0].generated.count(), found.source.num_requests(&found.points[0])), (40, 80));
    let found = loads(&format!("concurrency = 4\nprefix_len_tokens = 9\n{LENGTHS}"));
    assert_eq!(session(&found.points[0]), (None, Some(9), None));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turns.csv");
    let rows = "session_id,arrival,input_len,output_len\na,10,1,1\nb,14,2,1\na,,3,1\n";
    std::fs::write(&path, rows).unwrap();
    let found = loads(&format!("requests = '{}'\nrequest_rate_per_s = 0.5", path.display()));
    // One start in 4 s, twice as fast.
    let starts = sent(&found.source, &found.points[0], Some(0.5), 1);
    assert_eq!(starts, [(5_000_000_000, 1), (7_000_000_000, 2)]);
}

#[test]
fn keys_that_do_not_go_together_are_reported() {
    let (_folder, path) = file();
    for (text, said) in [
        (LENGTHS.to_owned() + "num_requests = 1", "[load] has no load: give one of request_rate, concurrency"),
        (
            format!("concurrency = 1\nrequest_rate_per_s = 1\nnum_requests = 1\n{LENGTHS}"),
            "[load] has concurrency and request_rate",
        ),
        (format!("requests = '{path}'\nconcurrency = 1"), "says when its requests arrive: leave out concurrency"),
        (format!("concurrency = 1\nburstiness = 2\n{LENGTHS}"), "load.burstiness = 2 cannot be given with concurrency"),
        (format!("requests = '{path}'\nseed = 3"), "load.seed = 3 changes nothing"),
        (format!("requests = '{path}'\ninput_len_tokens = 3"), "load.input_len = 3 cannot be given with requests"),
        (format!("requests = '{path}'\nrequests_format = 'xml'"), "load.requests_format = \"xml\" must be one of csv"),
        (format!("request_rate_per_s = 1\n{LENGTHS}"), "load.request_rate = 1 needs num_requests or num_sessions"),
        ("request_rate_per_s = 1\nnum_requests = 2".to_owned(), "load.request_rate = 1 needs input_len"),
        ("requests = 'no/such.csv'".to_owned(), "[load] requests: no/such.csv"),
        ("profile = 'no/such.yaml'".to_owned(), "[load] profile: no/such.yaml"),
        (
            "concurrency = 1\noutput_len_tokens = 1\ninput_len_tokens = { min = 1, max = 5, mean = 6, std_dev = 1 }"
                .to_owned(),
            "load.input_len_tokens = {",
        ),
        (format!("concurrency = 1\n{LENGTHS}rate = 5"), "load.rate is not a known key"),
        (
            format!("concurrency = 1\nthink_time_s = 1\n{LENGTHS}"),
            "load.think_time_s = 1 needs turns: it is of sessions",
        ),
        (
            format!("request_rate_per_s = 1\nturns = 2\nnum_requests = 5\n{LENGTHS}"),
            "load.num_requests = 5 cannot be given with turns: give num_sessions",
        ),
        (format!("request_rate_per_s = 1\nturns = 2\n{LENGTHS}"), "needs num_requests or num_sessions"),
        (format!("concurrency = 1\nturns = 0\n{LENGTHS}"), "load.turns = 0 must be a whole number from 1"),
        (format!("requests = '{path}'\nturns = 2"), "load.turns = 2 cannot be given with requests"),
    ] {
        let problems = problems(&text);
        assert!(problems.iter().any(|problem| problem.contains(said)), "'{said}' is not in {problems:?}");
    }
}

#[test]
fn limits_bring_the_rate_themselves() {
    let (_folder, path) = file();
    let found = read(&format!("num_requests = 5\nseed = [1, 2]\n{LENGTHS}"), SLO).ok().unwrap();
    assert_eq!((found.points.len(), found.points[0].generated.request_rate), (2, None));
    let found = read(&format!("requests = '{path}'"), SLO).ok().unwrap();
    assert_eq!(found.points[0].generated.request_rate, None);
    let problems = read(&format!("request_rate_per_s = 5\nnum_requests = 5\n{LENGTHS}"), SLO).err().unwrap();
    assert!(problems[0].contains("with [slo], which finds the highest rate, give requests or none"), "{problems:?}");
    std::fs::write(&path, "arrival,input_len,output_len\n3,1,1\n3,2,1\n").unwrap();
    let problems = read(&format!("requests = '{path}'"), SLO).err().unwrap();
    assert!(problems[0].contains("sends everything at once"), "{problems:?}");
}
