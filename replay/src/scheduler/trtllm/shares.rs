//! How the contexts of a step share its tokens: `PyMicroBatchScheduler` (`tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`). It knows
//! numbers of tokens alone.

use crate::ContextChunkingPolicy;

/// A context that is in the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) slot: u32,
    /// Tokens to compute: all, and those of this step.
    pub(super) length: u32,
    pub(super) tokens: u32,
}

/// The tokens of a step that contexts may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    /// How contexts are cut, if they are.
    pub(super) policy: Option<ContextChunkingPolicy>,
    /// A chunk that is not the last one of its context has a multiple of so many tokens.
    pub(super) unit: u32,
    /// The most tokens of a step.
    pub(super) most: u32,
    /// Tokens that nobody has.
    pub(super) left: u32,
}

impl Shares {
    /// Tokens of a context of `length`: all that it gets, or its first turn. `None` if it and all behind it wait.
    pub(super) fn first(&mut self, length: u32) -> Option<u32> {
        let tokens = match self.policy {
            // Only a paused request can be longer than a step: with the tokens that it has generated.
            None => Some(length.min(self.most)).filter(|tokens| *tokens <= self.left)?,
            Some(ContextChunkingPolicy::FirstComeFirstServed) if length > self.left => {
                self.left / self.unit * self.unit
            }
            Some(ContextChunkingPolicy::FirstComeFirstServed) => length,
            Some(ContextChunkingPolicy::EqualProgress) => self.turn(length),
        };
        self.left -= tokens;
        Some(tokens)
    }

    /// Deals out the tokens that are left after each context's first turn.
    pub(super) fn deal(&mut self, shares: &mut [Share]) {
        let mut goes_on = self.policy == Some(ContextChunkingPolicy::EqualProgress);
        while goes_on {
            goes_on = false;
            for share in &mut *shares {
                let tokens = self.turn(share.length - share.tokens);
                share.tokens += tokens;
                self.left -= tokens;
                goes_on |= tokens > 0;
            }
        }
    }

    /// Tokens that a context gets in a turn.
    fn turn(&self, length: u32) -> u32 {
        Some(length.min(self.unit)).filter(|tokens| *tokens <= self.left).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(policy: Option<ContextChunkingPolicy>, left: u32, lengths: &[u32]) -> Vec<u32> {
        let mut shares = Shares { policy, unit: 32, most: 100, left };
        let first = |length: &u32| Some(Share { slot: 0, length: *length, tokens: shares.first(*length)? });
        let mut all: Vec<Share> = lengths.iter().map_while(first).collect();
        shares.deal(&mut all);
        all.iter().map(|share| share.tokens).collect()
    }

    #[test]
    fn whole_contexts_stop_at_the_first_that_does_not_fit() {
        assert_eq!(shares(None, 100, &[40, 60, 1]), [40, 60]);
        assert_eq!(shares(None, 99, &[40, 60, 1]), [40]);
        // 130 tokens of a paused request take a whole step, and 30 are left for the next one.
        assert_eq!(shares(None, 100, &[130]), [100]);
        assert_eq!(shares(None, 99, &[130]), [0; 0]);
    }

    /// 100 − 40 are 60 tokens for the second: 32, the block below. Of the 28 left the third gets none, and the last all that it needs.
    #[test]
    fn a_cut_goes_down_to_a_block_and_a_rest_is_whole() {
        let policy = Some(ContextChunkingPolicy::FirstComeFirstServed);
        assert_eq!(shares(policy, 100, &[40, 90, 29, 28]), [40, 32, 0, 28]);
        assert_eq!(shares(policy, 100, &[40, 60]), [40, 60]);
    }

    /// Turns of 32, 32 and 20 leave 16 of 100 tokens, less than a block: only a rest of at most 16 fits. Turns of 32, 11 and 32 leave 25.
    #[test]
    fn turns_are_of_a_block_each() {
        let policy = Some(ContextChunkingPolicy::EqualProgress);
        assert_eq!(shares(policy, 100, &[90, 90, 20]), [32, 32, 20]);
        assert_eq!(shares(policy, 100, &[90, 48, 20]), [32, 48, 20]);
        assert_eq!(shares(policy, 100, &[90, 11]), [64, 11]);
        assert_eq!(shares(policy, 100, &[70, 30]), [70, 30]);
    }
}
