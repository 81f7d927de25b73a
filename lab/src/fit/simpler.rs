//! Simpler predictions of steps, which a correction is held against: a straight line, the mean, and regression trees.

use ridgepoint::correction::{Basis, Term};
use ridgepoint::latency::{BlackBox, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{Step, StepModel};
use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};
use smartcore::linalg::basic::matrix::DenseMatrix;

use super::batch_kind::BatchKind;
use super::fit_steps::StepRun;
use crate::evaluate::black_box::{StepSample, fit_steps};
use crate::ingest::Interval;
use crate::stats::mean;

/// Trees of the forest, their depth, and the rows of a leaf: more trees or deeper ones did not change its errors on planted servers.
const TREES: usize = 30;
const DEPTH: u16 = 12;
const ROWS_OF_A_LEAF: usize = 3;
/// Rows that trees need.
const ROWS_FOR_TREES: usize = 100;

/// A figure by each prediction: a correction, the operators alone, a straight line, the mean, and trees.
pub(super) type Predicted<T> = [Option<T>; 5];

/// The simpler predictions, fitted on the rows that a correction is fitted on.
pub(super) struct Simpler {
    pub(super) line: Option<BlackBox>,
    pub(super) mean_us: Option<f64>,
    pub(super) trees: Option<Trees>,
}

impl Simpler {
    /// Fitted on the rows to fit of runs.
    pub(super) fn of(runs: &[StepRun<'_>]) -> Simpler {
        let row = |(row, (_, basis)): (&Interval, (BatchKind, Basis))| (row.period_us(), basis);
        let rows: Vec<(f64, Basis)> =
            runs.iter().flat_map(|run| run.part(&run.fitted).0.iter().zip(run.terms(&run.fitted)).map(row)).collect();
        let samples: Vec<StepSample> = rows.iter().map(|(step_us, basis)| sample(*step_us, basis)).collect();
        let times: Vec<f64> = rows.iter().map(|(step_us, _)| *step_us).collect();
        Simpler { line: fit_steps(&samples), mean_us: mean(&times), trees: Trees::of(&rows) }
    }
}

fn sample(step_us: f64, basis: &Basis) -> StepSample {
    let decodes = basis.get(Term::Requests) - basis.get(Term::PrefillRequests);
    StepSample { step_us, prompt_tokens: basis.get(Term::PromptTokens), decodes }
}

/// The time of a step with these terms by the line, µs.
pub(super) fn line_us(line: &BlackBox, basis: &Basis) -> f64 {
    let StepSample { prompt_tokens, decodes, .. } = sample(0.0, basis);
    line.beta0_us + line.beta1_us * prompt_tokens + line.beta2_us * decodes
}

/// A random forest of regression trees over what a step holds, as learned simulators are built on (Vidur: random forests; the tracing
/// paper: boosted trees).
pub(super) struct Trees {
    forest: RandomForestRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>,
}

impl Trees {
    /// `None` for few rows.
    fn of(rows: &[(f64, Basis)]) -> Option<Trees> {
        let (times, bases): (Vec<f64>, Vec<Basis>) = rows.iter().copied().unzip();
        let parameters = RandomForestRegressorParameters::default()
            .with_n_trees(TREES)
            .with_max_depth(DEPTH)
            .with_min_samples_leaf(ROWS_OF_A_LEAF)
            .with_seed(0);
        let features = features(&bases).filter(|_| rows.len() >= ROWS_FOR_TREES)?;
        Some(Trees { forest: RandomForestRegressor::fit(&features, &times, parameters).ok()? })
    }

    /// The times of steps with these terms, µs; none if one of them is not a number.
    pub(super) fn times_us(&self, bases: &[Basis]) -> Vec<f64> {
        features(bases).and_then(|features| self.forest.predict(&features).ok()).unwrap_or_default()
    }
}

/// Prompt tokens, decodes and new requests of each step, and what attention to its cached tokens takes by the tables.
fn features(bases: &[Basis]) -> Option<DenseMatrix<f64>> {
    let row = |basis: &Basis| {
        let StepSample { prompt_tokens, decodes, .. } = sample(0.0, basis);
        let of = |term: Term| basis.get(term);
        vec![prompt_tokens, decodes, of(Term::PrefillRequests), of(Term::AttentionDecode), of(Term::AttentionPrefill)]
    };
    DenseMatrix::from_2d_vec(&bases.iter().map(row).collect()).ok()
}

/// Steps as long as trees say, with a host's delays.
pub(super) struct ByTrees<'a> {
    pub(super) trees: &'a Trees,
    pub(super) steps: &'a StepModel,
    pub(super) host: HostTimes,
}

impl LatencyModel for ByTrees<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.trees.times_us(&[self.steps.basis(step.requests)]).first().copied().unwrap_or(0.0)
    }

    fn host(&self) -> HostTimes {
        self.host
    }

    /// None is known.
    fn kv_transfer_time_us(&self, _: TransferDirection, _: u64) -> f64 {
        0.0
    }
}
