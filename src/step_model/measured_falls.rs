//! Remarks where kernels were measured to take less time for more work. Uses `efficiency`, `physics`.

use super::StepModel;
use crate::efficiency::Timer;
use crate::efficiency::mixed::share_a_call;
use crate::efficiency::residual_curve::Fall;
use crate::estimate::OperatorEstimate;
use crate::physics::{BatchSums, Kernel, Operator, StepPlan};
use crate::request::Request;

/// Tokens of context at which decodes and chunks are compared: from none to those of a long prompt.
const CONTEXTS: [u32; 3] = [1, 1_000, 16_000];

/// Share of its time that a decode may take longer before it is worth a remark.
const NOTED: f64 = 0.02;

/// Share of a step that the fall of an operator's rows makes up before it is worth a remark.
const NOTED_OF_STEP: f64 = 0.005;

impl StepModel {
    /// Names the operators of a step whose rows at these very sizes fall as work grows, where that matters to the step.
    pub(super) fn measured_falls(&self, batch: &BatchSums, step_us: f64, timed: &[OperatorEstimate]) -> Vec<String> {
        let mut work = Vec::new();
        self.plan.operators(batch, &mut work);
        let fall_of = |operator: &Operator| {
            let fall = self.timer(operator)?.fall_near(operator)?;
            let time_us: f64 = timed.iter().filter(|of| of.name == operator.name).map(|of| of.time_us).sum();
            (fall.share * time_us > NOTED_OF_STEP * step_us).then_some((operator.name, fall))
        };
        let text = |(name, Fall { from, to, share }): (&str, Fall)| {
            let percent = 100.0 * share;
            format!(
                "{name}: rows of its table fall by {percent:.0} % from size {from:.0} to {to:.0}, so that a step of more work may be faster"
            )
        };
        work.iter().filter_map(fall_of).map(text).collect()
    }
}

/// Names the decode kernel and by how much a chunk of two tokens is faster, at most; `None` where it is not.
pub(super) fn slow_decodes(plan: &StepPlan, timers: &[(Operator, Timer)]) -> Option<String> {
    let decode = timers.iter().find_map(|(operator, _)| match operator.kernel {
        Kernel::AttentionDecode { heads, .. } if !share_a_call(&heads, &heads) => Some(operator.name),
        _ => None,
    })?;
    let attention_us = |request: Request| -> f64 {
        let mut work = Vec::new();
        plan.operators(&BatchSums::of(&request, &plan.windows), &mut work);
        let calls = work
            .iter()
            .filter(|of| matches!(of.kernel, Kernel::AttentionDecode { .. } | Kernel::AttentionPrefill { .. }));
        let times = calls.filter_map(|of| {
            let (_, timer) = timers.iter().find(|(known, _)| known.id == of.id)?;
            Some(of.count as f64 * timer.time(of).time_us)
        });
        times.sum()
    };
    let ratio = |context: u32| attention_us(Request::decode(context)) / attention_us(Request::new(context, 2, true));
    let most = CONTEXTS.map(ratio).into_iter().filter(|ratio| ratio.is_finite()).fold(0.0, f64::max);
    (most > 1.0 + NOTED).then(|| {
        format!(
            "{decode}: kernels of decodes were measured to take up to {most:.1} times as long as those of chunks, so that a chunk of two \
             tokens may be faster than a decode"
        )
    })
}
