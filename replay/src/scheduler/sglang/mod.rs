//! One round of SGLang's scheduler: prompts first and alone, then decodes.
//!
//! Mirrors `Scheduler.get_next_batch_to_run` (`managers/scheduler.py`), `PrefillAdder` (`managers/schedule_policy.py`) and
//! `ScheduleBatch.retract_decode` (`managers/schedule_batch.py`) of 0.5.9, first come first served.
//!
//! # Approximations
//! - A request that ends has no row in the step behind its last one. Up to 0.5.18, overlapped scheduling gives it one.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]

mod adder;
mod policy;
#[cfg(test)]
mod radix_tests;

use std::cmp::Reverse;
use std::collections::VecDeque;

use adder::{Candidate, MOST_NEW_TOKENS, PrefillAdder, RequestLengths, Stop};

use super::super::batch::Batch;
use super::super::slot::Slot;
use super::{Rules, Scheduler};
use crate::workload::WorkloadRequest;
use crate::{EngineConfig, SglangOptions};

/// Share of the output tokens that is kept at first, the least share of that, and the decode steps from one to the other.
const FIRST_RATIO: f64 = 0.7;
const LEAST_RATIO_SHARE: f64 = 0.14;
const DECAY_STEPS: f64 = 600.0;
/// Tokens that a decode server keeps free for each of its requests (`num_reserved_decode_tokens`, 0.5.9).
const RESERVED_DECODE_TOKENS: u64 = 512;
/// Decode steps that fit after a retraction (`SGLANG_RETRACT_DECODE_STEPS`).
const STEPS_AFTER_RETRACTION: u64 = 20;

/// SGLang's rules, and what they remember between rounds.
#[derive(Debug)]
pub(super) struct Sglang {
    options: SglangOptions,
    /// Share of the output tokens still to come that admission keeps KV cache for.
    new_token_ratio: f64,
    /// Nothing is admitted until a decode step has seen a request end.
    is_full: bool,
    has_ended: bool,
    /// Rounds since new requests were taken.
    rounds: u32,
}

/// Decodes that are in a step of prompts, and the blocks that they take.
#[derive(Debug, Clone, Copy, Default)]
struct DecodesBeside {
    number: u32,
    blocks: u32,
}

impl Rules for Sglang {
    fn schedule(
        &mut self,
        of: &mut Scheduler<'_>,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        found_cached: &mut dyn FnMut(u32, u32),
    ) {
        if of.running.is_empty() {
            self.is_full = false;
            if of.waiting.queue.is_empty() && of.chunked.is_none() {
                self.new_token_ratio = self.first_ratio();
            }
        }
        let tries = of.chunked.is_some() || (!self.is_full && !of.waiting.queue.is_empty());
        if tries {
            let beside = self.decodes_beside(of);
            self.add_prompts(of, beside, batch, found_cached);
            if !batch.requests.is_empty() {
                batch.is_alone = beside.number == 0;
                self.rounds = u32::MAX;
                if !batch.is_alone {
                    let prompts = batch.requests.len();
                    of.decode_all(batch);
                    // As requests run: those that have their prompts come first.
                    batch.requests.rotate_left(prompts);
                    batch.slots.rotate_left(prompts);
                    batch.records.rotate_left(prompts);
                }
                return;
            }
        }
        self.rounds = self.rounds.saturating_add(1);
        if self.has_ended {
            (self.has_ended, self.is_full) = (false, false);
        }
        self.add_decodes(of, batch, in_flight);
    }

    /// New requests are taken in some rounds alone (`recv_skipper`). An idle engine takes them at once.
    fn receives(&mut self, schedules_next: bool, is_idle: bool) -> bool {
        let receives = schedules_next && (is_idle || self.rounds >= self.options.scheduler_recv_interval);
        if receives {
            self.rounds = 0;
        }
        receives
    }

    /// Whether a request is admitted beside none, also after it was retracted before its last token.
    fn admits(&self, config: &EngineConfig, request: &WorkloadRequest) -> bool {
        let page = config.block_size;
        let capacity = u64::from(config.usable_blocks()) * u64::from(page);
        [0, request.num_output_tokens.saturating_sub(1)].into_iter().all(|output| {
            let mut adder = PrefillAdder::new((page, capacity), Vec::new(), 1.0, (u32::MAX, None), 0);
            let lengths = RequestLengths {
                prompt: request.num_prompt_tokens,
                max_new: request.num_output_tokens,
                output,
                ignore_eos: self.options.ignore_eos,
            };
            let candidate = Candidate { lengths, extend: lengths.prompt + output, newly_locked: 0 };
            adder.add(candidate, config.scheduler.enable_prefix_caching).tokens > 0
        })
    }

    /// A request that ends with its prompt leaves the step of prompts. Of one that ends later, the next round of decodes learns.
    fn ended(&mut self, request: &Slot) {
        if request.num_output_tokens == 1 {
            self.is_full = false;
        } else {
            self.has_ended = true;
        }
    }

    fn held(&mut self) {
        self.is_full = false;
    }

    fn admits_remote(&self, config: &EngineConfig, request: &WorkloadRequest) -> bool {
        let capacity = u64::from(config.usable_blocks()) * u64::from(config.block_size);
        let output = u64::from(request.num_output_tokens.min(MOST_NEW_TOKENS)).max(RESERVED_DECODE_TOKENS);
        u64::from(request.num_prompt_tokens) + output <= capacity && self.admits(config, request)
    }

    /// Every request that has blocks keeps room for its next tokens, and there is room for each of those that run to end if the others were
    /// retracted.
    ///
    /// # Source
    /// SGLang 0.5.9, `DecodePreallocQueue` (`disaggregation/decode.py`).
    fn reserve(&mut self, of: &mut Scheduler<'_>, slot: u32) -> Option<u32> {
        let begun = of.running.len() + of.num_without_tokens();
        let running: Vec<RequestLengths> = of.running.iter().map(|slot| self.lengths(of, *slot)).collect();
        let retractable: u64 = running.iter().map(|of| u64::from(of.prompt) + u64::from(of.output)).sum();
        let to_the_end = |of: RequestLengths| {
            let end = u64::from(of.prompt) + u64::from(of.max_new.min(MOST_NEW_TOKENS));
            end.saturating_sub(retractable)
        };
        let one_ends = running.iter().map(|of| to_the_end(*of)).max().unwrap_or(0);
        let kept = one_ends.max(RESERVED_DECODE_TOKENS * begun as u64);
        let free = (u64::from(of.cache.pool.num_free) * u64::from(of.config.block_size)).saturating_sub(kept);
        let own = self.lengths(of, slot);
        let needed = to_the_end(own).max(u64::from(own.prompt) + RESERVED_DECODE_TOKENS);
        (begun < of.config.max_num_seqs as usize && needed <= free).then(|| of.reserve_prompt(slot, false))
    }
}

impl Sglang {
    pub(super) fn new(options: SglangOptions) -> Self {
        let mut rules = Sglang { options, new_token_ratio: 0.0, is_full: false, has_ended: false, rounds: 0 };
        rules.new_token_ratio = rules.first_ratio();
        rules
    }

    fn first_ratio(&self) -> f64 {
        (FIRST_RATIO * self.options.schedule_conservativeness).min(1.0)
    }

    fn decay(&mut self) {
        let first = self.first_ratio();
        let least = LEAST_RATIO_SHARE * first;
        self.new_token_ratio = (self.new_token_ratio - (first - least) / DECAY_STEPS).max(least);
    }

    /// The lengths of a request, with the output tokens that steady decodes have brought it.
    #[inline]
    fn lengths(&self, of: &Scheduler<'_>, slot: u32) -> RequestLengths {
        let state = &of.slots[slot as usize];
        RequestLengths {
            prompt: state.num_prompt_tokens,
            max_new: state.num_output_tokens,
            output: state.delivered + of.steady.delivered_of(state),
            ignore_eos: self.options.ignore_eos,
        }
    }

    /// Adds a decode of every running request that fits.
    fn add_decodes(&mut self, of: &mut Scheduler<'_>, batch: &mut Batch, in_flight: &mut VecDeque<Box<Batch>>) {
        if of.running.is_empty() {
            return;
        }
        if of.evict_for_decodes() {
            self.decay();
        } else {
            of.steady.unsettle(&of.running, &mut of.slots, in_flight);
            self.retract(of, batch);
        }
        of.decode_all(batch);
    }

    /// The decodes that join a step of prompts: all, if they may and their blocks are free.
    fn decodes_beside(&self, of: &Scheduler<'_>) -> DecodesBeside {
        if !self.options.enable_mixed_chunk {
            return DecodesBeside::default();
        }
        let all = DecodesBeside {
            number: u32::try_from(of.running.len()).unwrap_or(u32::MAX),
            blocks: of.blocks_of_decodes(),
        };
        if all.blocks <= of.cache.pool.num_free { all } else { DecodesBeside::default() }
    }

    /// Adds the prompts of a round: the next chunk of the request that is computed in chunks, then waiting requests.
    fn add_prompts(
        &mut self,
        of: &mut Scheduler<'_>,
        beside: DecodesBeside,
        batch: &mut Batch,
        found_cached: &mut dyn FnMut(u32, u32),
    ) {
        if let Some(slot) = of.chunked {
            // Others find the chunks before this one.
            let state = &mut of.slots[slot as usize];
            of.cache.computed_chunk(state, state.computed);
        }
        policy::calc_priority(of, self.options.schedule_policy);
        let page = of.config.block_size;
        let running = of.running.iter().map(|slot| self.lengths(of, *slot)).collect();
        let limits = (self.options.max_prefill_tokens, self.options.chunk());
        let free = u64::from(of.cache.pool.num_free) * u64::from(page);
        let mut adder = PrefillAdder::new((page, free), running, self.new_token_ratio, limits, beside.number);
        let num_running = of.running.len();
        // Requests of the step with their tokens, for which blocks are allocated together, and how many these are.
        let mut added: Vec<(u32, u32)> = Vec::new();
        let mut reserved = 0;
        if let Some(slot) = of.chunked {
            let extend = of.slots[slot as usize].num_tokens() - of.slots[slot as usize].computed;
            let most = of.most_tokens(slot).min(extend);
            if most == 0 {
                return;
            }
            let tokens = adder.add_chunked(self.lengths(of, slot), extend).min(most);
            reserved += of.blocks_to_go_on(slot, tokens);
            added.push((slot, tokens));
            if tokens == extend {
                of.chunked = None;
                of.running.push(slot);
            }
        }
        let slots_left = (of.config.max_num_seqs as usize).saturating_sub(num_running);
        let is_caching = of.config.scheduler.enable_prefix_caching;
        let mut stop = None;
        while stop.is_none() {
            if adder.num_admitted() >= slots_left {
                stop = Some(Stop::NoToken);
                break;
            }
            let Some((turn, slot)) = of.waiting.after(None) else { break };
            // One that was retracted waits for its token of a step in flight.
            if of.slots[slot as usize].awaits_token() {
                break;
            }
            let Some(prefix) = of.prefix_of(slot) else { break };
            let extend = of.slots[slot as usize].num_tokens() - prefix.cached;
            let newly_locked = prefix.free_hits * page;
            let admission = adder.add(Candidate { lengths: self.lengths(of, slot), extend, newly_locked }, is_caching);
            stop = admission.stop;
            let tokens = admission.tokens;
            if tokens == 0 {
                break;
            }
            let blocks = of.blocks_to_begin(slot, &prefix, tokens);
            if blocks + reserved + beside.blocks > of.cache.pool.num_free {
                stop = Some(Stop::NoToken);
                break;
            }
            of.waiting.take(turn);
            of.begin(slot, prefix.cached, batch, found_cached);
            reserved += blocks - prefix.free_hits;
            added.push((slot, tokens));
            if tokens < extend {
                of.chunked = Some(slot);
                break;
            }
            of.running.push(slot);
        }
        self.is_full |= stop == Some(Stop::NoToken);
        of.put_prompts(&added, batch);
    }

    /// Puts requests back to the end of the queue until the others' decodes fit: those with the fewest output tokens first, and of these
    /// those with the longest prompts.
    fn retract(&mut self, of: &mut Scheduler<'_>, batch: &mut Batch) {
        let key = |slot: &u32| {
            let state = &of.slots[*slot as usize];
            (state.delivered, Reverse(state.num_prompt_tokens))
        };
        let mut by_output = of.running.clone();
        // Where drafts are verified, those that began to run last.
        if of.config.speculation.is_none() {
            by_output.sort_by_key(|slot| Reverse(key(slot)));
        }
        while by_output.len() > 1
            && let Some(victim) = by_output.pop()
        {
            of.running.retain(|slot| *slot != victim);
            let rank = of.slots[victim as usize].rank;
            batch.preempted.push(rank.record);
            of.lose(victim);
            of.waiting.push(victim, rank);
            of.cache.evict_for(STEPS_AFTER_RETRACTION * of.running.len() as u64);
            if of.evict_for_decodes() {
                break;
            }
        }
        let left = of.running.iter().map(|slot| &of.slots[*slot as usize]);
        let (outputs, most) = left.fold((0, 0), |(outputs, most), state| {
            (outputs + u64::from(state.delivered), most + u64::from(state.num_output_tokens))
        });
        let steps = STEPS_AFTER_RETRACTION * of.running.len() as u64;
        self.new_token_ratio = ((outputs + steps) as f64 / (most + 1) as f64).min(1.0);
    }
}

impl Scheduler<'_> {
    /// The most tokens that a request may compute within the free blocks.
    fn most_tokens(&self, slot: u32) -> u32 {
        let state = &self.slots[slot as usize];
        let blocks = state.blocks.len() as u64 + u64::from(self.cache.pool.num_free);
        let tokens = blocks * u64::from(self.config.block_size) - u64::from(state.computed);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Blocks that the next chunk of a request takes.
    fn blocks_to_go_on(&self, slot: u32, tokens: u32) -> u32 {
        let state = &self.slots[slot as usize];
        self.cache.missing(state, state.computed + tokens)
    }

    /// Allocates the blocks of a step's requests, of each for so many tokens, and puts them into the step. Before, prefixes are evicted as if each
    /// began a page (`alloc_paged_token_slots_extend`, `mem_cache/common.py`); a page of one token is counted once (`alloc_token_slots`).
    fn put_prompts(&mut self, added: &[(u32, u32)], batch: &mut Batch) {
        let page = u64::from(self.config.block_size);
        let begun = if page > 1 { page } else { 0 };
        self.cache.evict_for(added.iter().map(|(_, tokens)| u64::from(*tokens) + begun).sum());
        for (slot, tokens) in added {
            self.grow_and_put(*slot, *tokens, batch);
        }
    }

    /// Evicts prefixes for the decodes of all running requests (`check_decode_mem`). Returns whether they fit.
    fn evict_for_decodes(&mut self) -> bool {
        let blocks = self.blocks_of_decodes();
        self.cache.evict_for(u64::from(blocks) * u64::from(self.config.block_size));
        blocks <= self.cache.pool.num_free
    }

    /// Adds a decode of every running request.
    fn decode_all(&mut self, batch: &mut Batch) {
        // A page for each (`alloc_paged_token_slots_decode`). Prompts of the same step have theirs.
        let has_its_own = |slot: &&u32| self.slots[**slot as usize].scheduled_at.is_some();
        let prompts = self.running[self.steady.num_settled..].iter().filter(has_its_own).count();
        let rows = self.running.len() - prompts;
        self.cache.evict_for(rows as u64 * u64::from(self.config.block_size));
        self.steady.take_blocks(&mut self.slots, &mut self.cache);
        for index in self.steady.num_settled..self.running.len() {
            let slot = self.running[index];
            let state = &self.slots[slot as usize];
            let known = self.known(state);
            if state.scheduled_at.is_none() && self.wanted(state, known) > 0 {
                self.decode(slot, known, batch);
            }
        }
    }
}
