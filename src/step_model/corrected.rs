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
        self.compiled = self.compiled.and_then(|compiled| compiled.corrected(Some(&correction)));
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

    /// The terms that a correction weighs: times of operator groups as the tables have them, and counts. Requests that schedule
    /// nothing are left out; all 0 for nothing to do.
    pub fn basis(&self, requests: &[Request]) -> Basis {
        let mut basis = Basis::default();
        let shape = BatchShape::new(requests, self.plan.windows(), u64::MAX).or_else(|_| {
            let possible: Vec<Request> = requests.iter().copied().filter(|r| r.num_scheduled_tokens > 0).collect();
            BatchShape::new(&possible, self.plan.windows(), u64::MAX)
        });
        let Ok(shape) = shape else { return basis };
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

    /// Times that the correction adds to those of operators, µs; none without one.
    pub(super) fn learned(&self, shape: &BatchShape) -> impl Iterator<Item = (Term, f64)> {
        let priced = self
            .correction
            .as_deref()
            .map(|correction| self.counts(shape).map(|(term, count)| (term, correction.coefficient(term) * count)));
        priced.into_iter().flatten().filter(|(_, learned_us)| *learned_us > 0.0)
    }

    /// The correction, where there is one.
    pub fn correction(&self) -> Option<&Correction> {
        self.correction.as_deref()
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;
    use crate::deployment::{Deployment, GenerationConfig};
    use crate::hardware::Hardware;
    use crate::model::Model;
    use crate::step_model::Options;

    fn steps(model: &str, generation_config: GenerationConfig) -> StepModel {
        let (model, gpu) = (Model::find(model).expect("built in"), Hardware::find("h100").expect("built in"));
        let deployment = Deployment { generation_config, ..Deployment::default() };
        let options = Options::uncorrected();
        StepModel::with_options(&model, &gpu, &deployment, &options).expect("possible")
    }

    /// Three decodes, a chunk that ends its prompt, and one that does not: four tokens are sampled.
    fn batch() -> [Request; 5] {
        let goes_on = Request::partial_prefill(64, 0);
        [Request::decode(100), Request::decode(7), Request::decode(900), Request::prefill(32, 0), goes_on]
    }

    fn sampler_terms(model: &str, generation_config: GenerationConfig) -> (f64, f64) {
        let basis = steps(model, generation_config).basis(&batch());
        (basis.get(Term::SortedMegalogits), basis.get(Term::PenalisedRequests))
    }

    #[test]
    fn sorted_logits_and_penalties_are_those_of_the_models_own_defaults() {
        let auto = GenerationConfig::Auto;
        // top_p and repetition_penalty: 4 · 152,064 logits.
        let (megalogits, penalised) = sampler_terms("qwen2.5-7b", auto);
        assert!((megalogits - 0.608_256).abs() < 1e-12 && penalised == 4.0, "{megalogits} {penalised}");
        // top_p alone: 4 · 128,256.
        let (megalogits, penalised) = sampler_terms("llama-3.1-8b", auto);
        assert!((megalogits - 0.513_024).abs() < 1e-12 && penalised == 0.0, "{megalogits} {penalised}");
        assert_eq!(sampler_terms("mixtral-8x7b", auto), (0.0, 0.0));
        assert_eq!(sampler_terms("qwen2.5-7b", GenerationConfig::Vllm), (0.0, 0.0));
    }

    #[test]
    fn a_basis_counts_what_is_scheduled() {
        let steps = steps("llama-3.1-8b", GenerationConfig::Auto);
        let basis = steps.basis(&batch());
        let counts =
            [Term::Steps, Term::Layers, Term::Requests, Term::Tokens, Term::PrefillRequests, Term::PiecewiseLayers]
                .map(|term| basis.get(term));
        // 99 tokens are within the captured sizes, and two chunks keep the attention out of the graph.
        assert_eq!(counts, [1.0, 32.0, 5.0, 99.0, 2.0, 32.0]);
        assert_eq!(steps.basis(&[Request::decode(5); 3]).get(Term::PiecewiseLayers), 0.0);
        let idle = Request::new(50, 0, true);
        let mut with_idle = batch().to_vec();
        with_idle.insert(2, idle);
        assert_eq!(steps.basis(&with_idle), basis);
        assert_eq!((steps.basis(&[]), steps.basis(&[idle])), (Basis::default(), Basis::default()));
    }
}
