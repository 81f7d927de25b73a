//! A step estimated operator by operator, with everything there is to say of it. Uses `estimate`, `correction`.

use super::StepModel;
use crate::correction::{Basis, SDS_OF_90_PCT, Term, interval_factor};
use crate::efficiency::Provenance;
use crate::estimate::{OperatorEstimate, StepEstimate, assumed_half_interval_us, unseen_tables_sd};
use crate::physics::{BatchShape, GraphMode, OperatorGroup};

impl StepModel {
    pub(super) fn estimate(&self, shape: &BatchShape, mut warnings: Vec<String>) -> StepEstimate {
        let mut work = Vec::with_capacity(self.timers.len());
        self.plan.operators(shape, &mut work);
        let graph_mode = self.plan.graph_mode(shape);
        let mut operators = Vec::with_capacity(work.len());
        let (mut time_us, mut bound_us, mut flops, mut bytes) = (0.0, 0.0, 0.0, 0.0);
        for operator in &work {
            let Some(timed) = self.timed(operator, graph_mode, &work) else { continue };
            let count = operator.count as f64;
            let operator_us = count * timed.time_us * self.factor(operator.group);
            time_us += operator_us;
            bound_us += count * timed.bound_us;
            flops += count * operator.flops;
            if operator.group != OperatorGroup::Communication {
                bytes += count * operator.bytes;
            }
            operators.push(OperatorEstimate {
                name: operator.name,
                group: Some(operator.group),
                count: operator.count,
                flops: count * operator.flops,
                bytes: count * operator.bytes,
                bound: timed.bound,
                time_us: operator_us,
                bound_us: count * timed.bound_us,
                efficiency: if operator_us > 0.0 { count * timed.bound_us / operator_us } else { 0.0 },
                share: 0.0,
                provenance: timed.provenance,
            });
        }
        for (term, learned_us) in self.learned(shape) {
            time_us += learned_us;
            operators.push(OperatorEstimate::learned(term.operator_name(), learned_us));
        }
        time_us = time_us.max(bound_us);
        for operator in &mut operators {
            operator.share = operator.time_us / time_us;
        }
        let provenance = Provenance::ALL
            .into_iter()
            .map(|p| (p, operators.iter().filter(|o| o.provenance == p).map(|o| o.share).sum::<f64>()))
            .filter(|(_, share)| *share > 0.0)
            .collect();
        warnings.extend(self.plan.warnings(shape));
        warnings.extend(self.notes.iter().cloned());
        warnings.extend(self.carried_over());
        let (lower_us, upper_us, coefficients_sd, tables_sd) = match &self.correction {
            None => {
                let half_us = assumed_half_interval_us(&operators);
                (time_us - half_us, time_us + half_us, 0.0, half_us / SDS_OF_90_PCT / time_us)
            }
            Some(correction) => {
                let coefficients_sd = correction.coefficients_sd(&self.basis_of(shape, &operators));
                let tables_sd = unseen_tables_sd(&operators, time_us, self.is_fitted_gpu());
                let factor = interval_factor(&[coefficients_sd, tables_sd, correction.scatter.step]);
                (time_us / factor, time_us * factor, coefficients_sd, tables_sd)
            }
        };
        StepEstimate {
            step_time_us: time_us,
            lower_us: lower_us.max(bound_us).min(time_us),
            upper_us: upper_us.max(time_us),
            coefficients_sd,
            tables_sd,
            bound_us,
            total_flops: flops,
            total_bytes: bytes,
            mfu: flops / (time_us / 1e6 * self.peak_flop_per_s),
            mbu: bytes / (time_us / 1e6 * self.hbm_bytes_per_s),
            padded_tokens: self.plan.padded_tokens(shape),
            graph_mode,
            operators,
            provenance,
            warnings,
        }
    }

    fn basis_of(&self, shape: &BatchShape, operators: &[OperatorEstimate]) -> Basis {
        let mut basis = Basis::default();
        for operator in operators {
            if let Some(group) = operator.group {
                basis.add(Term::of_group(group), operator.time_us / self.factor(group));
            }
        }
        for (term, count) in self.counts(shape) {
            basis.add(term, count);
        }
        basis
    }
}

pub(super) fn nothing(mut warnings: Vec<String>) -> StepEstimate {
    warnings.push("nothing to do: the step takes no time".to_owned());
    StepEstimate {
        step_time_us: 0.0,
        lower_us: 0.0,
        upper_us: 0.0,
        coefficients_sd: 0.0,
        tables_sd: 0.0,
        bound_us: 0.0,
        total_flops: 0.0,
        total_bytes: 0.0,
        mfu: 0.0,
        mbu: 0.0,
        padded_tokens: 0,
        graph_mode: GraphMode::Eager,
        operators: Vec::new(),
        provenance: Vec::new(),
        warnings,
    }
}
