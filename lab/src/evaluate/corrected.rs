//! Corrections put on cases: each model's once, cases that share a deployment sharing its prediction. Uses `case`, `correction`.

use ridgepoint::ErrorKind;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::case::{Case, Rooflines};
use ridgepoint::internals::correction::Correction;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::{CorrectionChoice, EfficiencyMode, Error, Result};

/// Predicts every case with the correction that `wanted` (`none`, `global`, `auto`, a file) asks for of its model.
///
/// # Errors
/// As [`CorrectionChoice::resolve`]; `ErrorKind::Invalid` with every model that a file is not meant for.
pub fn correct(cases: &mut [Case], wanted: &str) -> Result<()> {
    let mut known: BTreeMap<String, Option<Arc<Correction>>> = BTreeMap::new();
    let mut problems: Vec<String> = Vec::new();
    for case in cases.iter() {
        if known.contains_key(&case.model) {
            continue;
        }
        let found = match CorrectionChoice::from(wanted).resolve(&case.model, EfficiencyMode::Tables) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::Invalid => {
                let new: Vec<_> =
                    error.problems().iter().filter(|problem| !problems.contains(problem)).cloned().collect();
                problems.extend(new);
                None
            }
            Err(error) => return Err(error),
        };
        known.insert(case.model.clone(), found);
    }
    if !problems.is_empty() {
        return Err(Error::invalid(wanted, problems));
    }
    correct_with(cases, |case| known.get(&case.model).cloned().flatten());
    Ok(())
}

/// Predicts every case with the correction that is given for it; without one where that is `None`.
pub fn correct_with(cases: &mut [Case], correction_of: impl Fn(&Case) -> Option<Arc<Correction>>) {
    type Key = (*const CalibratedRoofline, *const Correction);
    let mut made: BTreeMap<Key, Rooflines> = BTreeMap::new();
    for case in cases {
        let correction = correction_of(case);
        let Some(correction) = correction else {
            case.rooflines.predicted = Arc::clone(&case.rooflines.calibrated);
            continue;
        };
        let key = (Arc::as_ptr(&case.rooflines.calibrated), Arc::as_ptr(&correction));
        if let Some(known) = made.get(&key) {
            case.rooflines = known.clone();
        } else {
            case.rooflines.correct(&correction);
            made.insert(key, case.rooflines.clone());
        }
    }
}
