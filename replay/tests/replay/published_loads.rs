//! Published traces and data sets as loads: columns by their role, whatever their names, units and company.

use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{RequestSource, WorkloadRequest};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn read(text: &str) -> RequestFile {
    RequestFile::parse("file", text.as_bytes(), None).unwrap()
}

fn refused(text: &str) -> String {
    let error = RequestFile::parse("file", text.as_bytes(), None).unwrap_err().to_string();
    assert!(error.lines().count() <= 12, "{error}");
    error
}

fn requests(file: &RequestFile) -> Vec<&WorkloadRequest> {
    match file.list() {
        RequestSource::Requests(list) => list.requests().iter().collect(),
        RequestSource::Sessions(list) => {
            list.sessions().iter().flat_map(|session| &session.turns).map(|turn| &turn.request).collect()
        }
    }
}

fn figures(file: &RequestFile) -> Vec<(u64, u32, u32)> {
    let figures = |of: &&WorkloadRequest| (of.arrival_ns, of.num_prompt_tokens, of.num_output_tokens);
    requests(file).iter().map(figures).collect()
}

#[test]
fn columns_are_known_by_their_role() {
    for (name, text, expected) in [
        (
            "BurstGPT 1",
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,A,472,18,490,Conversation log\n45,A,10,2,12,API log\n",
            [(0, 472, 18), (40 * S, 10, 2)],
        ),
        (
            "BurstGPT 2",
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
             1.5,7,0.3,A,472,18,490,Conversation log\n4.0,,1.0,A,10,2,12,API log\n",
            [(0, 472, 18), (2_500 * MS, 10, 2)],
        ),
        (
            "Splitwise",
            "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,0.5,1,374,44\n1,2,0,2,1,396,109\n",
            [(0, 374, 44), (1_500 * MS, 396, 109)],
        ),
        (
            "Bailian",
            "{\"chat_id\":1,\"parent_chat_id\":-1,\"timestamp\":61.25,\"input_length\":33,\"output_length\":4,\"type\":\"text\",\"turn\":1,\"hash_ids\":[1,2,3]}\n\
             {\"chat_id\":2,\"parent_chat_id\":1,\"timestamp\":62,\"input_length\":40,\"output_length\":5,\"type\":\"text\",\"turn\":2,\"hash_ids\":[1,2,9]}\n",
            [(0, 33, 4), (750 * MS, 40, 5)],
        ),
        (
            "unix times in ms",
            "{\"timestamp\":1700000000250,\"isl\":9,\"osl\":3}\n{\"timestamp\":1700000000500,\"isl\":8,\"osl\":2}\n",
            [(0, 9, 3), (250 * MS, 8, 2)],
        ),
        (
            "dates",
            "created_at,model,prompt_tokens,completion_tokens\n2025-01-01T00:00:00Z,m,9,3\n2025-01-01T00:00:01.5Z,m,8,2\n",
            [(0, 9, 3), (1_500 * MS, 8, 2)],
        ),
        (
            "a pandas index, units in the name, camel case",
            ",requestStartTimeUs,inputTokens,outputTokens\n0,100,9,3\n1,350,8,2\n",
            [(0, 9, 3), (250_000, 8, 2)],
        ),
    ] {
        let file = read(text);
        assert_eq!((figures(&file), file.lacks_arrivals), (expected.to_vec(), false), "{name}: {:?}", file.notes);
    }
}

#[test]
fn rows_are_sorted_and_failed_requests_left_out_with_a_note_each() {
    let file = read("Timestamp,Request tokens,Response tokens,Model\n9,4,5,A\n2,3,0,A\n3,7,1,A\n");
    assert_eq!(figures(&file), [(0, 7, 1), (6 * S, 4, 5)]);
    for part in ["not read: Model", "taken as s", "have been sorted", "1 rows without tokens"] {
        assert!(file.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", file.notes);
    }
    assert_eq!(file.notes.len(), 4);
}

#[test]
fn an_own_request_table_is_a_load() {
    let header = "experiment,request_id,arrived_ns,departed_ns,num_prompt_tokens,num_cached_tokens,num_output_tokens,block_size,block_hashes,temperature";
    let row = |run: &str, rest: &str| format!("{run},{rest}\n");
    let rows = row("r", "0,10000000000,11000000000,40,,8,16,5 6,0.5")
        + &row("r", "1,10400000000,,35,32,9,,,")
        + &row("r", "2,,,35,,9,,,");
    let file = read(&format!("{header}\n{rows}"));
    assert_eq!(figures(&file), [(0, 40, 8), (400 * MS, 35, 9)]);
    let found = requests(&file);
    let blocks: Vec<(u64, u32)> =
        found[0].content.iter().flat_map(|c| c.iter()).map(|s| (s.id, s.num_tokens)).collect();
    assert_eq!(blocks, [(5, 16), (6, 16)]);
    assert_eq!((found[1].num_cached_tokens, found[0].num_cached_tokens), (32, 0));
    assert_ne!(found[0].sampling, found[1].sampling);
    let two = refused(&format!("{header}\n{}", row("a", "0,1,2,40,,8,,,") + &row("b", "0,1,2,40,,8,,,")));
    assert!(two.contains("row 2: column 'experiment': found b, expected one run, 'a'"), "{two}");
}

#[test]
fn lists_without_arrivals_say_so() {
    for text in [
        "num_prefill_tokens,num_decode_tokens\n420,110\n370,40\n",
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n420,110,530,3.8\n370,40,410,9.2\n",
        "prompt_len,output_len\n420,110\n370,40\n",
        "{\"input_length\":420,\"output_length\":110,\"hash_ids\":[1]}\n{\"input_length\":370,\"output_length\":40,\"hash_ids\":[1]}\n",
        "{\"backend\":\"sglang\",\"completed\":2,\"input_lens\":[420,370],\"output_lens\":[110,40],\"ttfts\":[1,1],\"errors\":[\"\",\"\"]}",
    ] {
        let file = read(text);
        assert_eq!((figures(&file), file.lacks_arrivals), (vec![(0, 420, 110), (0, 370, 40)], true), "{text}");
    }
    let mixed = "{\"input_len\":420,\"output_len\":110}\n{\"input_len\":370,\"output_len\":40,\"arrival\":3}\n";
    assert!(refused(mixed).contains("row 2: column 'arrival': found 3, expected a time in every row, or in none"));
}

#[test]
fn turns_of_aiperf_are_added_to_those_before() {
    let text = "{\"session_id\":\"a\",\"input_length\":1300,\"output_length\":33,\"hash_ids\":[0,1,2],\"timestamp\":0.0}\n\
                {\"session_id\":\"a\",\"input_length\":855,\"output_length\":134,\"hash_ids\":[9,10],\"delay\":12219.5}\n\
                {\"session_id\":\"b\",\"input_length\":1200,\"output_length\":107,\"hash_ids\":[0,1,14],\"timestamp\":250}\n";
    let file = read(text);
    assert_eq!(file.format, Format::Jsonl);
    let RequestSource::Sessions(list) = file.list() else { panic!("these are sessions") };
    let turns: Vec<(u64, u64, u32)> = list
        .sessions()
        .iter()
        .flat_map(|s| &s.turns)
        .map(|t| (t.request.arrival_ns, t.think_ns, t.request.num_prompt_tokens))
        .collect();
    // 1300 + 33 + 855 = 2188 tokens are the prompt of the second turn.
    assert_eq!(turns, [(0, 0, 1300), (0, 12_219_500_000, 2188), (250 * MS, 0, 1200)]);
    let content = |session: usize, turn: usize| list.sessions()[session].turns[turn].request.content.clone().unwrap();
    assert_eq!(content(0, 0)[..2], content(1, 0)[..2], "both begin with 1024 equal tokens");
    assert_eq!(content(0, 1)[..4], content(0, 0)[..4], "the second turn repeats the first with its output");
    assert_eq!(content(0, 1).iter().map(|of| of.num_tokens).collect::<Vec<u32>>(), [512, 512, 276, 33, 512, 343, 134]);
    assert!(file.notes.iter().any(|note| note.contains("counts its new tokens")), "{:?}", file.notes);
    // Without times the sessions are sent at a rate or a concurrency.
    assert!(read(&text.replace(",\"timestamp\":0.0", "").replace(",\"timestamp\":250", "")).lacks_arrivals);
}

#[test]
fn a_refusal_names_what_is_missing_and_what_works() {
    for (text, parts) in [
        (
            "Timestamp,Request tokens,Model\n1,2,A\n",
            ["column 'output_len' is missing", "the columns are input_len, output_len"],
        ),
        ("when,how long\n", ["input and output tokens are missing", "arrival, input_len and output_len works"]),
        (
            "[{\"id\":\"a\",\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"}]}]",
            ["holds texts", "input_len and output_len"],
        ),
        ("{\"prompt\":\"hi\",\"output_tokens\":5}\n", ["column 'input_len' is missing", "input_len, output_len"]),
        ("[{\"input_len\":1,\"output_len\":1}", ["ends within its list", "is the file cut short"]),
        (
            "arrival,input_len,output_len,prefx_group\n0,1,1,a\n",
            ["column 'prefx_group' is not known", "did you mean prefix_group"],
        ),
        (
            "Timestamp,Request tokens,Response tokens\nsoon,3,4\n",
            ["row 1: column 'Timestamp': found soon", "a number, or a date"],
        ),
    ] {
        let error = refused(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}
