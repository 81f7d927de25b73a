//! The JSON of `predict-step`. Its keys are stable: keys are added, never renamed or dropped.

use std::collections::BTreeMap;

use ridgepoint::correction::Used;
use ridgepoint::physics::GraphMode;
use ridgepoint::{Deployment, OperatorEstimate};
use serde::Serialize;

use crate::cli::Prediction;

/// A predicted step as JSON.
#[derive(Serialize)]
pub struct StepJson<'a> {
    model: &'a str,
    hardware: &'a str,
    deployment: &'a Deployment,
    efficiency: &'static str,
    correction: Used,
    batch: BatchJson,
    step_time_us: f64,
    lower_us: f64,
    upper_us: f64,
    bound_us: f64,
    /// Bound over predicted time.
    roofline_share: f64,
    total_flops: f64,
    total_bytes: f64,
    mfu: f64,
    mbu: f64,
    padded_tokens: u64,
    graph_mode: GraphMode,
    operators: &'a [OperatorEstimate],
    groups: Vec<GroupJson>,
    /// Share of the step's time by where it comes from.
    provenance: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    explanation: &'a [String],
    warnings: &'a [String],
}

#[derive(Serialize)]
struct BatchJson {
    num_requests: u64,
    num_tokens: u64,
    num_sampled: u64,
    num_decodes: u64,
    num_prefills: u64,
    prefill_tokens: u64,
    prefill_context_tokens: u64,
}

impl BatchJson {
    fn new(prediction: &Prediction) -> Self {
        let shape = &prediction.batch;
        BatchJson {
            num_requests: shape.num_requests(),
            num_tokens: shape.num_tokens,
            num_sampled: shape.num_sampled,
            num_decodes: shape.num_decodes,
            num_prefills: shape.num_prefills,
            prefill_tokens: shape.prefill_tokens,
            prefill_context_tokens: shape.prefill_context_tokens,
        }
    }
}

#[derive(Serialize)]
struct GroupJson {
    /// `None` for what a correction adds to the operators.
    group: Option<ridgepoint::physics::OperatorGroup>,
    time_us: f64,
    bound_us: f64,
    share: f64,
}

impl<'a> StepJson<'a> {
    /// The prediction, laid out.
    pub fn new(prediction: &'a Prediction) -> Self {
        let step = &prediction.step;
        StepJson {
            model: prediction.model.name(),
            hardware: prediction.hardware.name(),
            deployment: &prediction.deployment,
            efficiency: prediction.efficiency,
            correction: Used::of(prediction.correction.as_ref()),
            batch: BatchJson::new(prediction),
            step_time_us: step.step_time_us,
            lower_us: step.lower_us,
            upper_us: step.upper_us,
            bound_us: step.bound_us,
            roofline_share: step.bound_us / step.step_time_us,
            total_flops: step.total_flops,
            total_bytes: step.total_bytes,
            mfu: step.mfu,
            mbu: step.mbu,
            padded_tokens: step.padded_tokens,
            graph_mode: step.graph_mode,
            operators: &step.operators,
            groups: super::step_table::groups(step)
                .into_iter()
                .map(|g| GroupJson { group: g.group, time_us: g.time_us, bound_us: g.bound_us, share: g.share })
                .collect(),
            provenance: step.provenance.iter().map(|(p, share)| (p.name(), *share)).collect(),
            explanation: &prediction.explanation,
            warnings: &step.warnings,
        }
    }
}
