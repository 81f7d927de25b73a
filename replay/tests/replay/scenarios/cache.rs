//! Hits in the prefix cache and the order in which blocks are reused. Blocks have 4 tokens.

use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, SchedulerOptions};

use super::support::{Run, engine, engine_of, request, run, sharing, steps_only};

fn blocks(run: &Run) -> Vec<u32> {
    run.seen.steps.iter().map(|step| step.blocks_in_use).collect()
}

/// A prompt of `segments`, and of tokens of its own up to `prompt`; one token is generated.
fn composed(arrival_us: u64, prompt: u32, segments: &[(u64, u32)]) -> WorkloadRequest {
    let content = segments.iter().map(|&(id, num_tokens)| Segment { id, num_tokens }).collect();
    WorkloadRequest { content: Some(content), ..request(arrival_us, prompt, 1) }
}

/// One after the other. B's 8 equal tokens are two blocks, but its last token must be computed to sample from, and blocks are
/// taken whole: 4. C has one token more and keeps both. D shares 7 tokens, one full block; E not even one.
#[test]
fn full_blocks_are_found_and_the_last_token_is_computed_again() {
    let prompts = [(8, 8), (8, 8), (9, 8), (8, 7), (8, 3)];
    let requests = prompts.iter().zip(0..).map(|(&(prompt, shared), i)| sharing(20 * i, prompt, 1, 1, shared));
    let run = run(&steps_only(), &engine(), requests.collect());
    let steps =
        ["0..10000 A@0+8", "20000..30000 B@4+4", "40000..50000 C@8+1", "60000..70000 D@4+4", "80000..90000 E@0+8"];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.cached_tokens(), [0, 4, 8, 4, 0]);
    assert_eq!((run.replay.counters.cached_tokens, run.replay.counters.prefill_tokens), (16, 25));
    assert_eq!(blocks(&run), [2, 2, 3, 2, 2]);
}

/// Blocks can be found as soon as they are scheduled: B shares A's two in the very step that computes them, 3 + 1 blocks.
#[test]
fn blocks_are_found_in_the_step_that_computes_them() {
    let run = run(&steps_only(), &engine(), vec![sharing(0, 9, 1, 1, 9), sharing(0, 9, 1, 1, 9)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+9 B@8+1"]);
    assert_eq!(blocks(&run), [4]);
}

/// A's prompt of 6 tokens and its 6 generated ones are 1:0-11. Its last token is never computed, so 11 tokens are in the cache: two full
/// blocks. B is the next turn: A's 12 tokens and one more, and 8 of them are found. C ends where A's prompt does.
#[test]
fn a_later_turn_finds_the_tokens_that_an_earlier_one_generated() {
    let first = sharing(0, 6, 6, 1, 12);
    let later = sharing(100, 13, 1, 1, 12);
    let run = run(&steps_only(), &engine(), vec![first, later, sharing(200, 6, 1, 1, 6)]);
    assert_eq!(run.cached_tokens(), [0, 8, 4]);
}

/// 6 tokens a step. A's first chunk fills one block, its second the other; B comes with the second and has both.
#[test]
fn blocks_of_chunks_are_found_as_they_fill() {
    let config = EngineConfig { max_num_batched_tokens: 6, ..engine() };
    let run = run(&steps_only(), &config, vec![sharing(0, 9, 1, 1, 9), sharing(0, 9, 1, 1, 9)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+6~", "10000..20000 A@6+3 B@8+1"]);
}

/// Without the cache nothing is shared: 3 blocks each.
#[test]
fn nothing_is_found_with_the_cache_off() {
    let config =
        EngineConfig { scheduler: SchedulerOptions { enable_prefix_caching: false, ..engine().scheduler }, ..engine() };
    let run =
        run(&steps_only(), &config, vec![sharing(0, 9, 1, 1, 9), sharing(0, 9, 1, 1, 9), sharing(20, 9, 1, 1, 9)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+9 B@0+9", "20000..30000 C@0+9"]);
    assert_eq!((blocks(&run), run.cached_tokens()), (vec![6, 3], vec![0, 0, 0]));
}

/// A's first block is 1:0-3, its second 1:4-5 2:0-1, its third 2:2-5. B begins with the first two. C's second block is
/// 1:4 2:0-2. D's second block is 1:0-3 again, at another place, and so is another block. E is cut inside its text, as A's third
/// block shows: 12 equal tokens, of which the last is computed.
#[test]
fn prompts_of_several_pieces_share_as_far_as_their_tokens_do() {
    let requests = vec![
        composed(0, 13, &[(1, 6), (2, 6)]),
        composed(20, 9, &[(1, 6), (2, 2)]),
        composed(40, 13, &[(1, 5), (2, 7)]),
        composed(60, 13, &[(1, 4), (1, 4), (2, 6)]),
        composed(80, 12, &[(1, 6), (2, 100)]),
        composed(100, 13, &[(1, 6), (2, 100)]),
    ];
    let run = run(&steps_only(), &engine(), requests);
    assert_eq!(run.cached_tokens(), [0, 8, 4, 4, 8, 12]);
}

/// 6 blocks. A takes 1 2, B 3 4, and each gives its blocks back last one first: free are 5 6 | 2 1 | 4 3. C takes 5 6 2: A's
/// second block is gone, its first not. D finds that one and takes 4 for its own second, which is A's second again, and 3 for
/// its third: B is gone. E finds C whole (5 6 2) and takes 3. F finds nothing of B and takes 4 1 3, so that G finds nothing of
/// A and D.
#[test]
fn the_longest_unused_block_goes_first_and_tails_before_heads() {
    let prompts = [(1, 8, 8), (2, 8, 8), (3, 12, 12), (1, 9, 8), (3, 13, 12), (2, 9, 8), (1, 9, 8)];
    let requests = prompts.iter().zip(0..).map(|(&(id, prompt, shared), i)| sharing(20 * i, prompt, 1, id, shared));
    let run = run(&steps_only(), &engine_of(6), requests.collect());
    assert_eq!(run.cached_tokens(), [0, 0, 0, 4, 12, 0, 0]);
}

/// 4 blocks. A takes 1 2. B finds 1, must compute its second block and has it in 3: two blocks hold the same. Free are then
/// 4 2 3 1; C takes 4 2, and the second of the two is still found by D.
#[test]
fn a_block_that_was_computed_twice_is_found_until_both_are_gone() {
    let requests = vec![sharing(0, 8, 1, 1, 8), sharing(20, 8, 1, 1, 8), request(40, 8, 1), sharing(60, 9, 1, 1, 8)];
    let run = run(&steps_only(), &engine_of(4), requests);
    assert_eq!(run.cached_tokens(), [0, 4, 0, 8]);
}

/// 4 blocks, of which B holds 2; the free ones are A's. C finds both and needs a third: that they are free does not help, they
/// are taken out of the free ones, 2 + 1 of 2. C waits until B's last token is processed at 40, although one new block is all it
/// needs.
#[test]
fn found_blocks_that_nobody_holds_count_against_the_free_ones() {
    let requests = vec![sharing(0, 8, 1, 1, 8), request(20, 6, 2), sharing(21, 9, 1, 1, 8)];
    let run = run(&steps_only(), &engine_of(4), requests);
    assert_eq!(run.timeline(), ["0..10000 A@0+8", "20000..30000 B@0+6", "30000..40000 B@6+1", "40000..50000 C@8+1"]);
    assert_eq!(blocks(&run), [2, 2, 2, 3]);
}

/// The last token is sampled, not cached: 4 + 1 need one block, 4 + 2 a second one for the first generated token.
#[test]
fn the_last_token_needs_no_block() {
    let run = run(&steps_only(), &engine(), vec![request(0, 4, 1), request(20, 4, 2)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+4", "20000..30000 B@0+4", "30000..40000 B@4+1"]);
    assert_eq!(blocks(&run), [1, 1, 2]);
}
