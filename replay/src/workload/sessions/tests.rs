use ridgepoint::units::NS_PER_S;

use super::super::{ArrivalPattern, NormalLengths, Segment};
use super::*;

fn shape(turns: u32, think_time_s: f64) -> SessionShape {
    let (input, output) = (NormalLengths::fixed(5), NormalLengths::fixed(2));
    SessionShape { turns, prefix_len: 10, input, output, think_time_s }
}

fn at_once(concurrency: u32, num_sessions: u64, shape: SessionShape) -> SessionLoad {
    GeneratedSessions::new(SessionStarts::Concurrency(concurrency), num_sessions, shape, 3).unwrap().workload()
}

/// Sends everything to a server that takes `service_ns` for a request. Returns the requests by number.
fn served(load: &mut SessionLoad, service_ns: u64) -> Vec<WorkloadRequest> {
    let mut sent: Vec<WorkloadRequest> = Vec::new();
    let mut over = 0;
    loop {
        let finish_ns = sent.get(over).map(|request: &WorkloadRequest| request.arrival_ns + service_ns);
        match (load.next_arrival_ns(), finish_ns) {
            (Some(next_ns), finish_ns) if finish_ns.is_none_or(|finish_ns| next_ns <= finish_ns) => {
                sent.push(load.next_request().unwrap());
            }
            (_, Some(finish_ns)) => {
                load.finished(finish_ns, 0, over as u32);
                over += 1;
            }
            (_, None) => return sent,
        }
    }
}

fn content(request: &WorkloadRequest) -> Vec<(u64, u32)> {
    request.content.iter().flat_map(|content| content.iter()).map(|of| (of.id, of.num_tokens)).collect()
}

#[test]
fn each_turn_continues_the_one_before() {
    let sent = served(&mut at_once(1, 2, shape(3, 0.0)), 100);
    let figures: Vec<(u64, u32, u32)> = sent.iter().map(|of| (of.arrival_ns, of.turn, of.num_prompt_tokens)).collect();
    // 10 + 5 tokens; 2 generated and 5 new ones; the same again. The second session starts when the first ends.
    assert_eq!(figures, [(0, 0, 15), (100, 1, 22), (200, 2, 29), (300, 0, 15), (400, 1, 22), (500, 2, 29)]);
    // The prefix, then one text that reaches to the end of the output.
    assert_eq!(content(&sent[0]), [(0, 10), (1, 7)]);
    assert_eq!(content(&sent[2]), [(0, 10), (1, 21)]);
    assert_eq!(content(&sent[3]), [(0, 10), (2, 7)]);
}

#[test]
fn sessions_of_one_turn_share_the_prefix_alone() {
    let sent = served(&mut at_once(2, 2, shape(1, 0.0)), 100);
    assert_eq!((sent.len(), content(&sent[1])), (2, vec![(0, 10)]));
}

#[test]
fn the_turn_of_the_request_that_finished_is_the_next() {
    let mut load = at_once(2, 2, shape(2, 0.0));
    assert_eq!([load.next_request(), load.next_request()].map(|of| of.map(|of| of.arrival_ns)), [Some(0), Some(0)]);
    assert_eq!((load.next_arrival_ns(), load.next_request(), load.expected_requests()), (None, None, Some(4)));
    load.finished(50, 0, 1);
    assert_eq!(load.next_request().map(|of| (of.arrival_ns, content(&of)[1].0)), Some((50, 2)));
    // Reported again, or never sent.
    load.finished(60, 0, 1);
    load.finished(60, 0, 9);
    assert_eq!(load.next_request(), None);
    load.finished(70, 0, 0);
    assert_eq!(load.next_request().map(|of| (of.arrival_ns, content(&of)[1].0)), Some((70, 1)));
}

#[test]
fn think_times_are_exponential_and_those_of_the_seed_at_every_rate() {
    let thought = |per_s, seed| {
        let starts = SessionStarts::Rate { pattern: ArrivalPattern::Deterministic, per_s };
        let load = GeneratedSessions::new(starts, 2_000, shape(2, 3.0), seed).unwrap();
        let sent = served(&mut load.workload(), 0);
        assert!(sent.windows(2).all(|pair| pair[0].arrival_ns <= pair[1].arrival_ns));
        let mut by_session = vec![[0; 2]; 2_000];
        sent.iter().for_each(|of| by_session[content(of)[1].0 as usize - 1][of.turn as usize] = of.arrival_ns);
        by_session.iter().map(|[first, second]| second - first).collect::<Vec<u64>>()
    };
    let (slow, fast) = (thought(1.0, 5), thought(50.0, 5));
    assert_eq!(slow, fast);
    assert_ne!(slow, thought(1.0, 6));
    let mean_s = slow.iter().sum::<u64>() as f64 / 2e3 / NS_PER_S as f64;
    // The standard error of the mean is 3 / √2000 = 0.067; of an exponential, e⁻¹ of the values are above the mean.
    assert!((mean_s - 3.0).abs() < 0.25, "{mean_s}");
    let above = slow.iter().filter(|ns| **ns > 3 * NS_PER_S).count();
    assert!((680..=790).contains(&above), "{above}");
}

#[test]
fn drawn_lengths_add_up_to_the_context() {
    let input = NormalLengths { min: 50, max: 150, mean: 100.0, std_dev: 20.0, ..NormalLengths::fixed(1) };
    let output = NormalLengths { min: 10, max: 30, mean: 20.0, std_dev: 5.0, ..NormalLengths::fixed(1) };
    let shape = SessionShape { input, output, ..shape(4, 0.0) };
    let load = GeneratedSessions::new(SessionStarts::Concurrency(1), 50, shape, 1).unwrap();
    let sent = served(&mut load.workload(), 10);
    for turns in sent.chunks(4) {
        assert!((60..=160).contains(&turns[0].num_prompt_tokens));
        for pair in turns.windows(2) {
            let new_tokens = pair[1].num_prompt_tokens - pair[0].num_prompt_tokens - pair[0].num_output_tokens;
            assert!((50..=150).contains(&new_tokens), "{new_tokens}");
        }
    }
    // 10 + 100 + (0 + 1 + 2 + 3)/4 · 120.
    let summary = load.summary();
    assert_eq!((summary.requests, summary.sessions, summary.mean_input_tokens.round()), (200, Some(50), 290.0));
    // 10 + 4 · (150 + 30).
    assert_eq!(summary.max_total_tokens, 730);
    let mean = sent.iter().map(|of| f64::from(of.num_prompt_tokens)).sum::<f64>() / 200.0;
    assert!((mean - 290.0).abs() < 8.0, "{mean}");
}

#[test]
fn a_prompt_begins_with_as_much_of_the_past_as_its_length_allows() {
    let prefix = Some(Segment { id: 7, num_tokens: 40 });
    let lengths = [(100, 10), (150, 5), (152, 1), (90, 3), (30, 2), (60, 1)];
    let (contents, dropping) = grown(prefix, 99, &lengths);
    let tokens: Vec<Vec<u32>> = contents.iter().map(|of| of.iter().map(|of| of.num_tokens).collect()).collect();
    // 150 ≥ 110 continues; 152 is behind the prompt of 150 but not its output; 90 keeps the prefix; 30 a part of it; 60 ≥ 32 continues.
    let expected: [&[u32]; 6] = [&[40, 70], &[40, 115], &[40, 110, 3], &[40, 53], &[30, 2], &[30, 31]];
    assert_eq!(tokens, expected);
    assert_eq!(dropping, 3);
    let id = |turn: usize| contents[turn].last().map(|of| of.id);
    assert!(id(0) == id(1) && id(4) == id(5) && id(1) != id(2) && id(2) != id(3) && id(3) != id(4));
    assert_eq!(contents[2][1].id, contents[1][1].id, "the prompt that was kept");
    for (content, (prompt, output)) in contents.iter().zip(lengths) {
        assert_eq!(content.iter().map(|of| of.num_tokens).sum::<u32>(), prompt + output);
    }
    assert_ne!(grown(None, 1, &[(5, 5)]).0, grown(None, 2, &[(5, 5)]).0, "another session, another text");
}

#[test]
fn a_list_keeps_its_think_times_and_earliest_times() {
    let turn = |arrival_ns, think_ns| Turn { request: WorkloadRequest::new(arrival_ns, 10, 1), think_ns };
    let sessions = vec![
        Session { turns: vec![turn(1_000, 7), turn(0, 50), turn(5_000, 50)] },
        Session { turns: vec![turn(1_100, 0)] },
    ];
    let list = SessionList::new(sessions).unwrap();
    let sent = served(&mut list.workload(), 100);
    let figures: Vec<(u64, u32)> = sent.iter().map(|of| (of.arrival_ns, of.turn)).collect();
    // 1,000 + 100 + 50; then 1,250 + 50 is before the earliest time.
    assert_eq!(figures, [(1_000, 0), (1_100, 0), (1_150, 1), (5_000, 2)]);
    assert_eq!((list.summary().sessions, list.summary().requests, list.num_requests()), (Some(2), 4, 4));
    assert!(list.summary().to_string().starts_with("2 sessions of 2.0 turns on average: 4 requests in 1 stage"));
}

#[test]
fn every_wrong_figure_is_reported() {
    let wrong = SessionShape { turns: 0, input: NormalLengths::fixed(0), think_time_s: f64::NAN, ..shape(1, 0.0) };
    let error = GeneratedSessions::new(SessionStarts::Concurrency(0), 0, wrong, 0).unwrap_err().to_string();
    for part in ["concurrency = 0", "number of sessions = 0", "turns = 0", "input length = 0", "think_time_s = NaN"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let starts = SessionStarts::Rate { pattern: ArrivalPattern::Poisson, per_s: -1.0 };
    let error = GeneratedSessions::new(starts, 1, shape(1, 0.0), 0).unwrap_err().to_string();
    assert!(error.contains("rate = -1"), "{error}");
    for (turns, part) in
        [(2_000_000, "the last of 2000000 turns has a prompt of up to"), (3_000, "turns of all sessions")]
    {
        let error = GeneratedSessions::new(SessionStarts::Concurrency(1), 100_000, shape(turns, 0.0), 0);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let turn = |arrival_ns, prompt| Turn { request: WorkloadRequest::new(arrival_ns, prompt, 1), think_ns: u64::MAX };
    let sessions = vec![Session { turns: vec![turn(5, 0)] }, Session { turns: vec![turn(4, 1)] }, Session::default()];
    let error = SessionList::new(sessions).unwrap_err().to_string();
    for part in [
        "session 0, turn 0: num_prompt_tokens = 0",
        "session 0, turn 0: think_ns",
        "session 1: arrival_ns = 4 must be at least 5",
        "session 2 has no turns",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(SessionList::new(Vec::new()).unwrap_err().to_string().contains("no sessions"));
}
