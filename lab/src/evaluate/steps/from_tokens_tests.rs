use super::*;
use crate::ingest::{RequestRow, RequestTokens};

const MS: u64 = 1_000_000;

/// A request that arrives at a time, with its prompt and the times of its tokens, ms.
type Seen<'a> = (u64, u64, &'a [u64]);

fn found(seen: &[Seen<'_>]) -> (Vec<ReadRun>, RequestTrace) {
    let run = Run { experiment: "mine".to_owned(), ..Run::default() };
    let row = |(index, (arrived_ms, prompt, times)): (usize, &Seen<'_>)| RequestRow {
        request_id: index.to_string().as_str().into(),
        arrived_ns: Some((arrived_ms * MS).into()),
        first_response_ns: times.first().map(|ms| (ms * MS).into()),
        num_prompt_tokens: Some((*prompt).into()),
        ..RequestRow::default()
    };
    let tokens = |(index, (.., times)): (usize, &Seen<'_>)| RequestTokens {
        request_id: index.to_string(),
        chunks: times.iter().map(|ms| Chunk { time_ns: ms * MS, num_tokens: 1, ..Chunk::default() }).collect(),
    };
    let mut requests = RequestTrace { run: run.clone(), requests: seen.iter().enumerate().map(row).collect() };
    let tokens = TokenTrace { run, requests: seen.iter().enumerate().map(tokens).collect() };
    (runs(&mut requests, &tokens), requests)
}

/// Single requests: 3 ms to the engine, a step of 10 ms and 0.1 ms a prompt token, three decodes of 10 ms.
fn single(at_ms: u64, prompt: u64) -> (u64, u64, [u64; 4]) {
    let first = at_ms + 13 + prompt / 10;
    (at_ms, prompt, [first, first + 10, first + 20, first + 30])
}

fn singles() -> Vec<(u64, u64, [u64; 4])> {
    (0..20).map(|index| single(1000 * index, if index % 2 == 0 { 100 } else { 400 })).collect()
}

fn seen(of: &[(u64, u64, [u64; 4])]) -> Vec<Seen<'_>> {
    of.iter().map(|(at, prompt, times)| (*at, *prompt, times.as_slice())).collect()
}

#[test]
fn requests_one_by_one_determine_the_way_to_the_engine_and_each_step() {
    let singles = singles();
    let (runs, requests) = found(&seen(&singles));
    let names: Vec<&str> = runs.iter().map(|of| of.run.trace.run.experiment.as_str()).collect();
    assert_eq!(names, ["mine, about 1 in flight of about 128 tokens", "mine, about 1 in flight of about 512 tokens"]);
    assert!(runs.iter().all(|of| of.is_of_tokens) && runs[0].notes[0].contains("3000 us"), "{:?}", runs[0].notes);
    // 13 + 0.1 ms a token, less a gap of 10 ms.
    assert_eq!(requests.requests[1].queued_ns, Some((1003 * MS).into()));
    let TableRun { trace, periods } = &runs[1].run;
    assert_eq!(trace.steps.len(), 40);
    let spans: Vec<f64> = periods.intervals().take(4).map(|of| of.span_us.round()).collect();
    assert_eq!(spans, [50_000.0, 10_000.0, 10_000.0, 10_000.0]);
    let first = |at: usize| trace.steps[at].requests.as_deref();
    assert_eq!(first(0), Some([Request::prefill(400, 0)].as_slice()));
    assert_eq!(first(1), Some([Request::decode(400)].as_slice()));
    assert_eq!(first(3), Some([Request::decode(402)].as_slice()));
}

#[test]
fn a_prompt_that_joins_is_part_of_the_step_and_hidden_work_is_left_out() {
    let singles = singles();
    let mut all = seen(&singles);
    // The second request arrives in the step to 20,033 and is computed in the next one, of 22 ms.
    all.push((20_000, 100, &[20_023, 20_033, 20_055, 20_065]));
    all.push((20_025, 100, &[20_056, 20_066]));
    // Of these two, the second arrives long before its first token: its prompt is computed in parts that no token shows.
    all.push((30_000, 100, &[30_023, 30_033, 30_063, 30_093, 30_123, 30_153, 30_163]));
    all.push((30_024, 100, &[30_153, 30_163]));
    let (runs, _) = found(&all);
    let find = |start_ms: u64| {
        let of_run = |of: &ReadRun| {
            let at = of.run.trace.steps.iter().position(|step| step.start_ns == start_ms * MS)?;
            Some((of.run.trace.steps[at].requests.clone()?, of.run.periods.times[at].ok()?.span_us.round()))
        };
        runs.iter().find_map(of_run)
    };
    let together = vec![Request::decode(101), Request::prefill(100, 0)];
    assert_eq!(find(20_033), Some((together, 22_000.0)));
    assert_eq!(find(20_055), Some((vec![Request::decode(102), Request::decode(100)], 10_000.0)));
    assert_eq!(find(30_023), Some((vec![Request::decode(100)], 10_000.0)));
    for hidden_ms in [30_033, 30_063, 30_093, 30_123] {
        assert_eq!(find(hidden_ms), None, "{hidden_ms}");
    }
    assert_eq!(find(30_153), Some((vec![Request::decode(105), Request::decode(100)], 10_000.0)));
}

#[test]
fn few_requests_are_no_steps() {
    let singles = singles();
    assert!(found(&seen(&singles[..19])).0.is_empty());
}
