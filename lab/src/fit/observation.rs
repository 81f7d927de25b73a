//! A measured figure beside what a prediction of it is made of. Uses `correction`.

use ridgepoint::internals::correction::{Basis, Correction};

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Mean time from one step's start to the next's.
    StepPeriod,
    /// Mean time from a request's first token to its last.
    Decoding,
    /// Mean time to first token.
    Ttft,
}

impl Target {
    /// Standard deviation of ln(measured / predicted) that is expected of a good prediction: how much a figure of one kind
    /// counts against one of another. Assumed: 3 % of a mean over steps, 8 % of a mean TTFT, which also holds the noise of a front
    /// end.
    pub fn expected_sd(self) -> f64 {
        match self {
            Target::StepPeriod | Target::Decoding => 0.03,
            Target::Ttft => 0.08,
        }
    }
}

/// A measured figure, the prediction at some coefficients, and how that changes with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Name of the run.
    pub experiment: String,
    /// Short name of the model.
    pub model: String,
    /// What was measured.
    pub target: Target,
    /// Measured, µs.
    pub measured_us: f64,
    /// Predicted with `anchor`, µs.
    pub predicted_us: f64,
    /// Slopes by coefficient: the terms of the span that was measured.
    pub basis: Basis,
    /// Slope by the time before a request can be scheduled: 1 where the span holds it, else 0.
    pub queueing: f64,
    /// Standard deviation of ln(measured / predicted) that is expected; [`Target::expected_sd`] where the data don't say.
    pub sd: f64,
    /// How many independent figures it counts as; those of one kind of a serving run count 1 together, the rows of a step trace
    /// at most [`ROWS_OF_A_RUN`](super::steps::ROWS_OF_A_RUN).
    pub weight: f64,
}

impl Observation {
    /// The prediction at other coefficients than those of `anchor`, with which it was made: exact where the schedule would not change.
    pub fn predicted_with(&self, anchor: &Correction, other: &Correction) -> f64 {
        self.predicted_us + other.time_us(&self.basis) - anchor.time_us(&self.basis)
            + self.queueing * (other.host.queueing_us - anchor.host.queueing_us)
    }
}
