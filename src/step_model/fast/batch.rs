//! Step times without their breakdown: from a batch in any layout to its sums, and from sums to a time by the lookup tables or by
//! the operators. Uses `plain_decodes`, `tables`, `operators`, `state`.

use pulp::{Simd, WithSimd};

use super::plain_decodes::Layout;
use super::state::StepState;
use super::tables::{DecodeBatch, StepTables};
use crate::model::Window;
use crate::physics::BatchSums;
use crate::request::{Request, RequestColumns};
use crate::step::Step;
use crate::step_model::StepModel;

/// Requests that are summed together in a batch that is not all plain decodes.
const BLOCK: usize = 64;

/// A step in a form that [`StepModel::step_time_us`] takes: a [`Step`]; a slice, vector or array of [`Request`], [`RequestColumns`],
/// or a [`StepState`], each by reference. This crate alone implements it.
pub trait StepRequests {
    #[doc(hidden)]
    fn time_us(self, steps: &StepModel) -> f64;
}

impl<R: AsRef<[Request]> + ?Sized> StepRequests for &R {
    #[inline(always)]
    fn time_us(self, steps: &StepModel) -> f64 {
        steps.time_us_of(self.as_ref())
    }
}

impl StepRequests for &Step<'_> {
    #[inline(always)]
    fn time_us(self, steps: &StepModel) -> f64 {
        let Step { requests, shared_kv_tokens, own_sampling } = *self;
        let steps = steps.for_sampling(own_sampling);
        if shared_kv_tokens == 0 {
            return steps.time_us_of(requests);
        }
        steps.cpu.dispatch(SharingStep { steps, requests, shared_kv_tokens })
    }
}

impl StepRequests for Step<'_> {
    #[inline(always)]
    fn time_us(self, steps: &StepModel) -> f64 {
        (&self).time_us(steps)
    }
}

impl StepRequests for &RequestColumns<'_> {
    #[inline(always)]
    fn time_us(self, steps: &StepModel) -> f64 {
        steps.time_us_of(*self)
    }
}

impl StepRequests for &StepState {
    #[inline(always)]
    fn time_us(self, steps: &StepModel) -> f64 {
        let mut sums = *self.sums();
        steps.share(&mut sums, 0);
        steps.time_us_of_sums(&sums)
    }
}

impl StepModel {
    /// The time of a step in µs: [`StepModel::estimate`]'s within 0.1 %, in tens of nanoseconds. Event loops call this.
    ///
    /// One pass sums the requests, and a few loads from lookup tables give the time; a batch beyond the tables is evaluated operator
    /// by operator. The call allocates nothing within the tables and takes no lock. The same requests give the same bits in any order,
    /// in any layout and on any thread. Requests that schedule nothing are ignored; a step without requests takes 0 µs.
    #[inline]
    pub fn step_time_us(&self, step: impl StepRequests) -> f64 {
        step.time_us(self)
    }

    /// A step without requests, to which requests are added one by one.
    pub fn state(&self) -> StepState {
        StepState::new(&self.plan.windows)
    }

    #[inline(always)]
    fn time_us_of<L: Layout>(&self, requests: L) -> f64 {
        self.cpu.dispatch(PlainStep { steps: self, requests })
    }

    #[inline(never)]
    fn time_us_of_mixed<S: Simd, L: Layout>(&self, simd: S, requests: L) -> f64 {
        simd.vectorize(MixedStep { steps: self, requests })
    }

    #[inline]
    pub(in crate::step_model) fn time_us_of_sums(&self, sums: &BatchSums) -> f64 {
        match self.tables.as_ref().and_then(|tables| tables.time_us(sums)) {
            Some(time_us) => time_us,
            None => self.time_us_by_operator(sums),
        }
    }

    /// The time of a step of plain decodes with `tokens` computed tokens in all, if windows hide some of them.
    #[inline(never)]
    fn windowed_us<S: Simd, L: Layout>(&self, simd: S, tables: &StepTables, requests: L, tokens: u64) -> Option<f64> {
        let mut decodes = DecodeBatch::default();
        decodes.add_plain(simd, &self.plan.windows, requests, tokens);
        tables.decodes_us(decodes.num_requests, decodes.num_requests, |window| decodes.kv_tokens.get(window).copied())
    }
}

impl DecodeBatch {
    /// Adds plain decodes with `tokens` computed tokens in all.
    #[inline(always)]
    fn add_plain<S: Simd, L: Layout>(&mut self, simd: S, windows: &[Window], requests: L, tokens: u64) {
        let count = requests.len() as u64;
        self.num_requests += count;
        for (kv_tokens, window) in self.kv_tokens.iter_mut().zip(windows) {
            *kv_tokens += count
                + match window {
                    Window::Full => tokens,
                    other => requests.plain_cached_keys(simd, *other),
                };
        }
    }
}

/// The time of a step, which is most likely one of plain decodes.
struct PlainStep<'a, L> {
    steps: &'a StepModel,
    requests: L,
}

impl<L: Layout> WithSimd for PlainStep<'_, L> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let PlainStep { steps, requests } = self;
        let is_decode = |index: usize| requests.get(index).is_some_and(|request| request.is_decode());
        if let Some(tables) = &steps.tables
            && is_decode(0)
            && is_decode(requests.len() - 1)
            && let Some(tokens) = requests.plain_tokens(simd)
        {
            let count = requests.len() as u64;
            let time_us = if steps.is_full_attention {
                tables.decodes_us(count, count, |_| Some(count + tokens))
            } else {
                steps.windowed_us(simd, tables, requests, tokens)
            };
            if let Some(time_us) = time_us {
                return time_us;
            }
        }
        steps.time_us_of_mixed(simd, requests)
    }
}

/// The time of a step with prefill chunks: summed and looked up within one function, so that nothing is passed through memory.
struct MixedStep<'a, L> {
    steps: &'a StepModel,
    requests: L,
}

impl<L: Layout> WithSimd for MixedStep<'_, L> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let MixedStep { steps, requests } = self;
        let mut sums = BatchSums::default();
        // Most models have full windows alone: with the window known, summing a request is a few instructions.
        match &steps.plan.windows[..] {
            [Window::Full] => Summed { windows: &[Window::Full], requests, sums: &mut sums }.with_simd(simd),
            windows => simd.vectorize(Summed { windows, requests, sums: &mut sums }),
        }
        if sums.num_draft_tokens > 0 {
            steps.share(&mut sums, 0);
        }
        if sums.num_prefills == 0 {
            return steps.time_us_of_sums(&sums);
        }
        if let Some(tables) = &steps.tables
            && let Some(time_us) = tables.mixed_us(&sums)
        {
            return time_us;
        }
        // A copy, so that the sums need not lie in memory before.
        let sums = sums;
        steps.time_us_by_operator(&sums)
    }
}

/// The time of a step whose decodes read `shared_kv_tokens` keys again.
struct SharingStep<'a> {
    steps: &'a StepModel,
    requests: &'a [Request],
    shared_kv_tokens: u64,
}

impl WithSimd for SharingStep<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let SharingStep { steps, requests, shared_kv_tokens } = self;
        let mut sums = BatchSums::default();
        match requests.plain_tokens(simd) {
            Some(tokens) => {
                let mut decodes = DecodeBatch::default();
                decodes.add_plain(simd, &steps.plan.windows, requests, tokens);
                decodes.add_to(&mut sums);
            }
            None => simd.vectorize(Summed { windows: &steps.plan.windows, requests, sums: &mut sums }),
        }
        steps.share(&mut sums, shared_kv_tokens);
        steps.time_us_of_sums(&sums)
    }
}

/// Adds a batch to `sums`. Engines put prefill chunks behind the decodes and some simulators before them, so that the plain decodes
/// between form a run.
struct Summed<'a, L> {
    windows: &'a [Window],
    requests: L,
    sums: &'a mut BatchSums,
}

impl<L: Layout> WithSimd for Summed<'_, L> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Summed { windows, requests, sums } = self;
        let (mut decodes, mut start, mut end) = (DecodeBatch::default(), 0, requests.len());
        while let Some(request) = requests.get(start).filter(|request| start < end && !request.is_decode()) {
            sums.add_request(&request, windows);
            start += 1;
        }
        while let Some(request) =
            requests.get(end.wrapping_sub(1)).filter(|request| start < end && !request.is_decode())
        {
            sums.add_request(&request, windows);
            end -= 1;
        }
        while start < end {
            let block = requests.part(start..end.min(start + BLOCK));
            match block.plain_tokens(simd) {
                Some(tokens) => decodes.add_plain(simd, windows, block, tokens),
                None => (0..block.len())
                    .filter_map(|index| block.get(index))
                    .for_each(|request| sums.add_request(&request, windows)),
            }
            start += block.len();
        }
        decodes.add_to(sums);
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
