//! A step operator by operator: **this sum defines a step's time**. The lookup tables in `fast` are a cache of it, and a law
//! compares the two. Uses `physics`, `efficiency`, `correction`, `estimate`.

use std::collections::BTreeMap;

use super::StepModel;
use crate::correction::{Basis, SDS_OF_90_PCT, Term, interval_factor};
use crate::efficiency::kernel_time::is_within_another;
use crate::efficiency::mixed::{Span, added_us, blocks, share_a_call};
use crate::efficiency::overlap::overlap;
use crate::efficiency::{EfficiencyMode, OperatorTime, Provenance, Timer};
use crate::error::Result;
use crate::estimate::{OperatorEstimate, StepEstimate, assumed_half_interval_us, unseen_tables_sd};
use crate::physics::{BatchSums, GraphMode, Kernel, Operator, OperatorGroup};
use crate::step::Step;
use crate::units::US_PER_S;

impl StepModel {
    /// Predicts a step with its breakdown by operator. Independent of the order of the requests.
    ///
    /// A batch that the engine would split, being beyond `max_num_seqs` or `max_num_batched_tokens`, is predicted as one step with a
    /// warning.
    ///
    /// # Errors
    /// [`ErrorKind::EmptyStep`](crate::ErrorKind) without requests; [`ErrorKind::InvalidRequest`](crate::ErrorKind) for a request that
    /// schedules nothing or outgrows `max_model_len`.
    pub fn estimate<'a>(&self, step: impl Into<Step<'a>>) -> Result<StepEstimate> {
        let step = step.into();
        let mut sums = self.plan.batch_sums(step.requests)?;
        self.share(&mut sums, step.shared_kv_tokens);
        Ok(self.for_sampling(step.own_sampling).estimate_sums(sums))
    }

    /// [`StepModel::estimate`] of requests that no scheduler would put into a step: those that schedule nothing are ignored, and those
    /// beyond `max_model_len` are predicted all the same. A step without requests takes no time.
    pub fn estimate_unchecked<'a>(&self, step: impl Into<Step<'a>>) -> StepEstimate {
        let step = step.into();
        self.for_sampling(step.own_sampling).estimate_sums(self.unchecked_sums(step))
    }

    /// The terms that a correction weighs in a step: times of operator groups by the tables, and counts. Requests that schedule nothing
    /// are ignored; all terms are 0 if nothing is scheduled.
    pub fn basis<'a>(&self, step: impl Into<Step<'a>>) -> Basis {
        let step = step.into();
        let sums = self.unchecked_sums(step);
        if sums.num_requests() == 0 { Basis::default() } else { self.for_sampling(step.own_sampling).basis_of(&sums) }
    }

    /// The sums of requests that no scheduler would put into a step: those that schedule nothing are ignored.
    pub fn unchecked_sums<'a>(&self, step: impl Into<Step<'a>>) -> BatchSums {
        let step = step.into();
        let mut sums = BatchSums::unchecked(step.requests, &self.plan.windows);
        self.share(&mut sums, step.shared_kv_tokens);
        sums
    }

    fn estimate_sums(&self, batch: BatchSums) -> StepEstimate {
        if batch.num_requests() == 0 {
            return StepEstimate::nothing(batch);
        }
        let mut operators: Vec<OperatorEstimate> = self.operators(&batch).collect();
        let sum = |part: fn(&OperatorEstimate) -> f64| operators.iter().fold(0.0, |sum, operator| sum + part(operator));
        let bound_us = sum(|operator| operator.bound_us);
        let gpu_us = sum(|operator| operator.time_us).max(bound_us);
        let time_us = gpu_us.max(self.launches.step_us(&batch));
        let total_flops = sum(|operator| operator.flops);
        let total_bytes = sum(|operator| match operator.group {
            Some(OperatorGroup::Communication) => 0.0,
            _ => operator.bytes,
        });
        if time_us > gpu_us {
            // The GPU waits for the host to launch its kernels.
            let waiting = OperatorEstimate::overhead("kernel_launches", time_us - gpu_us);
            operators.push(OperatorEstimate { provenance: Provenance::Datasheet, ..waiting });
        }
        operators.iter_mut().for_each(|operator| operator.share = operator.time_us / time_us);
        let mut provenance: BTreeMap<Provenance, f64> = BTreeMap::new();
        for operator in operators.iter().filter(|operator| operator.share > 0.0) {
            *provenance.entry(operator.provenance).or_default() += operator.share;
        }
        let (lower_us, upper_us, coefficients_sd, tables_sd) = match &self.correction {
            None => {
                let half_us = assumed_half_interval_us(&operators);
                (time_us - half_us, time_us + half_us, 0.0, half_us / SDS_OF_90_PCT / time_us)
            }
            Some(correction) => {
                let beyond_sd = correction.beyond(&batch).map_or(0.0, |beyond| beyond.sd());
                let coefficients_sd = correction.coefficients_sd(&self.basis_of(&batch)).hypot(beyond_sd);
                let tables_sd = unseen_tables_sd(&operators, time_us, self.is_fitted_gpu());
                let factor = interval_factor(&[coefficients_sd, tables_sd, correction.scatter.step]);
                (time_us / factor, time_us * factor, coefficients_sd, tables_sd)
            }
        };
        let mut warnings = self.plan.warnings(&batch);
        warnings.extend(self.notes().into_iter().chain(self.extrapolated(&batch)));
        warnings.extend(self.measured_falls(&batch, time_us, &operators));
        StepEstimate {
            step_time_us: time_us,
            lower_us: lower_us.max(bound_us).min(time_us),
            upper_us: upper_us.max(time_us),
            coefficients_sd,
            tables_sd,
            bound_us,
            total_flops,
            total_bytes,
            mfu: total_flops / (time_us / US_PER_S * self.peak_flop_per_s),
            mbu: total_bytes / (time_us / US_PER_S * self.hbm_bytes_per_s),
            padded_tokens: self.plan.padded_tokens(&batch),
            graph_mode: self.plan.graph_mode(&batch),
            batch,
            operators,
            provenance: provenance.into_iter().collect(),
            warnings,
        }
    }

    /// Time of a step, µs: the sum that the lookup tables cache.
    #[cold]
    pub(super) fn time_us_by_operator(&self, batch: &BatchSums) -> f64 {
        if batch.num_requests() == 0 {
            return 0.0;
        }
        let (time_us, bound_us) = self.operators(batch).fold((0.0, 0.0), |(time_us, bound_us), operator| {
            (time_us + operator.time_us, bound_us + operator.bound_us)
        });
        time_us.max(bound_us).max(self.launches.step_us(batch))
    }

    /// The operators of a step in order of execution with their corrected times, then the overheads that the correction adds.
    fn operators(&self, batch: &BatchSums) -> impl Iterator<Item = OperatorEstimate> {
        let corrected = self.timed(batch).map(|(operator, call)| {
            let count = operator.count as f64;
            let time_us = count * call.time_us * self.factor(operator.group);
            let bound_us = count * call.bound_us;
            OperatorEstimate {
                name: operator.name,
                kind: Some(operator.id.kind),
                group: Some(operator.group),
                count: operator.count,
                flops: count * operator.flops,
                bytes: count * operator.bytes,
                bound: call.bound,
                time_us,
                bound_us,
                efficiency: if time_us > 0.0 { bound_us / time_us } else { 0.0 },
                share: 0.0,
                provenance: call.provenance,
            }
        });
        let correction = self.correction.as_deref();
        let overheads =
            correction.map(|of| self.counts(batch).map(|(term, count)| (term, of.coefficient(term) * count)));
        let overheads = overheads.into_iter().flatten().filter(|(_, time_us)| *time_us > 0.0);
        corrected.chain(overheads.map(|(term, time_us)| OperatorEstimate::overhead(term.operator_name(), time_us)))
    }

    /// The operators of a step and the time of one call of each by the tables. Operators that were measured as a part of another are
    /// left out.
    fn timed(&self, batch: &BatchSums) -> impl Iterator<Item = (Operator, OperatorTime)> {
        let mut work = Vec::with_capacity(self.timers.len());
        self.plan.operators(batch, &mut work);
        let mut calls = Vec::with_capacity(work.len());
        calls.extend(
            work.iter()
                .filter(|operator| !self.is_timed_within_another(operator))
                .filter_map(|operator| Some((*operator, self.time_of_call(self.timer(operator)?, operator, &work)))),
        );
        self.overlap(&mut calls, batch);
        let added = self.host_reads.as_ref().and_then(|reads| reads.added(&calls));
        calls.into_iter().chain(added)
    }

    /// Shortens the calls that run at the same time as others.
    pub(super) fn overlap(&self, calls: &mut [(Operator, OperatorTime)], batch: &BatchSums) {
        if self.overlaps(batch) {
            overlap(calls);
        }
    }

    /// Whether calls of a step run at the same time as others.
    pub(super) fn overlaps(&self, batch: &BatchSums) -> bool {
        self.plan.padded_tokens(batch) <= self.plan.overlapped_tokens
    }

    /// Time of one call of `operator`, which `timer` is for. `work` has the step's other operators.
    pub(super) fn time_of_call(&self, timer: &Timer, operator: &Operator, work: &[Operator]) -> OperatorTime {
        let mut call = timer.time(operator);
        if self.mode == EfficiencyMode::Ideal {
            return call;
        }
        if let Some(added_us) = self.added_to_decodes_us(operator, call, work) {
            call.time_us = added_us.max(call.bound_us);
            call.provenance = call.provenance.max(Provenance::Interpolated);
        }
        call
    }

    /// Time that prefill attention adds to the decode attention of the step where one call runs both, µs.
    fn added_to_decodes_us(&self, prefill: &Operator, time: OperatorTime, work: &[Operator]) -> Option<f64> {
        let Kernel::AttentionPrefill { heads, .. } = prefill.kernel else { return None };
        let shares_a_call = |o: &&Operator| matches!(o.kernel, Kernel::AttentionDecode { heads: other, .. } if share_a_call(&other, &heads));
        let decode = work.iter().find(shares_a_call)?;
        let span = |operator: &Operator, timer: &Timer, time: OperatorTime| {
            Span::new(time.time_us, timer.attention_launch_us(), blocks(&operator.kernel) / self.sm_count)
        };
        let (timer, decode_timer) = (self.timer(prefill)?, self.timer(decode)?);
        Some(added_us(&span(decode, decode_timer, decode_timer.time(decode)), &span(prefill, timer, time)))
    }

    pub(super) fn timer(&self, operator: &Operator) -> Option<&Timer> {
        let known = self.timers.iter().find(|(known, _)| known.id == operator.id);
        known.map(|(_, timer)| timer)
    }

    pub(super) fn is_timed_within_another(&self, operator: &Operator) -> bool {
        self.mode == EfficiencyMode::Tables && is_within_another(operator.id.kind)
    }

    fn basis_of(&self, batch: &BatchSums) -> Basis {
        let mut basis = Basis::default();
        for (operator, call) in self.timed(batch) {
            basis.add(Term::of_group(operator.group), operator.count as f64 * call.time_us);
        }
        for (term, count) in self.counts(batch) {
            basis.add(term, count);
        }
        basis
    }

    /// Counts that a correction has prices for.
    pub(super) fn counts(&self, batch: &BatchSums) -> [(Term, f64); 7] {
        let layers: f64 = self.plan.pipeline_stages.iter().map(|layers| *layers as f64).sum();
        let graph_mode = self.plan.graph_mode(batch);
        let layers_in = |mode| if graph_mode == mode { layers } else { 0.0 };
        let penalised = if self.plan.sampler_work.has_penalties() { batch.num_sampled as f64 } else { 0.0 };
        [
            (Term::Steps, 1.0),
            (Term::Layers, layers),
            (Term::Requests, batch.num_requests() as f64),
            (Term::Tokens, batch.num_tokens as f64),
            (Term::PrefillRequests, batch.num_prefills as f64),
            (Term::PiecewiseLayers, layers_in(GraphMode::Piecewise)),
            (Term::PenalisedRequests, penalised),
        ]
    }

    fn factor(&self, group: OperatorGroup) -> f64 {
        self.correction.as_ref().map_or(1.0, |correction| correction.coefficient(Term::of_group(group)))
    }
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::{Deployment, GenerationConfig};
    use crate::engine::Engine;
    use crate::hardware::Hardware;
    use crate::model::{Model, OwnSampling, SamplingParams};
    use crate::request::Request;
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

    /// Names of the sampler's operators, and penalised requests.
    fn sampler_terms(model: &str, generation_config: GenerationConfig) -> (Vec<&'static str>, f64) {
        let steps = steps(model, generation_config);
        let sampler = |operator: &OperatorEstimate| operator.group == Some(OperatorGroup::Sampling);
        let operators = steps.estimate(&batch()).expect("possible").operators;
        let names = operators.iter().filter(|operator| sampler(operator)).map(|operator| operator.name).collect();
        (names, steps.basis(&batch()).get(Term::PenalisedRequests))
    }

    #[test]
    fn the_samplers_kernels_are_those_of_the_models_own_defaults() {
        let auto = GenerationConfig::Auto;
        let all = ["penalties", "top_p_sort", "top_p_cumsum", "top_p_mask", "top_k", "sampling"];
        assert_eq!(sampler_terms("qwen2.5-7b", auto), (all.to_vec(), 4.0));
        assert_eq!(
            sampler_terms("llama-3.1-8b", auto),
            (["top_p_sort", "top_p_cumsum", "top_p_mask", "sampling"].to_vec(), 0.0)
        );
        assert_eq!(sampler_terms("mixtral-8x7b", auto), (vec!["sampling"], 0.0));
        assert_eq!(sampler_terms("qwen2.5-7b", GenerationConfig::Vllm), (vec!["sampling"], 0.0));
    }

    #[test]
    fn own_sampling_of_all_requests_is_a_server_that_has_it() {
        let greedy = SamplingParams { temperature: Some(0.0), ..SamplingParams::default() };
        let no_top_k = SamplingParams { top_k: Some(-1), ..SamplingParams::default() };
        let (model, gpu) = (Model::find("qwen2.5-7b").expect("built in"), Hardware::find("h100").expect("built in"));
        let server = steps("qwen2.5-7b", GenerationConfig::Auto);
        for (own, penalised) in [(greedy, 4.0), (no_top_k, 4.0), (SamplingParams::default(), 4.0)] {
            let deployment = Deployment { override_generation_config: own, ..Deployment::default() };
            let given = StepModel::with_options(&model, &gpu, &deployment, &Options::uncorrected()).expect("possible");
            let requests = server.with_own_sampling(&[OwnSampling::from(&own)]);
            assert_eq!(requests.step_time_us(&batch()), given.step_time_us(&batch()));
            assert_eq!(
                requests.estimate(&batch()).expect("possible").step_time_us,
                given.estimate(&batch()).expect("possible").step_time_us
            );
            assert_eq!(requests.basis(&batch()).get(Term::PenalisedRequests), penalised);
            let (batch, own) = (batch(), [OwnSampling::from(&own)]);
            let step = Step::from(&batch).with_own_sampling(&own);
            assert_eq!(server.step_time_us(step), given.step_time_us(&batch));
            let (shared, of_server) = (step.with_shared_kv_tokens(100), Step::from(&batch).with_shared_kv_tokens(100));
            assert_eq!(server.step_time_us(shared), requests.step_time_us(of_server));
            assert_eq!(server.estimate_unchecked(shared), requests.estimate_unchecked(of_server));
            assert_eq!(server.basis(shared), requests.basis(of_server));
        }
    }

    #[test]
    fn own_sampling_of_some_requests_is_within_a_thousandth_of_the_operators() {
        let kinds = [SamplingParams { temperature: Some(0.0), ..SamplingParams::default() }, SamplingParams::default()];
        let mixed =
            steps("qwen2.5-7b", GenerationConfig::Auto).with_own_sampling(&kinds.map(|own| OwnSampling::from(&own)));
        for decodes in [1, 7, 8, 100, 600] {
            let batch = vec![Request::decode(500); decodes];
            let ratio = mixed.step_time_us(&batch) / mixed.estimate(&batch).expect("possible").step_time_us;
            assert!((ratio - 1.0).abs() < 1e-3, "{decodes}: {ratio}");
        }
    }

    #[test]
    fn a_sort_of_many_logits_takes_what_its_bytes_take() {
        let us = |decodes: usize| {
            let step = steps("llama-3.1-8b", GenerationConfig::Auto).estimate(&vec![Request::decode(9); decodes]);
            let operators = step.expect("possible").operators;
            ["top_p_sort", "top_p_cumsum"].map(|name| {
                operators.iter().find(|operator| operator.name == name).map_or(0.0, |operator| operator.time_us)
            })
        };
        // 156 bytes a logit at half of 3,352 GB/s, and eleven launches of 1.85 µs; a row's sum is 126 tiles of 1.25 µs, and 8 bytes a
        // logit at 0.85 of the bandwidth.
        let [few, many] = [us(8), us(64)];
        let expected_us = |rows: f64| 11.0 * 1.85 + rows * 128_256.0 * 156.0 / (0.5 * 3.352e6);
        assert!((few[0] / expected_us(8.0) - 1.0).abs() < 1e-3, "{few:?}");
        assert!((many[0] / expected_us(64.0) - 1.0).abs() < 1e-3, "{many:?}");
        let summed_us = |rows: f64| 126.0 * 1.25 + 1.85 + rows * 128_256.0 * 8.0 / (0.85 * 3.352e6);
        assert!(
            (few[1] / summed_us(8.0) - 1.0).abs() < 1e-3 && (many[1] / summed_us(64.0) - 1.0).abs() < 1e-3,
            "{few:?} {many:?}"
        );
    }

    fn experts_us(engine: &str, decodes: usize) -> (f64, f64) {
        let (model, gpu) = (Model::find("llama-4-scout").expect("built in"), Hardware::find("h100").expect("built in"));
        let options = Options { engine: Engine::parse(engine, None).expect("known"), ..Options::uncorrected() };
        let steps = StepModel::with_options(&model, &gpu, &Deployment::tensor_parallel(8), &options).expect("possible");
        let step = steps.estimate(&vec![Request::decode(500); decodes]).expect("possible");
        let of = |operator: &&OperatorEstimate| {
            operator.name.starts_with("shared_") || operator.name.contains("moe_") || operator.name == "experts"
        };
        let others = ["shared_add", "shared_copy"];
        let experts = step.operators.iter().filter(of).filter(|operator| !others.contains(&operator.name));
        let (us, bound_us) = experts.fold((0.0, 0.0), |sum, of| (sum.0 + of.time_us, sum.1 + of.bound_us));
        assert!(step.operators.iter().all(|of| of.time_us >= of.bound_us), "no kernel is faster than its bound");
        (us, bound_us)
    }

    #[test]
    fn shared_experts_run_beside_routed_ones_up_to_256_tokens() {
        let (one_stream, bound_us) = experts_us("vllm-0.11", 256);
        let (two_streams, same_bound_us) = experts_us("vllm-0.15", 256);
        assert_eq!(bound_us, same_bound_us);
        // Both read their weights through one memory: 85 % of the bandwidth, where one after the other reaches less.
        let expected = (bound_us / 0.85).min(one_stream);
        assert!(two_streams < one_stream && two_streams >= expected * (1.0 - 1e-9), "{two_streams} {expected}");
        assert_eq!(experts_us("vllm-0.11", 257), experts_us("vllm-0.15", 257));
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
