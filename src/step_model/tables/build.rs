//! Fills the lookup tables from a step model's operators. Uses `efficiency`, `physics`, the step model.

use super::OperatorTables;
use super::attention::{ChunkAttention, DecodeAttention};
use super::one_chunk::OneChunk;
use super::rows::{GroupTable, GroupTimes};
use crate::correction::Term;
use crate::efficiency::fast_prefill::Chunks;
use crate::efficiency::kernel_time::heads_of;
use crate::efficiency::mixed::share_a_call;
use crate::efficiency::surface::CountAxis;
use crate::efficiency::{EfficiencyMode, OperatorTime, Timer};
use crate::model::Window;
use crate::physics::{
    AttentionHeads, BatchShape, BatchSums, Entry, GraphMode, Kernel, MAX_WINDOWS, Operator, OperatorId,
};
use crate::request::Request;
use crate::step_model::StepModel;
use crate::step_model::operators::HOST_LAUNCH_US;

/// Most tokens, and most cached tokens of chunks, in the tables.
const MOST_TOKENS: u64 = 131_072;

/// Most decodes in the tables.
const MOST_DECODES: u64 = 8192;

/// Tables hold at least so many decodes and tokens, whatever the scheduler's limits.
const FEWEST: u64 = 1024;

impl OperatorTables {
    /// Fills the tables of `steps`. Returns `None` for a model with more kinds of attention than they have room for, and if a time
    /// overflows.
    pub(in crate::step_model) fn new(steps: &StepModel) -> Option<Self> {
        let plan = steps.plan();
        let most_decodes = plan.max_num_seqs().clamp(FEWEST, MOST_DECODES);
        let most_tokens = plan.max_num_batched_tokens().clamp(most_decodes, MOST_TOKENS);
        let most_context = (plan.max_model_len() * 2).clamp(most_tokens, MOST_TOKENS);

        let nothing = BatchSums::default().shape(plan.windows());
        // One token of a step with a prefill chunk, and nothing else: the operators that depend on tokens alone.
        let one = BatchSums { num_tokens: 1, num_prefills: 1, ..BatchSums::default() }.shape(plan.windows());
        let by_tokens = Ids::of(steps, &one);
        let beyond_tokens = |set: Set| Ids::of(steps, &with(one, set, 1)).without(&by_tokens);
        let by_chunk = beyond_tokens(CHUNK);
        let by_context = beyond_tokens(CONTEXT);
        let by_both = by_chunk.clone().within(&by_context);
        let alone = Ids::of(steps, &with(nothing, DECODES_ALONE, 1));

        let table = |names: &Ids, limit: u64, mut batch: BatchShape, set: Set| {
            if names.0.is_empty() {
                return GroupTable::default();
            }
            let mut timed = names.timed(steps);
            GroupTable::new(limit, |rows| {
                set(&mut batch, rows);
                group_times(steps, &batch, &mut timed)
            })
        };
        let counted = |batch: &BatchShape, term: Term| -> f64 {
            let counts = steps.counts(batch);
            counts.iter().filter(|(known, _)| *known == term).map(|(_, count)| count).sum()
        };
        let one_sampled = with(one, SAMPLED, 1);
        let requests = CountAxis::up_to(most_decodes);
        let decode_attention = decode_attention(steps, &requests)?;
        let chunk_attention = chunk_attention(steps, &decode_attention)?;
        let is_piecewise = |tokens| counted(&with(one, TOKENS, tokens), Term::PiecewiseLayers) > 0.0;
        Some(OperatorTables {
            decodes: table(&alone, most_decodes, nothing, DECODES_ALONE),
            tokens: table(&by_tokens, most_tokens, one, TOKENS),
            decodes_beside: table(&beyond_tokens(DECODES), most_decodes, one, DECODES),
            sampled: table(&beyond_tokens(SAMPLED), most_decodes, one, SAMPLED),
            chunks: [
                table(&by_chunk.without(&by_both), most_tokens, one, CHUNK),
                table(&by_context.without(&by_both), most_context, one, CONTEXT),
                table(&by_both, most_context, one, CHUNK),
            ],
            decode_attention,
            chunk_attention,
            requests,
            most_decodes,
            layers: counted(&one_sampled, Term::Layers),
            piecewise_tokens: (0..=FEWEST).map(is_piecewise).collect(),
            sorted_megalogits: counted(&one_sampled, Term::SortedMegalogits),
            penalised: counted(&one_sampled, Term::PenalisedRequests),
        })
    }
}

/// Sets one of a batch's sums.
type Set = fn(&mut BatchShape, u64);

const TOKENS: Set = |batch, tokens| batch.num_tokens = tokens;
const DECODES: Set = |batch, decodes| batch.num_decodes = decodes;
const DECODES_ALONE: Set = |batch, decodes| (batch.num_tokens, batch.num_decodes) = (decodes, decodes);
const SAMPLED: Set = |batch, sampled| batch.num_sampled = sampled;
const CHUNK: Set = |batch, tokens| batch.prefill_tokens = tokens;
const CONTEXT: Set = |batch, tokens| batch.prefill_context_tokens = tokens;

fn with(mut batch: BatchShape, set: Set, count: u64) -> BatchShape {
    set(&mut batch, count);
    batch
}

/// Ids of operators other than attention.
#[derive(Clone)]
struct Ids(Vec<OperatorId>);

impl Ids {
    /// Those that a batch needs.
    fn of(steps: &StepModel, batch: &BatchShape) -> Self {
        let mut work = Vec::new();
        steps.plan().operators(batch, &mut work);
        Ids(work.iter().filter(|operator| heads_of(operator).is_none()).map(|operator| operator.id).collect())
    }

    fn without(mut self, others: &Ids) -> Self {
        self.0.retain(|id| !others.0.contains(id));
        self
    }

    fn within(mut self, others: &Ids) -> Self {
        self.0.retain(|id| others.0.contains(id));
        self
    }

    /// Their entries in the plan with their timers, without those that were measured as a part of another.
    fn timed<'a>(&self, steps: &'a StepModel) -> Vec<TimedEntry<'a>> {
        let entries = steps.plan().entries().iter().filter(|entry| self.0.contains(&entry.id()));
        let timed = entries.filter_map(|entry| {
            let (operator, timer) = steps.timers.iter().find(|(known, _)| known.id == entry.id())?;
            let is_own = !steps.is_timed_within_another(operator);
            is_own.then_some(TimedEntry { entry, timer, last: None })
        });
        timed.collect()
    }
}

/// An operator of the plan with its timer and its last time: padding gives neighbouring rows the same operator.
struct TimedEntry<'a> {
    entry: &'a Entry,
    timer: &'a Timer,
    last: Option<(Operator, OperatorTime)>,
}

/// Summed times of operators, in the order of the plan.
fn group_times(steps: &StepModel, batch: &BatchShape, timed: &mut [TimedEntry<'_>]) -> GroupTimes {
    let graph_mode = steps.plan().graph_mode(batch);
    let step = steps.plan().step(batch);
    let mut times = GroupTimes::default();
    for TimedEntry { entry, timer, last } in timed {
        let Some(operator) = entry.operator(&step) else { continue };
        let time = match last {
            Some((known, time)) if *known == operator => *time,
            _ => last.insert((operator, steps.time_of_call(timer, &operator, graph_mode, &[]))).1,
        };
        let count = operator.count as f64;
        times.add(operator.group, count * time.time_us, count * time.bound_us);
    }
    times
}

/// A chunk of `tokens` whose tokens see as many keys under a full window, on average, as those of a prompt of `prompt` tokens.
fn one_chunk(tokens: u32, prompt: f64) -> Chunks {
    let query_tokens = f64::from(tokens);
    Chunks {
        query_tokens,
        squared_tokens: query_tokens * query_tokens,
        pairs: 0.5 * query_tokens * (prompt + 1.0),
        kv_tokens: 0.5 * (query_tokens + prompt),
    }
}

/// Attention operators of a batch with a decode and a prefill chunk.
fn attention_operators(steps: &StepModel) -> Vec<(Operator, AttentionHeads, usize)> {
    let mut sums = BatchSums::default();
    let windows = steps.plan().windows();
    for request in [Request::decode(8), Request::prefill(2, 4)] {
        sums.add_request(&request, windows);
    }
    let mut work = Vec::new();
    steps.plan().operators(&sums.shape(windows), &mut work);
    let placed = work.into_iter().filter_map(|operator| {
        let heads = heads_of(&operator)?;
        Some((operator, heads, windows.iter().position(|window| *window == heads.window)?))
    });
    placed.collect()
}

/// Least time of a kernel that the host launches, µs.
fn least_us(steps: &StepModel) -> f64 {
    let one = with(BatchSums::default().shape(steps.plan().windows()), DECODES_ALONE, 1);
    let is_eager = steps.mode == EfficiencyMode::Tables && steps.plan().graph_mode(&one) == GraphMode::Eager;
    if is_eager { HOST_LAUNCH_US } else { 0.0 }
}

fn decode_attention(steps: &StepModel, requests: &CountAxis) -> Option<Vec<DecodeAttention>> {
    let mut list = Vec::new();
    let least_us = least_us(steps);
    for (operator, heads, window_index) in attention_operators(steps) {
        if !matches!(operator.kernel, Kernel::AttentionDecode { .. }) {
            continue;
        }
        let timer = steps.timer(&operator)?;
        let times = timer.decode_times(&heads);
        let longest = match heads.window {
            Window::Full => steps.plan().max_model_len(),
            Window::Sliding(tokens) | Window::Chunked(tokens) => tokens.min(steps.plan().max_model_len()),
        };
        list.push(DecodeAttention {
            window_index,
            heads,
            calls: operator.count as f64,
            weight: operator.count as f64,
            launch_us: timer.attention_launch_us(),
            blocks_per_sm: heads.num_kv_heads as f64 / steps.sm_count,
            call_us: DecodeAttention::surface(requests, longest + 1, |requests, kv_tokens| {
                times.as_ref().map_or(0.0, |times| times.us(requests, kv_tokens)).max(least_us)
            }),
            bound: timer.attention_bound(&operator, &heads),
        });
    }
    (list.len() <= MAX_WINDOWS && list.iter().all(|attention| attention.call_us.is_finite())).then_some(list)
}

fn chunk_attention(steps: &StepModel, decodes: &[DecodeAttention]) -> Option<Vec<ChunkAttention>> {
    let mut list = Vec::new();
    for (operator, heads, window_index) in attention_operators(steps) {
        if !matches!(operator.kernel, Kernel::AttentionPrefill { .. }) {
            continue;
        }
        let timer = steps.timer(&operator)?;
        let is_measured = steps.mode == EfficiencyMode::Tables;
        let mut attention = ChunkAttention {
            window_index,
            calls: operator.count as f64,
            weight: operator.count as f64,
            launch_us: timer.attention_launch_us(),
            blocks_per_sm: heads.num_heads as f64 / steps.sm_count,
            fast: timer.fast_prefill(&heads),
            one: None,
            bound: timer.attention_bound(&operator, &heads),
            beside: decodes.iter().position(|decode| is_measured && share_a_call(&decode.heads, &heads)),
            least_us: least_us(steps),
        };
        if let (Window::Full, Some(fast)) = (heads.window, &attention.fast) {
            let longest = u32::try_from(steps.plan().max_model_len()).unwrap_or(u32::MAX / 2);
            // The function is smooth beyond the diagonal too, where the context would be negative.
            let call_us = |tokens: u32, prompt: f64| {
                fast.like_prompts_us(&one_chunk(tokens, prompt), prompt, (f64::from(tokens) / prompt).min(1.0))
            };
            attention.one = Some(OneChunk::new(longest, call_us));
        }
        list.push(attention);
    }
    let is_finite = |attention: &ChunkAttention| attention.one.as_ref().is_none_or(OneChunk::is_finite);
    list.iter().all(is_finite).then_some(list)
}
