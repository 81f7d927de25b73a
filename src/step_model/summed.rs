//! Step times and nothing else, from sums over a batch: what event loops ask for millions of times. Uses `compiled`, and the
//! operators where tables end.

use pulp::{Arch, Scalar, Simd, WithSimd};

use super::StepModel;
use super::compiled::{Batch, Decodes, Run, StepState, pass};
use crate::physics::BatchSums;
use crate::request::{Request, RequestColumns};

impl StepModel {
    /// The time of [`StepModel::step_time`] alone, µs, within 0.1 % and a hundred times sooner: what event loops call. One pass
    /// over the requests and a few loads from dense tables; nothing is allocated, nothing locked, and the same requests give
    /// the same bits in any order and on any thread. Requests that schedule nothing are left out; nothing to do takes 0.
    pub fn step_time_us(&self, requests: &[Request]) -> f64 {
        self.on_this_cpu(Ask { steps: self, batch: requests })
    }

    /// [`StepModel::step_time_us`] of requests that lie in columns.
    pub fn step_time_us_of(&self, requests: &RequestColumns<'_>) -> f64 {
        self.on_this_cpu(Ask { steps: self, batch: *requests })
    }

    /// A step without requests, to add requests to in constant time each.
    pub fn state(&self) -> StepState {
        StepState::new(self.plan.windows())
    }

    /// [`StepModel::step_time_us`] of requests that were added to a [`StepModel::state`] of this model, whatever their number.
    pub fn step_time_us_of_state(&self, state: &StepState) -> f64 {
        let mut chunks = None;
        let decodes = state.passed(&mut chunks);
        self.summed_us(&decodes, chunks.as_ref())
    }

    /// [`StepModel::step_time_us`] operator by operator: the time of [`StepModel::step_time`] to the last bit.
    pub fn step_time_us_by_operator(&self, requests: &[Request]) -> f64 {
        let mut chunks = None;
        let decodes = self.on_this_cpu(Pass { steps: self, batch: requests, chunks: &mut chunks });
        self.by_operator_us(&decodes.and(chunks.as_ref()))
    }

    /// Runs `op` by the lanes that this CPU has.
    #[inline(always)]
    fn on_this_cpu<Op: WithSimd>(&self, op: Op) -> Op::Output {
        match self.cpu {
            // Out of the way of what nearly all CPUs do.
            Arch::Scalar => one_lane(op),
            wider => wider.dispatch(op),
        }
    }

    #[inline(never)]
    fn with_chunk_us<S: Simd, B: Batch>(&self, simd: S, batch: B, at: usize) -> f64 {
        simd.vectorize(AskWithChunk { steps: self, batch, at })
    }

    /// Where something else than plain decodes and one chunk is in the batch.
    #[inline(never)]
    fn any_us<S: Simd, B: Batch>(&self, simd: S, batch: B) -> f64 {
        let mut chunks = None;
        let decodes = simd.vectorize(Pass { steps: self, batch, chunks: &mut chunks });
        self.summed_us(&decodes, chunks.as_ref())
    }

    /// Plain decodes, and a chunk, where a model has other windows than the full one.
    #[inline(never)]
    fn windowed_us<S: Simd, B: Batch>(&self, simd: S, plain: Plain<B>, chunk: Option<&Request>) -> f64 {
        let decodes = simd.vectorize(SumPlain { steps: self, plain });
        let mut chunks = BatchSums::default();
        if let Some(chunk) = chunk {
            chunks.add_request(chunk, self.plan.windows());
        }
        self.summed_us(&decodes, (chunks.num_prefills > 0).then_some(&chunks))
    }

    #[inline]
    fn summed_us(&self, decodes: &Decodes, chunks: Option<&BatchSums>) -> f64 {
        match self.compiled.as_ref().and_then(|compiled| compiled.time_us(decodes, chunks)) {
            Some(time_us) => time_us,
            None => self.beyond_tables_us(decodes, chunks),
        }
    }

    #[cold]
    fn beyond_tables_us(&self, decodes: &Decodes, chunks: Option<&BatchSums>) -> f64 {
        self.by_operator_us(&decodes.and(chunks))
    }

    fn by_operator_us(&self, sums: &BatchSums) -> f64 {
        let shape = sums.shape(self.plan.windows());
        if shape.num_requests() == 0 {
            return 0.0;
        }
        let mut work = Vec::with_capacity(self.timers.len());
        self.plan.operators(&shape, &mut work);
        let graph_mode = self.plan.graph_mode(&shape);
        let (mut time_us, mut bound_us) = (0.0, 0.0);
        for operator in &work {
            if let Some(timed) = self.timed(operator, graph_mode, &work) {
                let count = operator.count as f64;
                time_us += count * timed.time_us * self.factor(operator.group);
                bound_us += count * timed.bound_us;
            }
        }
        for (_, learned_us) in self.learned(&shape) {
            time_us += learned_us;
        }
        time_us.max(bound_us)
    }
}

#[inline(never)]
fn one_lane<Op: WithSimd>(op: Op) -> Op::Output {
    Scalar.vectorize(op)
}

/// Plain decodes with so many tokens in their caches.
#[derive(Clone, Copy)]
struct Plain<B> {
    batch: B,
    computed_tokens: u64,
}

/// The time of a batch's step.
struct Ask<'a, B> {
    steps: &'a StepModel,
    batch: B,
}

impl<B: Batch> WithSimd for Ask<'_, B> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Ask { steps, batch } = self;
        // Engines put a prompt chunk behind the decodes, some simulators before them.
        let is_chunk = |index: usize| batch.get(index).is_some_and(|request| !request.is_decode());
        let last = batch.len().wrapping_sub(1);
        if is_chunk(last) {
            return steps.with_chunk_us(simd, batch, last);
        }
        if is_chunk(0) {
            return steps.with_chunk_us(simd, batch, 0);
        }
        let Some(computed_tokens) = batch.plain_computed_tokens(simd) else { return steps.any_us(simd, batch) };
        let run = Run::plain(batch.len(), computed_tokens);
        match steps.compiled.as_ref().and_then(|compiled| compiled.run_us(&run)) {
            Some(time_us) => time_us,
            None => steps.windowed_us(simd, Plain { batch, computed_tokens }, None),
        }
    }
}

/// The time of a batch with a chunk at its end or beginning, in a function of its own: what it keeps in registers would be in
/// the way of the decodes that most batches are.
struct AskWithChunk<'a, B> {
    steps: &'a StepModel,
    batch: B,
    at: usize,
}

impl<B: Batch> WithSimd for AskWithChunk<'_, B> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let AskWithChunk { steps, batch, at } = self;
        let chunk = batch.get(at);
        let rest = if at == 0 { batch.split(1).1 } else { batch.split(at).0 };
        let Some(computed_tokens) = rest.plain_computed_tokens(simd) else { return steps.any_us(simd, batch) };
        let run = Run::plain(rest.len(), computed_tokens);
        let compiled = steps.compiled.as_ref();
        match compiled.zip(chunk.as_ref()).and_then(|(compiled, chunk)| compiled.run_and_chunk_us(&run, chunk)) {
            Some(time_us) => time_us,
            None => steps.windowed_us(simd, Plain { batch: rest, computed_tokens }, chunk.as_ref()),
        }
    }
}

/// [`pass`] over a batch.
struct Pass<'a, B> {
    steps: &'a StepModel,
    batch: B,
    chunks: &'a mut Option<BatchSums>,
}

impl<B: Batch> WithSimd for Pass<'_, B> {
    type Output = Decodes;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Decodes {
        pass(simd, self.batch, self.steps.plan.windows(), self.chunks)
    }
}

/// Plain decodes under all of a model's windows.
struct SumPlain<'a, B> {
    steps: &'a StepModel,
    plain: Plain<B>,
}

impl<B: Batch> WithSimd for SumPlain<'_, B> {
    type Output = Decodes;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Decodes {
        let Plain { batch, computed_tokens } = self.plain;
        let mut decodes = Decodes::default();
        decodes.add_plain(simd, batch, computed_tokens, self.steps.plan.windows());
        decodes
    }
}

#[cfg(test)]
#[path = "summed_tests.rs"]
mod tests;
