//! An observer that collects what KV metrics need beyond the records.

use ridgepoint::Request;
use ridgepoint::units::real;

use crate::block_lives::BlockStats;
use crate::observe::{Event, Events, Observer, StepEvent};

/// Follows the blocks of a replay, and the decodes that share a step with prefill chunks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KvWatch {
    pub(super) blocks: Option<BlockStats>,
    prefill_steps: u64,
    decodes: u64,
    decode_tokens: u64,
}

impl KvWatch {
    /// The mean batch of decodes in steps with prefill chunks: their mean number, each with their mean KV length.
    pub(super) fn decodes_with_chunks(&self) -> Vec<Request> {
        let mean = |sum: u64, of: u64| sum.saturating_add(of / 2).checked_div(of).unwrap_or(0);
        let num_decodes = usize::try_from(mean(self.decodes, self.prefill_steps)).unwrap_or(0);
        let num_tokens = u32::try_from(mean(self.decode_tokens, self.decodes)).unwrap_or(u32::MAX - 1);
        vec![Request::decode(num_tokens.max(1)); num_decodes]
    }

    /// Mean number of decodes in steps with prefill chunks.
    pub(super) fn mean_decodes(&self) -> f64 {
        real(self.decodes) / real(self.prefill_steps.max(1))
    }
}

impl KvWatch {
    fn count(&mut self, event: &StepEvent<'_>) {
        let requests = event.step.requests;
        let (mut decodes, mut decode_tokens) = (0, 0);
        for decode in requests.iter().filter(|request| request.is_decode()) {
            decodes += 1;
            decode_tokens += u64::from(decode.num_computed_tokens);
        }
        if decodes < requests.len() as u64 {
            self.prefill_steps += 1;
            self.decodes += decodes;
            self.decode_tokens += decode_tokens;
        }
    }
}

impl Observer for KvWatch {
    fn wants(&self) -> Events {
        Events::STEPS | Events::BLOCKS
    }

    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Step(step) => self.count(step),
            Event::Blocks(stats) => self.blocks = Some(**stats),
            _ => {}
        }
    }
}
