//! Remarks where kernels' times do not go with their work. Uses `efficiency`, `physics`.

use super::StepModel;
use crate::efficiency::mixed::share_a_call;
use crate::efficiency::residual_curve::Uneven;
use crate::efficiency::{OperatorTime, Provenance, Timer};
use crate::physics::{BatchSums, Kernel, Operator, OperatorGroup, StepPlan};
use crate::request::Request;

/// Tokens of context at which decodes and chunks are compared: from none to those of a long prompt.
const CONTEXTS: [u32; 3] = [1, 1_000, 16_000];

/// Share of its time that a decode may take longer before it is worth a remark.
const NOTED: f64 = 0.02;

/// Share of a step that the fall of an operator's rows makes up before it is worth a remark.
const NOTED_OF_STEP: f64 = 0.005;

/// Share of a step that the rise of an operator's rows, or a slow link, makes up before it is worth a remark.
const NOTED_RISE_OF_STEP: f64 = 0.05;

/// Share of the link's rate below which a collective of many bytes is slow.
const SLOW_LINK: f64 = 0.25;

/// Time on the link from which a collective's bytes are many, µs.
const MANY_BYTES_US: f64 = 10.0;

impl StepModel {
    /// Names the operators of a step of `step_us` whose rows at these very sizes fall as work grows or jump from one size to the next, and
    /// collectives that use little of their link, where that matters to the step.
    pub(super) fn uneven_rows(
        &self,
        calls: &[(Operator, OperatorTime)],
        batch: &BatchSums,
        step_us: f64,
    ) -> Vec<String> {
        let mut uneven: Vec<(Vec<&str>, Uneven)> = Vec::new();
        let mut slow = Vec::new();
        for (operator, call) in calls {
            let share = operator.count as f64 * call.time_us * self.factor(operator, batch) / step_us;
            slow.extend(slow_link(operator, call, share));
            let near = self.timer(operator).and_then(|timer| timer.uneven_near(operator));
            let Some(near) = near.filter(|near| near.share() * share > noted(near)) else { continue };
            match uneven.iter_mut().find(|(_, other)| is_alike(other, &near)) {
                Some((names, most)) => {
                    names.push(operator.name);
                    *most = if near.share() > most.share() { near } else { *most };
                }
                None => uneven.push((vec![operator.name], near)),
            }
        }
        uneven.iter().map(|(names, near)| uneven_text(names, near)).chain(slow).collect()
    }
}

fn noted(near: &Uneven) -> f64 {
    if near.ratio < 1.0 { NOTED_OF_STEP } else { NOTED_RISE_OF_STEP }
}

/// Whether both fall or rise between the same sizes.
fn is_alike(one: &Uneven, other: &Uneven) -> bool {
    let kind = |of: &Uneven| (of.from.to_bits(), of.to.to_bits(), of.ratio < 1.0);
    kind(one) == kind(other)
}

fn uneven_text(names: &[&str], most: &Uneven) -> String {
    let Uneven { from, to, ratio } = most;
    let (verb, so) = match *ratio < 1.0 {
        true => ("fall", "a step of more work may be faster"),
        false => ("rise", "a step of little more work may take much longer"),
    };
    let (up_to, percent) = (if names.len() > 1 { "up to " } else { "" }, 100.0 * (ratio - 1.0).abs());
    let names = names.join(", ");
    format!("{names}: measured times {verb} by {up_to}{percent:.0} % from size {from:.0} to {to:.0}, so that {so}")
}

fn slow_link(operator: &Operator, call: &OperatorTime, share: f64) -> Option<String> {
    let is_slow = operator.group == OperatorGroup::Communication
        && call.provenance <= Provenance::Clamped
        && call.bound_us > MANY_BYTES_US
        && call.bound_us < SLOW_LINK * call.time_us;
    let percent = 100.0 * call.bound_us / call.time_us;
    (is_slow && share > NOTED_RISE_OF_STEP)
        .then(|| format!("{}: measured at {percent:.0} % of the link's rate, which decides the step", operator.name))
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
