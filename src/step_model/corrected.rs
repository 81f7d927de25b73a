//! Corrections of step times: the terms of a step, and what a correction makes of them. Uses `correction`.

use std::sync::Arc;

use super::StepModel;
use crate::correction::{Basis, Correction, Term};
use crate::physics::{BatchShape, GraphMode, OperatorGroup};
use crate::request::Request;

impl StepModel {
    /// The same steps with another correction in place of the one there may be.
    #[must_use]
    pub fn with_correction(mut self, correction: Arc<Correction>) -> Self {
        self.correction = Some(correction);
        self
    }

    pub(super) fn is_fitted_gpu(&self) -> bool {
        let fitted = |correction: &Arc<Correction>| correction.source.hardware.contains(&self.hardware);
        self.correction.as_ref().is_none_or(fitted)
    }

    /// A remark where the correction was fitted on other GPUs; part of every estimate's warnings.
    pub fn carried_over(&self) -> Option<String> {
        let correction = self.correction.as_ref().filter(|_| !self.is_fitted_gpu())?;
        let (name, fitted) = (&correction.name, correction.source.hardware.join(", "));
        Some(format!("correction {name} was fitted on {fitted} and is carried over to {}", self.hardware))
    }

    /// The terms that a correction weighs: times of operator groups as the tables have them, and counts. All 0 for nothing to do.
    pub fn basis(&self, requests: &[Request]) -> Basis {
        let mut basis = Basis::default();
        let Ok(shape) = BatchShape::new(requests, self.plan.windows(), u64::MAX) else { return basis };
        let mut work = Vec::with_capacity(self.timers.len());
        self.plan.operators(&shape, &mut work);
        let graph_mode = self.plan.graph_mode(&shape);
        for operator in &work {
            if let Some(timed) = self.timed(operator, graph_mode, &work) {
                basis.add(Term::of_group(operator.group), operator.count as f64 * timed.time_us);
            }
        }
        for (term, count) in self.counts(&shape) {
            basis.add(term, count);
        }
        basis
    }

    /// What a correction prices, with its count in a step.
    pub(super) fn counts(&self, shape: &BatchShape) -> [(Term, f64); 8] {
        let layers: f64 = self.plan.pipeline_stages().iter().map(|layers| *layers as f64).sum();
        let graph_mode = self.plan.graph_mode(shape);
        let layers_in = |mode| if graph_mode == mode { layers } else { 0.0 };
        let sampler = self.plan.sampler();
        let sampled = shape.num_sampled as f64;
        [
            (Term::Steps, 1.0),
            (Term::Layers, layers),
            (Term::Requests, shape.num_requests() as f64),
            (Term::Tokens, shape.num_tokens as f64),
            (Term::PrefillRequests, shape.num_prefills as f64),
            (Term::PiecewiseLayers, layers_in(GraphMode::Piecewise)),
            (Term::SortedMegalogits, if sampler.truncates { sampled * sampler.vocab_size as f64 / 1e6 } else { 0.0 }),
            (Term::PenalisedRequests, if sampler.penalises { sampled } else { 0.0 }),
        ]
    }

    pub(super) fn factor(&self, group: OperatorGroup) -> f64 {
        self.correction.as_ref().map_or(1.0, |correction| correction.coefficient(Term::of_group(group)))
    }

    pub(super) fn price_us(&self, term: Term) -> f64 {
        self.correction.as_ref().map_or(0.0, |correction| correction.coefficient(term))
    }

    /// The correction, where there is one.
    pub fn correction(&self) -> Option<&Correction> {
        self.correction.as_deref()
    }
}
