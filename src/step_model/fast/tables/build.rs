//! Fills the lookup tables from a step model's operators. Uses `efficiency`, `physics`, the step model.

use super::OperatorTables;
use super::attention::{Calls, ChunkAttention, DecodeAttention};
use super::rows::{GroupTable, GroupTimes, ends_a_cell};
use super::state::StateScan;
use crate::correction::Term;
use crate::efficiency::kernel_time::heads_of;
use crate::efficiency::mixed::{share_a_call, splits_per_key};
use crate::efficiency::surface::CountAxis;
use crate::efficiency::{EfficiencyMode, OperatorTime, Timer};
use crate::model::Window;
use crate::physics::{
    BatchSums, Entry, Kernel, MANY_SAMPLED, MAX_WINDOWS, Operator, OperatorId, StateHeads, StateKernel,
};
use crate::step_model::StepModel;

/// Most tokens, and most cached tokens of chunks, in the tables.
const MOST_TOKENS: u64 = 131_072;

/// Most decodes in the tables.
const MOST_DECODES: u64 = 8192;

/// Fewest decodes and tokens in the tables, whatever the scheduler's limits.
const FEWEST: u64 = 1024;

impl OperatorTables {
    /// Fills the tables of `steps`. Returns `None` for a model with more kinds of attention than they have room for, for captured
    /// sizes within a cell of their rows, and if a time overflows.
    pub(in crate::step_model) fn new(steps: &StepModel) -> Option<Self> {
        let plan = steps.plan();
        let captured_tokens = plan.cuda_graphs.limit_tokens();
        if !plan.cuda_graphs.sizes().into_iter().all(ends_a_cell) {
            return None;
        }
        let most_decodes = plan.max_num_seqs.clamp(FEWEST, MOST_DECODES);
        let most_tokens = plan.max_num_batched_tokens.clamp(most_decodes, MOST_TOKENS);
        let most_context = (plan.max_model_len * 2).clamp(most_tokens, MOST_TOKENS);

        let nothing = BatchSums::default();
        // One token of a step with a prefill chunk, and nothing else: the operators that depend on tokens alone.
        let one = BatchSums { num_tokens: 1, num_prefills: 1, ..BatchSums::default() };
        let by_tokens = ids(steps, &one);
        let beyond_tokens = |set: Set, count| -> Vec<OperatorId> {
            ids(steps, &with(one, set, count)).into_iter().filter(|id| !by_tokens.contains(id)).collect()
        };
        let (by_chunk, by_context) = (beyond_tokens(CHUNK, 1), beyond_tokens(CONTEXT, 1));
        let (by_both, by_chunk): (Vec<_>, Vec<_>) = by_chunk.into_iter().partition(|id| by_context.contains(id));
        let by_context: Vec<_> = by_context.into_iter().filter(|id| !by_both.contains(id)).collect();
        let mut by_sampled = beyond_tokens(SAMPLED, 1);
        by_sampled.extend(beyond_tokens(SAMPLED, MANY_SAMPLED));
        let alone = ids(steps, &with(nothing, DECODES_ALONE, 1));

        let table = |ids: &[OperatorId], limit: u64, mut batch: BatchSums, set: Set| {
            if ids.is_empty() {
                return GroupTable::default();
            }
            let mut timed = timed(steps, ids);
            let mut calls = Vec::with_capacity(timed.len());
            GroupTable::new(limit, |rows| {
                set(&mut batch, rows);
                group_times(steps, &batch, &mut timed, &mut calls)
            })
        };
        let counted = |batch: &BatchSums, term: Term| -> f64 {
            let counts = steps.counts(batch);
            counts.iter().filter(|(known, _)| *known == term).map(|(_, count)| count).sum()
        };
        let one_sampled = with(one, SAMPLED, 1);
        let is_sparse =
            steps.timers.iter().any(|(operator, _)| heads_of(operator).is_some_and(|heads| heads.is_sparse()));
        let requests = CountAxis::up_to(most_decodes, if is_sparse { KNOTS_OF_SPARSE } else { KNOTS });
        let (decode_attention, chunk_attention) = attention(steps, &requests)?;
        Some(OperatorTables {
            decodes: table(&alone, most_decodes, nothing, DECODES_ALONE),
            tokens: table(&by_tokens, most_tokens, one, TOKENS),
            decodes_with_chunks: table(&beyond_tokens(DECODES, 1), most_decodes, one, DECODES),
            sampled: table(&by_sampled, most_decodes, one, SAMPLED),
            chunks: [
                table(&by_chunk, most_tokens, one, CHUNK),
                table(&by_context, most_context, one, CONTEXT),
                table(&by_both, most_context, one, CHUNK),
            ],
            decode_attention,
            chunk_attention,
            state_scans: state_scans(steps),
            requests,
            most_decodes,
            launches: steps.launches,
            layers: counted(&one_sampled, Term::Layers),
            piecewise: [(nothing, DECODES_ALONE), (one, TOKENS)].map(|(batch, set)| {
                let layers = |tokens| counted(&with(batch, set, tokens), Term::PiecewiseLayers);
                (0..=FEWEST.max(captured_tokens)).map(|tokens| layers(tokens) > 0.0).collect()
            }),
            penalised: counted(&one_sampled, Term::PenalisedRequests),
        })
    }
}

/// Numbers of decodes in an octave between which times of their attention are interpolated.
const KNOTS: u64 = 16;

/// The same for attention to the keys that an indexer picks, whose time is most of a step and bends more.
const KNOTS_OF_SPARSE: u64 = 64;

/// Longest prompt whose attention has a time of its own in the tables.
const MOST_PROMPT_TOKENS: u32 = 4096;

/// Sets one of a batch's sums.
type Set = fn(&mut BatchSums, u64);

const TOKENS: Set = |batch, tokens| batch.num_tokens = tokens;
const DECODES: Set = |batch, decodes| batch.num_decodes = decodes;
const DECODES_ALONE: Set = |batch, decodes| (batch.num_tokens, batch.num_decodes) = (decodes, decodes);
const SAMPLED: Set = |batch, sampled| batch.num_sampled = sampled;
const CHUNK: Set = |batch, tokens| batch.prefill_tokens = tokens;
const CONTEXT: Set = |batch, tokens| batch.prefill_context_tokens = tokens;

fn with(mut batch: BatchSums, set: Set, count: u64) -> BatchSums {
    set(&mut batch, count);
    batch
}

/// The operators that a batch needs, without attention and kernels over prefill chunks of layers with a state.
fn ids(steps: &StepModel, batch: &BatchSums) -> Vec<OperatorId> {
    let mut work = Vec::new();
    steps.plan().operators(batch, &mut work);
    let is_tabulated = |operator: &&Operator| heads_of(operator).is_none() && scan_of(operator).is_none();
    work.iter().filter(is_tabulated).map(|operator| operator.id).collect()
}

/// The kernel and heads of an operator that runs over prefill chunks in a layer with a state; `None` for any other.
fn scan_of(operator: &Operator) -> Option<(StateKernel, StateHeads)> {
    match operator.kernel {
        Kernel::State { kernel, heads, .. } if kernel.is_prefill() => Some((kernel, heads)),
        _ => None,
    }
}

/// The kernels of layers with a state over prefill chunks.
fn state_scans(steps: &StepModel) -> Vec<(Term, StateScan)> {
    let scans = steps.timers.iter().filter_map(|(operator, timer)| {
        let scan = StateScan::new(operator, scan_of(operator)?, timer);
        Some((Term::of_operator(operator, true), scan))
    });
    scans.collect()
}

/// Entries of operators in the plan with their timers, without those that were measured as a part of another.
fn timed<'a>(steps: &'a StepModel, ids: &[OperatorId]) -> Vec<TimedEntry<'a>> {
    let entries = steps.plan().entries.iter().filter(|entry| ids.contains(&entry.id()));
    let timed = entries.filter_map(|entry| {
        let (operator, timer) = steps.timers.iter().find(|(known, _)| known.id == entry.id())?;
        let is_own = !steps.is_timed_within_another(operator);
        is_own.then_some(TimedEntry { entry, timer, last: None })
    });
    timed.collect()
}

/// An operator of the plan with its timer and its last time: padding gives neighbouring rows the same operator.
struct TimedEntry<'a> {
    entry: &'a Entry,
    timer: &'a Timer,
    last: Option<LastTime>,
}

/// The last time of an operator, with the rows that determined it.
struct LastTime {
    rows: Option<u64>,
    operator: Operator,
    call: OperatorTime,
}

/// Summed times of operators, in the order of the plan. `calls` is room for them.
fn group_times(
    steps: &StepModel,
    batch: &BatchSums,
    timed: &mut [TimedEntry<'_>],
    calls: &mut Vec<(Operator, OperatorTime)>,
) -> GroupTimes {
    let step = steps.plan().step(batch);
    let mut times = GroupTimes::default();
    let mut add = |operator: &Operator, call: &OperatorTime| {
        let count = operator.count as f64;
        times.add(operator.group, count * call.time_us, count * call.bound_us);
    };
    let depend_on_each_other = steps.host_reads.is_some() || steps.overlaps(batch);
    calls.clear();
    for TimedEntry { entry, timer, last } in timed {
        let rows = entry.rows(&step);
        let LastTime { operator, call, .. } = match last {
            Some(known) if rows.is_some() && known.rows == rows => known,
            _ => {
                let Some(operator) = entry.operator(&step) else { continue };
                let call = steps.time_of_call(timer, &operator, &[]);
                last.insert(LastTime { rows, operator, call })
            }
        };
        if depend_on_each_other {
            calls.push((*operator, *call));
        } else {
            add(operator, call);
        }
    }
    steps.overlap(calls, batch);
    calls.iter().for_each(|(operator, call)| add(operator, call));
    if let Some((operator, added)) = steps.host_reads.as_ref().and_then(|reads| reads.added(calls)) {
        times.add(operator.group, added.time_us, added.bound_us);
    }
    times
}

/// Attention of decodes and of prefill chunks. Returns `None` for more kinds of window than there is room for, and if a time
/// overflows.
fn attention(steps: &StepModel, requests: &CountAxis) -> Option<(Vec<DecodeAttention>, Vec<ChunkAttention>)> {
    let plan = steps.plan();
    let is_measured = steps.mode == EfficiencyMode::Tables;
    let (mut decodes, mut decode_heads, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
    for (operator, timer) in &steps.timers {
        let Some(heads) = heads_of(operator) else { continue };
        let is_decode = matches!(operator.kernel, Kernel::AttentionDecode { .. });
        let calls = Calls {
            window_index: plan.windows.iter().position(|window| *window == heads.window)?,
            calls: operator.count as f64,
            weight: operator.count as f64,
            launch_us: timer.attention_launch_us(),
            blocks_per_sm: if is_decode { heads.num_kv_heads } else { heads.num_heads } as f64 / steps.sm_count,
            bound: timer.attention_bound(operator, &heads),
        };
        if is_decode {
            let longest = heads.window.size().unwrap_or(u64::MAX).min(plan.max_model_len);
            let call_us = timer.decode_surface(&heads, &requests.knots, longest + 1);
            decodes.push(DecodeAttention { calls, call_us });
            decode_heads.push(heads);
        } else {
            let splits_per_key = splits_per_key(&heads);
            let fast = timer.fast_prefill(&heads);
            let tokens = (0..=MOST_PROMPT_TOKENS).filter(|_| heads.window == Window::Full);
            let prompt_us = tokens.map_while(|tokens| timer.prompt_us(&heads, f64::from(tokens.max(1)))).collect();
            chunks.push((heads, ChunkAttention { calls, fast, prompt_us, splits_per_key, shared_decode: None }));
        }
    }
    let chunks = chunks.into_iter().map(|(heads, attention)| {
        let shared_decode = decode_heads.iter().position(|decodes| is_measured && share_a_call(decodes, &heads));
        ChunkAttention { shared_decode, ..attention }
    });
    let chunks: Vec<ChunkAttention> = chunks.collect();
    let is_finite = decodes.iter().all(|attention: &DecodeAttention| attention.call_us.is_finite())
        && chunks.iter().all(|attention| attention.prompt_us.iter().all(|us| us.is_finite()));
    (is_finite && decodes.len() <= MAX_WINDOWS).then_some((decodes, chunks))
}
