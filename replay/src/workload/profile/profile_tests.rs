use ridgepoint::units::NS_PER_S;

use super::*;
use crate::workload::NormalLengths;

const DATA: &str = "data: {type: shared_prefix, shared_prefix: {num_unique_system_prompts: 11, num_users_per_system_prompt: 4, \
                    system_prompt_len: 100, question_len: 466, output_len: 247, enable_multi_turn_chat: false}}\n";
const LOAD: &str = "load: {type: constant, stages: [{rate: 5.0, duration: 600}, {rate: 10, duration: 600}]}\n";

fn parse(text: &str) -> Result<Profile> {
    Profile::parse("profile.yaml", text)
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// The error of a profile whose load has `keys` besides its stages.
fn load_error(keys: &str) -> String {
    error(&format!("load: {{stages: [{{rate: 1, duration: 1}}], {keys}}}\n{DATA}"))
}

#[test]
fn a_profile_as_runs_are_made_with() {
    let text = format!(
        "api: {{streaming: true, type: completion}}\nserver: {{type: vllm, model_name: some/model, ignore_eos: true}}\n{DATA}{LOAD}"
    );
    let profile = parse(&text).unwrap();
    let stage = |rate_per_s| StageLoad::Constant { rate_per_s, duration_s: 600.0 };
    assert_eq!(profile.stages, [stage(5.0), stage(10.0)]);
    let prompts = Prompts::SharedPrefix {
        num_groups: 11,
        num_prompts_per_group: 4,
        system_prompt_len: 100,
        question_len: 466,
        output_len: 247,
    };
    assert_eq!((profile.prompts.clone(), profile.interval_ns, profile.max_in_flight), (prompts, NS_PER_S, None));
    assert_eq!(profile.notes, Vec::<String>::new());
    assert_eq!(
        profile.summary(1).to_string(),
        "9000 requests in 2 stages, 566.0 prompt and 247.0 output tokens on average, 813 together at most"
    );
    assert_eq!(profile.workload(1).expected_requests(), Some(9000));
}

#[test]
fn profiles_with_multi_turn_chat_are_those_of_versions_that_ignore_it() {
    let groups = |data: &str| {
        let profile = parse(&format!("{data}{LOAD}")).unwrap();
        let Prompts::SharedPrefix { num_groups, num_prompts_per_group, question_len: 466, .. } = profile.prompts else {
            panic!("{:?}", profile.prompts)
        };
        assert!(profile.notes[0].contains("read as inference-perf up to 0.2.0 does"), "{:?}", profile.notes);
        [num_groups, num_prompts_per_group]
    };
    let multi_turn = DATA.replace("false", "true");
    assert_eq!(groups(&multi_turn), [10, 10]);
    assert_eq!(groups(&multi_turn.replace("num_unique_system_prompts", "num_groups")), [11, 10]);
}

#[test]
fn json_says_the_same_as_yaml() {
    let yaml = parse(&format!("{LOAD}{DATA}")).unwrap();
    let json = r#"{"load": {"type": "constant", "stages": [{"rate": 5.0, "duration": 600}, {"rate": 10, "duration": 600}]},
        "data": {"type": "shared_prefix", "shared_prefix": {"num_groups": 11, "num_prompts_per_group": 4, "system_prompt_len": 100,
        "question_len": 466, "output_len": 247}, "trace": null, "input_distribution": null}}"#;
    assert_eq!(parse(json).unwrap(), yaml);
}

#[test]
fn the_same_seed_gives_the_same_requests() {
    let profile = parse(&format!("load: {{type: poisson, stages: [{{rate: 20, duration: 5}}]}}\n{DATA}")).unwrap();
    let requests = |seed| {
        let mut load = profile.workload(seed);
        std::iter::from_fn(move || load.next_request()).collect::<Vec<_>>()
    };
    assert_eq!(requests(3).len(), 100);
    assert_eq!(requests(3), requests(3));
    assert_ne!(requests(3), requests(4));
}

#[test]
fn concurrent_loads_have_their_own_keys() {
    let text = format!("load: {{type: concurrent, stages: [{{concurrency_level: 8, num_requests: 100}}]}}\n{DATA}");
    let profile = parse(&text).unwrap();
    assert_eq!(profile.stages, [StageLoad::Concurrent { concurrency_level: 8, num_requests: 100 }]);
    let mut load = profile.workload(1);
    assert_eq!(std::iter::from_fn(|| load.next_request()).count(), 8);
    let error = error(&format!("load: {{type: concurrent, stages: [{{concurrency_level: 0, rate: 3}}]}}\n{DATA}"));
    for part in [
        "load.stages[0].concurrency_level = 0 must be a whole number from 1",
        "load.stages[0].num_requests is missing",
        "load.stages[0].rate = 3 belongs to load.type constant or poisson",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn workers_limit_requests_in_flight_where_their_number_is_known() {
    let limit = |keys: &str| {
        let text = format!("load: {{stages: [{{rate: 1, duration: 1}}], type: constant, {keys}}}\n{DATA}");
        parse(&text).map(|profile| (profile.max_in_flight, profile.notes.len()))
    };
    assert_eq!(limit("num_workers: 4").unwrap(), (Some(400), 0));
    assert_eq!(limit("num_workers: 4, worker_max_concurrency: 10").unwrap(), (Some(40), 0));
    assert_eq!(limit("worker_max_concurrency: 10").unwrap(), (None, 1));
    assert_eq!(
        limit("num_workers: 4, worker_max_concurrency: 10, worker_max_tcp_connections: 10").unwrap().0,
        Some(40)
    );
    let starved = limit("worker_max_concurrency: 10, worker_max_tcp_connections: 9").unwrap_err().to_string();
    assert!(starved.contains("load.worker_max_tcp_connections = 9 is below"), "{starved}");
    assert!(limit("num_workers: 0").is_err());
}

#[test]
fn the_pause_is_the_interval_or_what_prometheus_needs() {
    let interval = |load: &str, rest: &str| {
        let text = format!("load: {{type: constant, stages: [{{rate: 1, duration: 1}}]{load}}}\n{DATA}{rest}");
        parse(&text).unwrap().interval_ns
    };
    assert_eq!(interval(", interval: 0.25", ""), NS_PER_S / 4);
    let metrics = "metrics: {type: prometheus, prometheus: {url: 'http://localhost', scrape_interval: 20}}\n";
    assert_eq!(interval("", metrics), NS_PER_S);
    let both = format!("{metrics}report: {{prometheus: {{per_stage: true}}}}\n");
    assert_eq!((interval("", &both), interval(", interval: 30", &both)), (20 * NS_PER_S, 30 * NS_PER_S));
}

#[test]
fn random_and_synthetic_lengths() {
    let text = |kind: &str, keys: &str| {
        format!(
            "{LOAD}data: {{type: {kind}, input_distribution: {{min: 10, max: 5000, mean: 500, std_dev: 100{keys}}}, \
             output_distribution: {{min: 5, max: 5, mean: 5, std_dev: 0}}}}\n"
        )
    };
    let profile = parse(&text("random", ", total_count: 6000")).unwrap();
    let Prompts::Random { input, output } = &profile.prompts else { panic!("{:?}", profile.prompts) };
    assert_eq!((input.min, input.max, output.max), (10, 5000, 5));
    // 9,000 draws with a standard error of about 1.3 tokens (the second stage begins with the lengths of the first).
    let mean = profile.summary(1).mean_input_tokens;
    assert!((mean - 500.0).abs() < 5.0, "{mean}");
    assert!(parse(&text("synthetic", "")).unwrap().notes[0].contains("4174 words"));
    let short = error(&text("random", ", total_count: 5999"));
    assert!(short.contains("data.input_distribution.total_count = 5999 is less than the 6000 requests"), "{short}");
}

#[test]
fn defaults_of_inference_perf_are_reported() {
    let profile = parse(&format!("{LOAD}data: {{type: shared_prefix, shared_prefix: {{question_len: 7}}}}")).unwrap();
    assert_eq!(profile.notes.len(), 4);
    assert!(profile.notes[0].contains("data.shared_prefix.num_groups is not given"), "{:?}", profile.notes);
    assert_eq!(profile.summary(0).max_total_tokens, 100 + 7 + 50);
    let mock = parse("load: {stages: [{rate: 1, duration: 1}]}\ndata: {}").unwrap();
    assert_eq!((mock.prompts.clone(), mock.notes.len(), mock.summary(0).max_total_tokens), (Prompts::Mock, 3, 33));
}

#[test]
fn keys_that_would_change_the_load_are_refused() {
    for (keys, expected) in [
        ("sweep: {type: linear}", "load.sweep = {\"type\":\"linear\"} is not supported"),
        ("trace: {file: a.csv}", "load.trace = {\"file\":\"a.csv\"} is not supported: give the trace itself"),
        (
            "circuit_breakers: [slow]",
            "load.circuit_breakers = [\"slow\"] is not supported, because it ends stages early",
        ),
        ("request_timeout: 30", "load.request_timeout = 30 is not supported, because it cancels requests: remove it"),
        (
            "type: trace_replay",
            "load.type = \"trace_replay\" is not supported: use constant, poisson or concurrent; give",
        ),
        ("type: burst", "load.type = \"burst\" is not supported: use constant, poisson or concurrent"),
    ] {
        let error = load_error(keys);
        assert!(error.starts_with("profile.yaml: ") && error.contains(expected), "{error}");
    }
    for (section, expected) in [
        ("circuit_breakers: [{name: slow}]", "circuit_breakers = [{\"name\":\"slow\"}] is not supported"),
        ("server: {ignore_eos: false}", "server.ignore_eos = false leaves the length of outputs to the model"),
    ] {
        let error = error(&format!("{LOAD}{DATA}{section}\n"));
        assert!(error.contains(expected), "{error}");
    }
    for (data, expected) in [
        (
            "type: shareGPT, path: x.json",
            "data.type = \"shareGPT\" is not supported, because its lengths come from texts",
        ),
        ("type: random, trace: {file: x}", "data.trace = {\"file\":\"x\"} is not supported"),
        ("type: random", "data.input_distribution is missing"),
        ("type: shared_prefix", "data.shared_prefix is missing"),
        ("type: mock, shared_prefix: {num_groups: 1}", "is not used by data.type mock: remove it"),
    ] {
        let error = error(&format!("{LOAD}data: {{{data}}}\n"));
        assert!(error.contains(expected), "{error}");
    }
    // Switched off, they change nothing.
    let off = "type: constant, sweep: null, trace: null, circuit_breakers: [], request_timeout: null";
    assert!(parse(&format!("load: {{stages: [{{rate: 1, duration: 1, num_requests: null}}], {off}}}\n{DATA}")).is_ok());
}

#[test]
fn unknown_keys_anywhere_are_errors() {
    let error = error(
        "lod: 1\napi: {typ: chat}\nload: {stages: [{rate: 1, duration: 1, jitter: 2}], base_seed: 3}\n\
         data: {type: shared_prefix, shared_prefix: {question_length: 5}, size: 1}\nserver: {url: x}\n\
         report: {request_lifecycle: {percentiles: [1]}}\nmetrics: {prometheus: {every: 1}}\nstorage: {local_storage: {dir: x}}\n\
         tokenizer: {name: x}\n",
    );
    for part in [
        "lod is not a known key: did you mean load?",
        "api.typ is not a known key: did you mean type?",
        "load.stages[0].jitter is not a known key",
        "load.base_seed is not a known key",
        "data.shared_prefix.question_length is not a known key: did you mean question_len?",
        "data.size is not a known key",
        "server.url is not a known key",
        "metrics.prometheus.every is not a known key",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn all_wrong_values_are_reported_at_once() {
    let error = error(
        "load: {type: constant, interval: -1, stages: [{rate: 0, duration: 60}, {rate: .nan, duration: -5}, {rate: -2.5}, \
         {rate: .inf, duration: 0}, {rate: 0.5, duration: 1}, {rate: fast, duration: 1e9}, 7]}\n\
         data: {type: shared_prefix, shared_prefix: {num_groups: 0, num_unique_system_prompts: 2, output_len: 0, question_len: 2.5, \
         system_prompt_len: -1, enable_multi_turn_chat: maybe}}\n",
    );
    for part in [
        "load.interval = -1 must be a number of at least 0",
        "load.stages[0].rate = 0 must be a number above 0 and at most 1000000 requests per second",
        "load.stages[1].rate = \".nan\" must be a number above 0",
        "load.stages[1].duration = -5 must be a number above 0",
        "load.stages[2].duration is missing",
        "load.stages[3].rate = \".inf\" must be",
        "load.stages[4] = {\"duration\":1,\"rate\":0.5} sends no request: rate × duration must be at least 1",
        "load.stages[5].rate = \"fast\" must be",
        "load.stages[6] = 7 must be an object",
        "data.shared_prefix.num_groups = 0 must be a whole number from 1 to 10000000",
        "data.shared_prefix.system_prompt_len = -1 must be a whole number from 0",
        "data.shared_prefix.question_len = 2.5 must be a whole number",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = parse(&format!(
        "{LOAD}data: {{type: shared_prefix, shared_prefix: {{num_groups: 4, num_unique_system_prompts: 2, output_len: 0, \
         question_len: 0, system_prompt_len: 0, num_prompts_per_group: 9000000, enable_multi_turn_chat: maybe}}}}\n"
    ));
    let error = error.unwrap_err().to_string();
    for part in [
        "and data.shared_prefix.num_unique_system_prompts = 2 are names of one setting: keep one",
        "data.shared_prefix.output_len = 0 must be a whole number from 1 to 10000000",
        "data.shared_prefix.enable_multi_turn_chat = \"maybe\" must be true or false",
        "make 36000000 prompts, at most 10000000",
        "make prompts of 0 tokens",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn distributions_must_be_possible() {
    let error = error(&format!(
        "{LOAD}data: {{type: random, input_distribution: {{min: 100, max: 50, mean: 70, std_dev: -1}}, \
         output_distribution: {{min: 0, max: 20000000, mean: 5, std_dev: .nan}}}}\n"
    ));
    for part in [
        "data.input_distribution.mean = 70 must lie from min = 100 to max = 50",
        "data.input_distribution.std_dev = -1 must be",
        "data.output_distribution.min = 0 must be",
        "data.output_distribution.max = 20000000 must be",
        "data.output_distribution.std_dev = \".nan\" must be",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_load_ends_before_the_clock_does() {
    // Eleven stages of 10⁸ s, or eleven pauses, are more than the 10⁹ s that a replay counts.
    let stages = |count: usize, stage: &str| vec![stage; count].join(", ");
    let long = stages(11, "{rate: 1.0e-8, duration: 100000000}");
    let whole = |load: &str| error(&format!("load: {{{load}}}\n{DATA}"));
    let error = whole(&format!("stages: [{long}]"));
    assert!(
        error.contains("load.stages and the pauses between them take 1100000010 s, at most 1000000000 s"),
        "{error}"
    );
    let pauses = stages(12, "{rate: 1, duration: 1}");
    let error = whole(&format!("interval: 100000000, stages: [{pauses}]"));
    assert!(error.contains("take 1100000012 s"), "{error}");
    let many = whole("stages: [{rate: 10, duration: 100000000}]");
    assert!(many.contains("send 1000000000 requests, at most 100000000 are possible"), "{many}");
}

#[test]
fn what_is_no_profile_says_so() {
    assert!(error("").contains("is empty"), "{}", error(""));
    assert!(error("load: [").contains("can't be read as YAML or JSON"));
    assert!(error("load: {}\nload: {}\n").contains("can't be read as YAML or JSON"));
    assert!(error("just words").contains("\"just words\" must be an object of keys and values"));
    let missing = error("server: {}");
    assert!(missing.contains("load is missing") && missing.contains("data is missing"), "{missing}");
    assert!(
        error(&format!("load: {{stages: []}}\n{DATA}")).contains("load.stages = [] must be a list of 1 to 1000 stages")
    );
}

const SESSIONS: &str = "data: {type: sessions, sessions: {turns: 3, prefix_len: 1000, think_time_s: 2}, input_distribution: {min: 200, max: 200, \
                        mean: 200, std_dev: 0}, output_distribution: {min: 50, max: 50, mean: 50, std_dev: 0}}\n";

#[test]
fn sessions_of_a_profile_are_those_of_the_flags() {
    let profile =
        parse(&format!("{SESSIONS}load: {{type: poisson, stages: [{{rate: 0.5, duration: 40}}]}}\n")).unwrap();
    let fixed = NormalLengths::fixed;
    let shape = SessionShape { turns: 3, prefix_len: 1000, input: fixed(200), output: fixed(50), think_time_s: 2.0 };
    let starts = SessionStarts::Rate { pattern: ArrivalPattern::Poisson, per_s: 0.5 };
    let same = GeneratedSessions::new(starts, 20, shape, 7).unwrap();
    assert_eq!((profile.num_requests(), profile.notes.len()), (60, 0));
    assert_eq!(profile.summary(7), same.summary());
    let (mut ours, mut theirs) = (profile.workload(7), same.workload());
    for turn in 0..60 {
        let (one, other) = (ours.next_request().unwrap(), theirs.next_request().unwrap());
        assert_eq!(one, other, "{turn}");
        ours.finished(one.arrival_ns, 0, turn);
        theirs.finished(other.arrival_ns, 0, turn);
    }
    // The third turn: the prefix, three inputs and two outputs.
    assert_eq!(same.summary().max_total_tokens, 1000 + 3 * 200 + 2 * 50 + 50);
}

#[test]
fn sessions_that_cannot_be_sent_say_why() {
    let load = "load: {type: concurrent, stages: [{concurrency_level: 4, num_requests: 9}]}\n";
    assert_eq!(parse(&format!("{SESSIONS}{load}")).unwrap().num_requests(), 27);
    assert!(error(&format!("{SESSIONS}{LOAD}")).contains("load.stages must have one stage for data.type sessions"));
    for (from, to, said) in [
        ("turns: 3, ", "", "data.sessions.turns is missing"),
        ("turns: 3", "turns: 0", "data.sessions.turns = 0 must be a whole number from 1"),
        ("turns: 3", "turns: 90000", "the last of 90000 turns has a prompt of up to"),
        ("think_time_s: 2", "think_time_s: -1", "data.sessions.think_time_s = -1"),
        ("think_time_s", "thinktime_s", "data.sessions.thinktime_s is not a known key"),
        ("sessions: {turns: 3, prefix_len: 1000, think_time_s: 2}, ", "", "data.sessions is missing"),
    ] {
        let found = error(&format!("{}{load}", SESSIONS.replace(from, to)));
        assert!(found.contains(said), "{to}: {found}");
    }
    let random = error(&format!("{}{load}", SESSIONS.replace("type: sessions", "type: random")));
    assert!(random.contains("is not used by data.type random: remove it"), "{random}");
}
