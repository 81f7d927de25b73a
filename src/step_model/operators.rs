//! A step operator by operator: **this sum defines a step's time**. The lookup tables in `fast` are a cache of it, and a law
//! compares the two. Uses `physics`, `efficiency`, `correction`, `estimate`.

use std::collections::BTreeMap;

use super::StepModel;
use crate::correction::{Basis, Correction, SDS_OF_90_PCT, Term, interval_factor};
use crate::coverage::{IntervalCoverage, wider};
use crate::efficiency::kernel_time::is_within_another;
use crate::efficiency::mixed::{Span, added_us, blocks, share_a_call};
use crate::efficiency::overlap::overlap;
use crate::efficiency::{EfficiencyMode, OperatorTime, Provenance, Timer};
use crate::engine::Engine;
use crate::error::Result;
use crate::estimate::{OperatorEstimate, StepEstimate, assumed_half_interval_us, unseen_tables_sd};
use crate::host_speed::HostSpeed;
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
        let calls: Vec<_> = self.timed(&batch).collect();
        let mut operators: Vec<OperatorEstimate> = self.operators(&batch, calls.iter().copied()).collect();
        let sum = |part: fn(&OperatorEstimate) -> f64| operators.iter().fold(0.0, |sum, operator| sum + part(operator));
        let bound_us = sum(|operator| operator.bound_us);
        let gpu_us = sum(|operator| operator.time_us).max(bound_us);
        let host_us = self.launches.step_us(&batch);
        let time_us = gpu_us.max(host_us);
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
        let assumed_sd = self.assumed_sd(&batch, time_us).hypot(host_sd(host_us, time_us));
        let (lower_us, upper_us, coefficients_sd, tables_sd) = match &self.correction {
            None => {
                let half_us = assumed_half_interval_us(&operators).hypot(assumed_sd * SDS_OF_90_PCT * time_us);
                (time_us - half_us, time_us + half_us, 0.0, half_us / SDS_OF_90_PCT / time_us)
            }
            Some(correction) => {
                let beyond_sd = correction.beyond(&batch).map_or(0.0, |beyond| beyond.sd());
                let coefficients_sd = correction.coefficients_sd(&self.basis_of(&batch)).hypot(beyond_sd);
                let tables_sd = unseen_tables_sd(&operators, time_us, self.is_fitted_gpu()).hypot(assumed_sd);
                let factor = interval_factor(&[coefficients_sd, tables_sd, correction.scatter.step]);
                (time_us / factor, time_us * factor, coefficients_sd, tables_sd)
            }
        };
        let (lower_us, upper_us) = wider((lower_us, upper_us), time_us, self.added);
        let mut warnings = self.plan.warnings(&batch);
        warnings.extend(self.notes().into_iter().chain(self.extrapolated(&batch)));
        warnings.extend(self.uneven_rows(&calls, &batch, time_us));
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
        let (time_us, bound_us) =
            self.operators(batch, self.timed(batch)).fold((0.0, 0.0), |(time_us, bound_us), operator| {
                (time_us + operator.time_us, bound_us + operator.bound_us)
            });
        time_us.max(bound_us).max(self.launches.step_us(batch))
    }

    /// The calls of a step in order of execution with their corrected times, then the overheads that the correction adds.
    fn operators(
        &self,
        batch: &BatchSums,
        calls: impl Iterator<Item = (Operator, OperatorTime)>,
    ) -> impl Iterator<Item = OperatorEstimate> {
        let corrected = calls.map(|(operator, call)| {
            let count = operator.count as f64;
            let time_us = count * call.time_us * self.factor(&operator, batch);
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
            basis.add(Term::of_operator(&operator, batch.num_prefills > 0), operator.count as f64 * call.time_us);
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
            (Term::Requests, (batch.decode_rows() + batch.num_prefills) as f64),
            (Term::PromptTokens, batch.prefill_tokens as f64),
            (Term::PrefillRequests, batch.num_prefills as f64),
            (Term::PiecewiseLayers, layers_in(GraphMode::Piecewise)),
            (Term::PenalisedRequests, penalised),
        ]
    }

    pub(super) fn factor(&self, operator: &Operator, batch: &BatchSums) -> f64 {
        let term = Term::of_operator(operator, batch.num_prefills > 0);
        self.correction.as_ref().map_or(1.0, |correction| correction.coefficient(term))
    }
}

/// Relative standard deviation of a step by its launches: the host, which nobody measured, may be one kind slower.
fn host_sd(host_us: f64, time_us: f64) -> f64 {
    (HostSpeed::RANGE * host_us / time_us).max(1.0).ln() / SDS_OF_90_PCT
}

/// What the interval of a step lacks: as that of TPOT did on public runs. A correction of one's own has the scatter of one's own server.
pub(super) fn added(engine: &Engine, hardware: &str, correction: Option<&Correction>) -> f64 {
    if correction.is_some_and(|of| !of.is_builtin()) {
        return 0.0;
    }
    let found = IntervalCoverage::of(engine, hardware, None, correction.is_some());
    found.tpot.map_or(0.0, |held| held.added)
}
