//! A predicted step laid out as `predict-step --format json` and the bindings give it. Its keys are stable: keys are added,
//! never renamed or dropped. Uses `estimate`, `physics`, `correction`, `deployment`, `efficiency`.

use serde::Serialize;

use crate::correction::CorrectionInfo;
use crate::coverage::IntervalCoverage;
use crate::deployment::Deployment;
use crate::efficiency::EfficiencyMode;
use crate::engine::Engine;
use crate::estimate::{GroupEstimate, StepEstimate};
use crate::physics::BatchSums;

/// The inputs of a prediction.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Subject<'a> {
    /// The model's short name.
    pub model: &'a str,
    /// The GPU's short name.
    pub hardware: &'a str,
    /// How the model is served.
    pub deployment: &'a Deployment,
    /// The engine and version whose kernels and sampler are predicted.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub serving_engine: &'a Engine,
    /// Measured or ideal kernel efficiency.
    pub efficiency: EfficiencyMode,
    /// The correction fitted to measured engine runs.
    pub correction: CorrectionInfo,
}

/// A predicted step with what it was made from, to be written as JSON. Times in µs.
///
/// ```
/// use ridgepoint::correction::CorrectionInfo;
/// use ridgepoint::step_report::{StepReport, Subject};
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
///
/// let (model, hardware, deployment) = (Model::find("llama-3.1-8b")?, Hardware::find("h100")?, Deployment::default());
/// let steps = StepModel::new(&model, &hardware, &deployment)?;
/// let batch = [Request::decode(1000); 4];
/// let step = steps.estimate(&batch)?;
/// let subject = Subject {
///     model: &model.name,
///     hardware: &hardware.name,
///     deployment: &deployment,
///     serving_engine: steps.engine(),
///     efficiency: Default::default(),
///     correction: CorrectionInfo::of(steps.correction()),
/// };
/// let json = serde_json::to_value(StepReport::new(subject, &step, &[])).unwrap();
/// assert_eq!(json["model"], "llama-3.1-8b");
/// assert_eq!(json["batch"]["num_decodes"], 4);
/// assert_eq!(json["step_time_us"], step.step_time_us);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepReport<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    batch: Batch<'a>,
    #[serde(flatten)]
    step: &'a StepEstimate,
    /// Bound over predicted time.
    roofline_share: f64,
    /// How often the interval from `lower_us` to `upper_us` held on public runs, in words; `None` without an interval.
    interval_held: Option<String>,
    groups: Vec<GroupEstimate>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    explanation: &'a [String],
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Batch<'a> {
    num_requests: u64,
    #[serde(flatten)]
    sums: &'a BatchSums,
}

impl<'a> StepReport<'a> {
    /// The estimate `step` of `subject`, with sentences on the longest operators.
    pub fn new(subject: Subject<'a>, step: &'a StepEstimate, explanation: &'a [String]) -> Self {
        let found =
            IntervalCoverage::of(subject.serving_engine, subject.hardware, None, subject.correction.name.is_some());
        StepReport {
            subject,
            batch: Batch { num_requests: step.batch.num_requests(), sums: &step.batch },
            step,
            roofline_share: step.bound_us / step.step_time_us,
            interval_held: (step.lower_us < step.upper_us).then(|| found.of_step()),
            groups: step.groups(),
            explanation,
        }
    }
}
