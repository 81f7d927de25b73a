//! Serving runs as observations: each is replayed, and its measured means stand beside the replay's with their slopes.
//! Uses `evaluate::case`, `ledger`, `observation`.

use super::ledger::Ledger;
use super::observation::{Observation, Target};
use crate::evaluate::case::Case;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::Metric;
use ridgepoint::Request;
use ridgepoint::Result;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::replay::{Outcome, RequestRecord, replay};

/// Replays a case with a latency model and observes each stage that was measured, or the whole run where stages were not.
/// Nothing where no figure of the run can be compared.
///
/// # Errors
/// As [`Case::replay`].
pub fn observe(case: &Case, roofline: &CalibratedRoofline, seed: u64) -> Result<Vec<Observation>> {
    let mut ledger = Ledger::new(roofline.steps());
    let replayed = replay(roofline, &case.engine, case.load.workload(seed).as_mut(), &mut ledger)?;
    let stages = case.measured.last_stage().map_or(0, |last| last + 1);
    let of_stage = |stage: i32| -> Vec<&RequestRecord> {
        let is_of = |record: &&RequestRecord| stage == WHOLE_RUN || i64::from(record.stage) == i64::from(stage);
        replayed.records.iter().filter(|record| record.outcome == Outcome::Finished).filter(is_of).collect()
    };
    let by_stage = (0..stages).filter_map(|stage| i32::try_from(stage).ok());
    let mut observations: Vec<Observation> =
        by_stage.flat_map(|stage| observed(case, stage, &of_stage(stage), roofline, &ledger)).collect();
    if observations.is_empty() {
        observations = observed(case, WHOLE_RUN, &of_stage(WHOLE_RUN), roofline, &ledger);
    }
    for target in [Target::Decoding, Target::Ttft] {
        let count = observations.iter().filter(|observation| observation.target == target).count();
        for observation in observations.iter_mut().filter(|observation| observation.target == target) {
            observation.weight = 1.0 / count as f64;
        }
    }
    Ok(observations)
}

fn observed(
    case: &Case,
    stage: i32,
    records: &[&RequestRecord],
    roofline: &CalibratedRoofline,
    ledger: &Ledger<'_>,
) -> Vec<Observation> {
    let get = |metric| case.measured.get(stage, metric).map(|ms| ms * 1e3);
    let Some(ttft_us) = get(Metric::TTFT_MEAN) else { return Vec::new() };
    let count = records.len() as f64;
    let gaps = records.iter().map(|record| f64::from(record.num_output_tokens) - 1.0).sum::<f64>() / count;
    let decoding_us = match (get(Metric::E2E_MEAN), get(Metric::TPOT_MEAN)) {
        (Some(e2e_us), _) => e2e_us - ttft_us,
        (None, Some(tpot_us)) => tpot_us * gaps,
        (None, None) => return Vec::new(),
    };
    let mut decoding = empty(case, Target::Decoding, decoding_us);
    let output_ns = (roofline.output_token_processing_time_us() * 1e3) as u64;
    for record in records {
        let first_ns = record.first_token_ns.saturating_sub(output_ns);
        let last_ns = record.finish_ns.saturating_sub(output_ns);
        decoding.basis.add_scaled(&ledger.between(first_ns, last_ns), 1.0 / count);
        decoding.predicted_us += (record.finish_ns - record.first_token_ns) as f64 / 1e3 / count;
    }
    let mut ttft = empty(case, Target::Ttft, ttft_us);
    ttft.queueing = 1.0;
    for record in records {
        let prompt = Request::prefill(record.num_prompt_tokens, 0);
        let arrived_ns = record.arrival_ns + (roofline.queueing_time_us(&prompt) * 1e3) as u64;
        let first_ns = record.first_token_ns.saturating_sub(output_ns);
        ttft.basis.add_scaled(&ledger.between(arrived_ns.min(first_ns), first_ns), 1.0 / count);
        ttft.predicted_us += (record.first_token_ns - record.arrival_ns) as f64 / 1e3 / count;
    }
    let is_usable = |o: &Observation| o.measured_us > 0.0 && o.predicted_us > 0.0 && o.predicted_us.is_finite();
    [decoding, ttft].into_iter().filter(is_usable).collect()
}

fn empty(case: &Case, target: Target, measured_us: f64) -> Observation {
    Observation {
        experiment: case.name.clone(),
        model: case.model.clone(),
        target,
        measured_us,
        predicted_us: 0.0,
        basis: ridgepoint::internals::correction::Basis::default(),
        queueing: 0.0,
        sd: target.expected_sd(),
        weight: 0.0,
    }
}
