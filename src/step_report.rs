//! A predicted step laid out as `predict-step --format json` and the bindings give it. Its keys are stable: keys are added,
//! never renamed or dropped. Uses `estimate`, `physics`, `correction`, `deployment`, `efficiency`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::correction::{Correction, Used};
use crate::deployment::Deployment;
use crate::efficiency::EfficiencyMode;
use crate::estimate::{GroupEstimate, OperatorEstimate, StepEstimate};
use crate::physics::GraphMode;

/// What a prediction was made from.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The model's short name.
    pub model: &'a str,
    /// The GPU's short name.
    pub hardware: &'a str,
    /// How the model is served.
    pub deployment: &'a Deployment,
    /// Measured or ideal kernel efficiency.
    pub efficiency: EfficiencyMode,
    /// The correction fitted to measured engine runs.
    pub correction: Option<&'a Correction>,
}

/// A predicted step with what it was made from, to be written as JSON. Times in µs.
///
/// ```
/// use ridgepoint::internals::step_report::{StepReport, Subject};
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
///
/// let (model, hardware, deployment) = (Model::find("llama-3.1-8b")?, Hardware::find("h100")?, Deployment::default());
/// let steps = StepModel::new(&model, &hardware, &deployment)?;
/// let batch = [Request::decode(1000); 4];
/// let step = steps.estimate(&batch)?;
/// let subject = Subject {
///     model: model.name(),
///     hardware: hardware.name(),
///     deployment: &deployment,
///     efficiency: Default::default(),
///     correction: None,
/// };
/// let json = serde_json::to_value(StepReport::new(subject, &step)).unwrap();
/// assert_eq!(json["model"], "llama-3.1-8b");
/// assert_eq!(json["batch"]["num_decodes"], 4);
/// assert_eq!(json["step_time_us"], step.step_time_us);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Serialize)]
pub struct StepReport<'a> {
    model: &'a str,
    hardware: &'a str,
    deployment: &'a Deployment,
    efficiency: EfficiencyMode,
    correction: Used,
    batch: Sums,
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
    groups: Vec<GroupEstimate>,
    /// Share of the step's time by where it comes from.
    provenance: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    explanation: &'a [String],
    warnings: &'a [String],
}

#[derive(Debug, Serialize)]
struct Sums {
    num_requests: u64,
    num_tokens: u64,
    num_sampled: u64,
    num_decodes: u64,
    num_prefills: u64,
    prefill_tokens: u64,
    prefill_context_tokens: u64,
}

impl<'a> StepReport<'a> {
    /// The estimate `step` of `subject`.
    pub fn new(subject: Subject<'a>, step: &'a StepEstimate) -> Self {
        let batch = &step.batch;
        StepReport {
            model: subject.model,
            hardware: subject.hardware,
            deployment: subject.deployment,
            efficiency: subject.efficiency,
            correction: Used::of(subject.correction),
            batch: Sums {
                num_requests: batch.num_requests(),
                num_tokens: batch.num_tokens,
                num_sampled: batch.num_sampled,
                num_decodes: batch.num_decodes,
                num_prefills: batch.num_prefills,
                prefill_tokens: batch.prefill_tokens,
                prefill_context_tokens: batch.prefill_context_tokens,
            },
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
            groups: step.groups(),
            provenance: step.provenance.iter().map(|(p, share)| (p.name(), *share)).collect(),
            explanation: &[],
            warnings: &step.warnings,
        }
    }

    /// With sentences on the longest operators.
    #[must_use]
    pub fn explained(self, explanation: &'a [String]) -> Self {
        StepReport { explanation, ..self }
    }
}
