use super::super::{RequestSource, requests::RequestFile};
use super::*;

fn parse(text: &str) -> Result<RequestFile> {
    RequestFile::parse("sessions", text.as_bytes(), None)
}

fn sessions(text: &str) -> Vec<Session> {
    match parse(text).unwrap().list() {
        RequestSource::Sessions(list) => list.sessions().to_vec(),
        RequestSource::Requests(_) => panic!("these are sessions"),
    }
}

/// Earliest time, think time, prompt and output of each turn.
fn figures(session: &Session) -> Vec<(u64, u64, u32, u32)> {
    let figures = |Turn { request, think_ns }: &Turn| {
        (request.arrival_ns, *think_ns, request.num_prompt_tokens, request.num_output_tokens)
    };
    session.turns.iter().map(figures).collect()
}

const CSV: &str = "session_id,arrival_ms,turn,input_len,output_len,think_time_s,prefix_group,prefix_len,stage\n\
                   a,10,1,100,20,,manual,60,\n\
                   b,10,1,90,5,,manual,60,2\n\
                   a,,2,150,30,1.5,,,\n\
                   b,9000,2,80,5,,manual,60,3\n\
                   a,,3,200,1,0.25,,,\n";

#[test]
fn rows_of_a_session_are_its_turns_wherever_they_stand() {
    let found = sessions(CSV);
    let (ms, s) = (1_000_000, NS_PER_S);
    assert_eq!(
        figures(&found[0]),
        [(10 * ms, 0, 100, 20), (0, 3 * s / 2, 150, 30), (0, s / 4, 200, 1)],
        "later turns have think times"
    );
    assert_eq!(figures(&found[1]), [(10 * ms, 0, 90, 5), (9 * s, 0, 80, 5)], "or an earliest time");
    assert_eq!((found[1].turns[0].request.stage, found[1].turns[1].request.stage), (2, 3));
    let content = |session: usize, turn: usize| found[session].turns[turn].request.content.clone().unwrap();
    // Both begin with the manual; the rest is their own, and grows.
    assert_eq!(content(0, 0)[0], content(1, 0)[0]);
    assert_ne!(content(0, 0)[1].id, content(1, 0)[1].id);
    assert_eq!((content(0, 0)[1].num_tokens, content(0, 2)[1].num_tokens), (60, 141));
    assert_eq!(content(0, 0)[1].id, content(0, 2)[1].id);
    // 80 tokens are fewer than the 90 of the prompt before.
    assert_ne!(content(1, 0)[1].id, content(1, 1)[1].id);
    let notes = parse(CSV).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].starts_with("1 of 3 later turns have a prompt that is shorter"), "{notes:?}");
}

#[test]
fn jsonl_says_the_same() {
    let text = "{\"session_id\": 7, \"arrival\": 0.5, \"input_len\": 9, \"output_len\": 3}\n\
                {\"session_id\": 7, \"input_len\": 20, \"output_len\": 3, \"think_time_s\": 2, \"turn\": 1, \"priority\": -1}\n";
    let found = sessions(text);
    assert_eq!(figures(&found[0]), [(NS_PER_S / 2, 0, 9, 3), (0, 2 * NS_PER_S, 20, 3)]);
    assert_eq!(found[0].turns[1].request.priority, -1);
    let mut load = parse(text).unwrap().workload();
    assert_eq!(load.next_request().map(|of| of.arrival_ns), Some(NS_PER_S / 2));
    assert_eq!(load.next_arrival_ns(), None);
}

#[test]
fn bad_rows_name_what_is_wrong() {
    let header = "session_id,arrival,turn,input_len,output_len,think_time_s,prefix_group,prefix_len\n";
    for (rows, expected) in [
        ("a,,,5,1,,,\n", "row 1: column 'arrival': found nothing"),
        (",0,,5,1,,,\n", "row 1: column 'session_id': found nothing"),
        (
            "a,3,,5,1,,,\nb,2,,5,1,,,\n",
            "row 2: column 'arrival': found 2, expected at least that of the session above, 3 s",
        ),
        ("a,0,2,5,1,,,\n", "row 1: column 'turn': found 2, expected a whole number from 0 to 1"),
        ("a,0,1,5,1,,,\na,,3,9,1,,,\n", "row 2: column 'turn': found 3, expected a whole number from 2 to 2"),
        ("a,0,,5,1,4,,\n", "row 1: column 'think_time_s': found 4, expected nothing or 0 in the first turn"),
        ("a,0,,5,1,,,\na,,,9,1,-1,,\n", "row 2: column 'think_time_s': found -1, expected a number"),
        ("a,0,,5,1,,,\na,,,0,1,,,\n", "row 2: column 'input_len': found 0"),
        ("a,0,,5,1,,g,2\na,,,9,1,,g,3\n", "row 2: column 'prefix_group': found g, expected nothing, or the prefix of"),
        ("a,0,,5,1,,,3\n", "row 1: column 'prefix_len': found 3"),
    ] {
        let error = parse(&format!("{header}{rows}")).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("sessions: ") && error.contains(expected), "{error}");
    }
    let error = parse("session_id,arrival,input_len,output_len\n").map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "sessions: there are no requests in this csv file");
}

const AGENT: &str = "{\"session_id\": \"s0\", \"arrival_time_ns\": 40, \"sub_requests\": [{\"input_toks\": 100, \"output_toks\": 10, \
                     \"tool_duration_ns\": 700}, {\"input_toks\": 130, \"output_toks\": 5, \"tool_duration_ns\": 9}, \
                     {\"input_toks\": 20, \"output_toks\": 5}]}\n";

#[test]
fn sub_requests_follow_each_other_once_their_tools_have_run() {
    let found = sessions(AGENT);
    assert_eq!(figures(&found[0]), [(40, 0, 100, 10), (0, 700, 130, 5), (0, 9, 20, 5)]);
    let notes = parse(AGENT).unwrap().notes;
    assert!(
        notes[0].starts_with("input_toks is taken as the whole prompt, but 1 of 2 later sub-requests"),
        "{notes:?}"
    );
    assert!(notes[1].starts_with("1 of 2 later turns"), "{notes:?}");
    // 150 tokens hold the 130 of the prompt before and its 5 generated ones: contexts grow, and there is nothing to doubt.
    assert_eq!(
        parse(&AGENT.replace("20, \"output_toks\"", "150, \"output_toks\"")).unwrap().notes,
        Vec::<String>::new()
    );
    // The same name on another line is another session.
    let two = sessions(&(AGENT.to_owned() + AGENT));
    assert_ne!(two[0].turns[0].request.content, two[1].turns[0].request.content);
}

#[test]
fn bad_sub_requests_name_their_place() {
    for (from, to, expected) in [
        ("\"input_toks\": 130", "\"input_toks\": 0", "sub_requests[1].input_toks = 0 must be a whole number from 1"),
        ("\"output_toks\": 10", "\"output_tok\": 10", "sub_requests[0].output_toks is missing"),
        ("\"tool_duration_ns\": 9", "\"tool_duration_ns\": -9", "sub_requests[1].tool_duration_ns = -9"),
        ("{\"input_toks\": 20, \"output_toks\": 5}", "5", "expected a list of objects"),
        ("\"arrival_time_ns\": 40", "\"arrival_time_ns\": -1", "column 'arrival_time_ns': found -1"),
        ("\"arrival_time_ns\": 40", "\"arrival_ns\": 1", "column 'arrival_time_ns' is missing"),
    ] {
        let error = parse(&AGENT.replace(from, to)).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("sessions: ") && error.contains(expected), "{error}");
    }
    let empty = "{\"session_id\": 1, \"arrival_time_ns\": 0, \"sub_requests\": []}";
    assert!(parse(empty).map(|_| ()).unwrap_err().to_string().contains("expected at least one sub-request"));
    let back = AGENT.to_owned() + &AGENT.replace("40", "39");
    assert!(parse(&back).map(|_| ()).unwrap_err().to_string().contains("row 2: column 'arrival_time_ns': found 39"));
}

#[test]
fn a_replica_gets_whole_sessions() {
    let text = "session_id,arrival,input_len,output_len\na,0,1,1\nb,1,2,1\na,,3,1\nb,,4,1\nc,2,5,1\n";
    let share = super::super::ReplicaShare::new(2).list(parse(text).unwrap().list().clone()).unwrap();
    let RequestSource::Sessions(list) = &share else { panic!("these are sessions") };
    let prompts: Vec<u32> =
        list.sessions().iter().flat_map(|of| &of.turns).map(|of| of.request.num_prompt_tokens).collect();
    assert_eq!((prompts, share.num_requests()), (vec![1, 3, 5], 3));
    // Two starts within 2 s; twice as fast they are 1 s apart, and think times stay.
    assert_eq!(share.mean_rate_per_s(), Some(0.5));
    let mut load = share.stretched(0.5).unwrap().workload();
    assert_eq!(
        [load.next_request(), load.next_request()].map(|of| of.map(|of| of.arrival_ns)),
        [Some(0), Some(NS_PER_S)]
    );
}
