//! What any prediction must be, whatever was accepted as its input.

use std::sync::LazyLock;

use ridgepoint::{Deployment, EfficiencyMode, Hardware, Model, Options, Request, StepEstimate, StepModel};

/// Largest relative difference of sums of the same numbers in another order.
pub const REL_SUMMATION_ORDER: f64 = 1e-9;

/// A small model that files of other kinds are tried with.
pub static LLAMA: LazyLock<Model> = LazyLock::new(|| Model::find("llama-3.1-8b").unwrap());

/// A GPU that files of other kinds are tried with.
pub static H100: LazyLock<Hardware> = LazyLock::new(|| Hardware::find("h100").unwrap());

/// The textbook roofline without lookup tables, which is made in microseconds.
pub fn ideal() -> Options {
    Options { efficiency: EfficiencyMode::Ideal, operators_only: true, ..Options::default() }
}

/// Every number of a report is finite: JSON has no other, and `null` would stand for it.
pub fn finite(report: &impl std::fmt::Debug) {
    let text = format!("{report:?}").replace("\\\\", "").replace("\\\"", "");
    // What is outside of quotes is ours.
    let words = text.split('"').step_by(2).flat_map(|ours| ours.split(|c: char| !c.is_ascii_alphanumeric()));
    for word in words {
        assert!(!["inf", "NaN"].contains(&word), "a number that is not finite: {text}");
    }
}

/// Predicts some steps of a model on a GPU, if they can be predicted at all.
pub fn predict(model: &Model, hardware: &Hardware, deployment: &Deployment) {
    if let Ok(steps) = StepModel::with_options(model, hardware, deployment, &ideal()) {
        predict_with(&steps);
    }
}

/// Predicts some steps.
pub fn predict_with(steps: &StepModel) {
    let mixed = [Request::decode(2048), Request::decode(100), Request::prefill(512, 64)];
    for batch in [&[Request::decode(1)][..], &mixed] {
        if let Ok(step) = steps.estimate(batch) {
            estimate(&step);
            assert!(step.step_time_us > 0.0, "a step of no time: {}", step.step_time_us);
        }
    }
}

/// An estimate is finite, inside its interval, not below its roofline, and the sum of its operators.
pub fn estimate(step: &StepEstimate) {
    let StepEstimate { step_time_us, lower_us, upper_us, bound_us, .. } = *step;
    let all = [step_time_us, lower_us, upper_us, bound_us, step.total_flops, step.total_bytes, step.mfu, step.mbu];
    assert!(all.iter().all(|number| number.is_finite() && *number >= 0.0), "not finite: {all:?}");
    assert!(lower_us <= step_time_us && step_time_us <= upper_us, "{step_time_us} is not in {lower_us}..{upper_us}");
    let sum: f64 = step.operators.iter().map(|operator| operator.time_us).sum();
    assert!((sum - step_time_us).abs() <= REL_SUMMATION_ORDER * step_time_us, "operators take {sum} of {step_time_us}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinguished_from_texts() {
        finite(&(Some(1.5), "inf \" NaN \\", "information", [0.0]));
        for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert!(std::panic::catch_unwind(|| finite(&("a\"", Some(bad)))).is_err(), "{bad}");
        }
    }
}
