//! Laws of workloads: no file makes a reader panic, and generated loads send what they promise.

use crate::data_pack as common;

use proptest::prelude::*;
use proptest::sample::Index;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{
    ArrivalPattern, ClosedLoop, OpenLoop, Prompts, RequestShape, RequestSource, Session, StageLoad, Workload,
    WorkloadRequest,
};

const SAMPLES: [(Format, &str); 8] = [
    (
        Format::Csv,
        "arrival_ms,input_len,output_len,prefix_group,prefix_len,priority,stage\n0,370,40,a,100,1,0\n12.5,400,110,,,-1,1\n",
    ),
    (
        Format::Jsonl,
        "{\"arrival\": 0, \"input_len\": 12, \"output_len\": 3}\n{\"arrival\": 0.5, \"input_len\": 9, \"output_len\": 1, \"prefix_group\": 4}\n",
    ),
    (
        Format::Mooncake,
        "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 1]}\n\
         {\"timestamp\": 3000, \"input_length\": 12, \"output_length\": 5, \"hash_ids\": [7]}\n",
    ),
    (
        Format::Azure,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-20 09:30:10.1234500,370,40\n2023-11-20 09:30:14.5000000,400,110\n",
    ),
    (
        Format::VllmBench,
        "{\"request_throughput\": 1.5, \"input_lens\": [3, 4], \"output_lens\": [5, 6], \"start_times\": [2.5, 1.5], \"errors\": [\"\", \"\"]}",
    ),
    (
        Format::LlmServingSim,
        "{\"input_toks\": 3, \"output_toks\": 5, \"arrival_time_ns\": 0, \"input_tok_ids\": [1, 2, 3], \"output_tok_ids\": [4]}\n\
         {\"input_toks\": 7, \"output_toks\": 5, \"arrival_time_ns\": 1000}\n",
    ),
    (
        Format::Csv,
        "session_id,arrival,turn,input_len,output_len,think_time_s,prefix_group\na,0.5,1,370,40,,g\na,,2,500,110,2.5,\n",
    ),
    (
        Format::LlmServingSim,
        "{\"session_id\": \"a\", \"arrival_time_ns\": 5, \"sub_requests\": [{\"input_toks\": 9, \"output_toks\": 5, \"tool_duration_ns\": 7}, \
         {\"input_toks\": 20, \"output_toks\": 5}]}\n",
    ),
];

const PROFILE: &str = "load:\n  type: constant\n  interval: 1.5\n  num_workers: 2\n  stages:\n  - {rate: 2.5, duration: 60}\n  - rate: 6\n    \
    duration: 10\ndata:\n  type: shared_prefix\n  shared_prefix: {num_groups: 3, num_prompts_per_group: 2, system_prompt_len: 100, \
    question_len: 20, output_len: 9}\nserver: {type: vllm, ignore_eos: true}\nreport: {prometheus: {per_stage: false}}\n";

/// Pieces that a mutation puts where something else stood.
const NASTY: [&str; 18] = [
    "",
    "\"",
    "{",
    "}",
    "[",
    ",",
    "\n",
    "-1",
    "0",
    "1e308",
    "nan",
    ".inf",
    "null",
    "18446744073709551616",
    "\u{feff}",
    "é",
    "\0",
    "\\",
];

/// What a file that was read promises.
fn check(file: &RequestFile) {
    let requests = match file.list() {
        RequestSource::Requests(list) => list.requests().to_vec(),
        RequestSource::Sessions(list) => {
            let sessions = list.sessions();
            let start_ns = |session: &Session| session.turns[0].request.arrival_ns;
            assert!(sessions.windows(2).all(|pair| start_ns(&pair[0]) <= start_ns(&pair[1])));
            sessions.iter().flat_map(|session| &session.turns).map(|turn| turn.request.clone()).collect()
        }
    };
    assert!(!requests.is_empty());
    let is_list = matches!(file.list(), RequestSource::Requests(_));
    assert!(!is_list || requests.windows(2).all(|pair| pair[0].arrival_ns <= pair[1].arrival_ns));
    for request in &requests {
        assert!(
            (1..=10_000_000).contains(&request.num_prompt_tokens)
                && (1..=10_000_000).contains(&request.num_output_tokens)
        );
        let shared: u64 = request.content.iter().flat_map(|c| c.iter()).map(|s| u64::from(s.num_tokens)).sum();
        let total = u64::from(request.num_prompt_tokens) + u64::from(request.num_output_tokens);
        assert!(shared <= if is_list { u64::from(request.num_prompt_tokens) } else { total } && request.stage < 1000);
    }
    assert_eq!(file.summary().requests, requests.len());
}

fn read_as_anything(bytes: &[u8]) {
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        match RequestFile::parse("file", bytes, format) {
            Ok(file) => check(&file),
            Err(error) => assert!(error.to_string().contains("file"), "{error}"),
        }
    }
    if let Err(error) = Profile::parse("profile", &String::from_utf8_lossy(bytes)) {
        assert!(error.to_string().starts_with("profile: "), "{error}");
    }
}

fn mutated(text: &str, changes: &[(Index, usize, usize)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (place, removed, piece) in changes {
        let start = place.index(bytes.len() + 1);
        let end = (start + removed).min(bytes.len());
        bytes.splice(start..end, NASTY[*piece].bytes());
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(Index, usize, usize)>> {
    prop::collection::vec((any::<Index>(), 0usize..6, 0..NASTY.len()), 1..5)
}

/// Sends a load to a server that takes `service_ns` for everything. Returns the requests and the most in flight at once.
fn serve(load: &mut dyn Workload, service_ns: u64) -> (Vec<WorkloadRequest>, usize) {
    let (mut sent, mut over, mut most) = (Vec::<WorkloadRequest>::new(), 0, 0);
    loop {
        let finish_ns = sent.get(over).map(|request| request.arrival_ns + service_ns);
        match (load.next_arrival_ns(), finish_ns) {
            (Some(arrival_ns), finish_ns) if finish_ns.is_none_or(|finish_ns| arrival_ns < finish_ns) => {
                let request = load.next_request().unwrap();
                assert_eq!(request.arrival_ns, arrival_ns);
                sent.push(request);
                most = most.max(sent.len() - over);
            }
            (_, Some(finish_ns)) => {
                load.finished(finish_ns, sent[over].stage, over as u32);
                over += 1;
            }
            (_, None) => break,
        }
    }
    assert!(sent.windows(2).all(|pair| pair[0].arrival_ns <= pair[1].arrival_ns && pair[0].stage <= pair[1].stage));
    assert_eq!(load.expected_requests(), Some(sent.len()));
    (sent, most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_as_anything(&bytes);
    }

    #[test]
    fn no_damage_to_a_file_makes_a_reader_panic(sample in 0..SAMPLES.len(), changes in changes()) {
        read_as_anything(&mutated(SAMPLES[sample].1, &changes));
    }

    #[test]
    fn no_damage_to_a_profile_makes_its_reader_panic(changes in changes()) {
        read_as_anything(&mutated(PROFILE, &changes));
    }

    #[test]
    fn stages_send_what_they_say_one_after_the_other(
        kind in 0usize..3,
        stages in prop::collection::vec((1u32..40, 1u32..20), 1..4),
        workers in prop::option::of(1u32..4),
        service_ns in 1u64..5_000_000_000,
        seed in any::<u64>(),
    ) {
        let kinds = ["constant", "poisson", "concurrent"];
        let list: Vec<String> = stages
            .iter()
            .map(|(a, b)| match kind {
                2 => format!("{{num_requests: {a}, concurrency_level: {b}}}"),
                _ => format!("{{rate: {a}, duration: {b}}}"),
            })
            .collect();
        let workers = workers.map_or(String::new(), |n| format!("num_workers: {n}, worker_max_concurrency: 5, "));
        let text = format!("load: {{type: {}, {workers}stages: [{}]}}\ndata: {{}}\n", kinds[kind], list.join(", "));
        let profile = Profile::parse("profile", &text).unwrap();
        let (sent, most) = serve(&mut *profile.workload(seed), service_ns);
        let (again, _) = serve(&mut *profile.workload(seed), service_ns);
        prop_assert_eq!(&sent, &again);
        prop_assert_eq!(profile.summary(seed).requests, sent.len());
        for (stage, load) in profile.stages.iter().enumerate() {
            let mut of_stage = sent.iter().filter(|request| request.stage as usize == stage);
            prop_assert_eq!(of_stage.clone().count() as u64, load.num_requests());
            let pauses = sent.windows(2).find(|pair| pair[0].stage as usize == stage && pair[1].stage as usize == stage + 1);
            if let Some([last, first]) = pauses {
                prop_assert!(first.arrival_ns >= last.arrival_ns + service_ns + 3_000_000_000);
            }
            if let (StageLoad::Constant { duration_s, .. }, 0, None) = (load, stage, profile.max_in_flight) {
                prop_assert_eq!(of_stage.next_back().unwrap().arrival_ns, (*duration_s as u64) * 1_000_000_000);
            }
        }
        let limit = match profile.stages.iter().map(|stage| match stage {
            StageLoad::Concurrent { concurrency_level, .. } => *concurrency_level as usize,
            _ => 0,
        }).max() {
            Some(level) if level > 0 => level,
            _ => profile.max_in_flight.map_or(usize::MAX, |limit| limit as usize),
        };
        prop_assert!(most <= limit, "{} in flight, {} allowed", most, limit);
    }

    #[test]
    fn a_closed_loop_is_full_until_its_requests_run_out(
        concurrency in 1u32..20,
        num_requests in 1u64..100,
        service_ns in 1u64..1_000,
    ) {
        let shape = RequestShape::new(10, 5);
        let mut load = ClosedLoop::new(concurrency, num_requests, shape).unwrap();
        let (sent, most) = serve(&mut load, service_ns);
        prop_assert_eq!(sent.len() as u64, num_requests);
        prop_assert_eq!(most as u64, u64::from(concurrency).min(num_requests));
        // Request i waits for i / concurrency rounds.
        for (index, request) in sent.iter().enumerate() {
            prop_assert_eq!(request.arrival_ns, index as u64 / u64::from(concurrency) * service_ns);
        }
    }
}

#[test]
fn samples_are_what_they_are_called_and_read() {
    for (format, text) in SAMPLES {
        let file = RequestFile::parse("sample", text.as_bytes(), None).unwrap();
        assert_eq!((file.format, file.summary().requests), (format, 2));
        assert_eq!(RequestFile::parse("sample", text.as_bytes(), Some(format)).unwrap().summary(), file.summary());
    }
    assert_eq!(Profile::parse("profile", PROFILE).unwrap().summary(0).requests, 150 + 60);
}

#[test]
fn a_million_requests_need_no_list() {
    let mut load = OpenLoop::new(ArrivalPattern::Poisson, 1000.0, 1_000_000, RequestShape::new(512, 128), 1).unwrap();
    let (mut count, mut last_ns) = (0, 0);
    while let Some(request) = load.next_request() {
        assert!(request.arrival_ns >= last_ns && request.content.is_none());
        (count, last_ns) = (count + 1, request.arrival_ns);
    }
    assert_eq!(count, 1_000_000);
    // 1,000 s, give or take five standard errors of 1 s.
    assert!((995.0..1005.0).contains(&(last_ns as f64 / 1e9)), "{last_ns}");
    assert!(size_of::<OpenLoop>() < 512);
}

#[test]
fn profiles_of_measured_runs_are_read_as_they_were_sent() {
    let Some(data) = common::data_pack("profiles of measured runs") else { return };
    let mut read = 0;
    for folder in std::fs::read_dir(data.join("serving")).unwrap() {
        let profile = Profile::read(&folder.unwrap().path().join("profile.yaml")).unwrap();
        let is_told = |note: &String| {
            note.starts_with("data.shared_prefix.enable_multi_turn_chat = true: read as inference-perf up to")
        };
        assert!(profile.notes.iter().all(is_told), "{:?}", profile.notes);
        assert!(matches!(profile.prompts, Prompts::SharedPrefix { .. }));
        eprintln!("{}: {}", profile.origin, profile.summary(0));
        read += 1;
    }
    assert!(read > 0);
}
