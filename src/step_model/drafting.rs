//! The passes that draft tokens behind a step (speculative decoding). Uses `model`, `physics`.
//!
//! The first pass runs over all tokens of the step, whose hidden states are new. Each later one runs over one token of every request, or
//! over as many as a tree of drafts is wide.

use super::{CorrectionChoice, Options, StepModel};
use crate::deployment::Deployment;
use crate::error::Result;
use crate::hardware::Hardware;
use crate::model::{DraftShape, Model};
use crate::physics::BatchSums;
use crate::request::Request;
use crate::step::Step;

/// Time of the host in a step that verifies drafts under SGLang, whose first version of speculation (the default up to 0.5.10) hides none of it
/// behind the GPU: inputs of the passes, the tree, the verdict, KV slots. Identified from 14 published runs of Qwen3-8B with EAGLE-3 on H100
/// under 0.5.3, whose mean time between deliveries is longer than the kernels' by 0 to 4 ms, 1.5 ms in the median.
const SGLANG_HOST_US: f64 = 1500.0;

/// What drafts, and its passes.
#[derive(Debug, Clone)]
pub(super) struct Drafting {
    steps: StepModel,
    shape: DraftShape,
    host_us: f64,
}

impl Drafting {
    /// `None` for a model without a draft, or a deployment without speculative decoding.
    pub(super) fn new(
        model: &Model,
        hardware: &Hardware,
        deployment: &Deployment,
        options: &Options,
    ) -> Result<Option<Self>> {
        let drafts = deployment.num_draft_tokens > 0;
        let Some(draft) = model.draft.as_ref().filter(|_| drafts) else { return Ok(None) };
        // Corrections were fitted on whole steps.
        let options = Options { correction: CorrectionChoice::None, ..options.clone() };
        let steps = StepModel::with_options(&draft.model, hardware, deployment, &options)?;
        let host_us = if options.engine.is_sglang() { SGLANG_HOST_US } else { 0.0 };
        Ok(Some(Drafting { steps, shape: draft.shape, host_us }))
    }
}

impl StepModel {
    /// The same steps without what drafts tokens.
    #[must_use]
    pub(crate) fn without_draft(mut self) -> Self {
        self.draft = None;
        self
    }

    /// Time behind a step to draft tokens for its requests that sample, µs; 0 without a draft. Not a part of
    /// [`step_time_us`](StepModel::step_time_us).
    ///
    /// # Approximations
    /// - Passes take what their kernels take, and no less than the host needs to launch them. Other work of the host is known of SGLang
    ///   alone.
    pub fn draft_time_us(&self, step: &Step<'_>) -> f64 {
        let Some(draft) = &self.draft else { return 0.0 };
        let first_us = draft.steps.step_time_us(step.requests);
        let mut sums = BatchSums::default();
        for request in step.requests.iter().filter(|request| request.samples) {
            let computed = request.num_computed_tokens.saturating_add(request.num_scheduled_tokens);
            let others = u8::try_from(draft.shape.width.saturating_sub(1)).unwrap_or(u8::MAX);
            sums.add_request(&Request::verification(computed, others), &draft.steps.plan.windows);
        }
        draft.steps.share(&mut sums, 0);
        let verifies = step.requests.iter().any(|request| request.num_draft_tokens > 0);
        let host_us = if verifies { draft.host_us } else { 0.0 };
        host_us + first_us + f64::from(draft.shape.passes.saturating_sub(1)) * draft.steps.time_us_of_sums(&sums)
    }
}
