//! The few terms that a result of a load generator can identify, each a move of several coefficients.
#![expect(clippy::indexing_slicing, reason = "there is a value for every term")]

use ridgepoint::Correction;
use ridgepoint::correction::{NUM_TERMS, Term};

use crate::fit::FRONT_END_PRIOR_SD_US;
use crate::solver::Parameter;

/// A term of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FittedTerm {
    /// Factor on the kernels of decodes: projections, experts, attention, collectives, small kernels.
    DecodeFactor,
    /// Factor on the kernels of steps with prompt chunks.
    PrefillFactor,
    /// A coefficient of the correction, as it is.
    Price(Term),
    /// From sending to the engine's queue.
    Queueing,
    /// Of the front end's event loop, which requests share.
    FrontEnd,
}

use FittedTerm::{DecodeFactor, FrontEnd, PrefillFactor, Price, Queueing};

/// Name, unit and standard deviation of the prior: how far servers are found to differ from their kernels' times (assumed).
const TERMS: [(FittedTerm, &str, &str, f64); 7] = [
    (DecodeFactor, "decode", "factor", 0.2),
    (PrefillFactor, "prefill", "factor", 0.15),
    (Price(Term::Steps), "step_us", "µs per step", 1000.0),
    (Price(Term::Requests), "request_us", "µs per running request and step", 20.0),
    (Price(Term::PrefillRequests), "prefill_request_us", "µs per new request", 500.0),
    (Queueing, "queueing_us", "µs per request before the queue", 20_000.0),
    (FrontEnd, "front_end_us", "µs per request of the front end's loop", FRONT_END_PRIOR_SD_US),
];

/// Number of terms.
pub(super) const NUM_FITTED: usize = TERMS.len();

/// Coefficients that the kernels of decodes have, and those of steps with chunks.
const OF_DECODES: [Term; 5] =
    [Term::Projections, Term::AttentionDecode, Term::Experts, Term::Communication, Term::SmallKernels];
const OF_CHUNKS: [Term; 4] =
    [Term::AttentionPrefill, Term::ProjectionsWithChunks, Term::ExpertsWithChunks, Term::SmallKernelsWithChunks];

/// The parameters of a fit around a correction.
pub(super) fn parameters(around: &Correction) -> Vec<Parameter> {
    let parameter = |(term, name, unit, prior_sd): (FittedTerm, &'static str, &'static str, f64)| match term {
        DecodeFactor | PrefillFactor => Parameter { name, unit, prior: 1.0, prior_sd, bounds: (0.3, 4.0) },
        Price(of) => Parameter { name, unit, prior: around.coefficient(of), prior_sd, bounds: of.bounds() },
        Queueing => Parameter::overhead(name, unit, around.host.queueing_us, prior_sd),
        FrontEnd => Parameter::overhead(name, unit, around.host.front_end_us, prior_sd),
    };
    TERMS.into_iter().map(parameter).collect()
}

/// The correction with the terms at these values.
pub(super) fn applied(around: &Correction, values: &[f64]) -> Correction {
    let mut correction = around.clone();
    for ((term, ..), value) in TERMS.into_iter().zip(values) {
        match term {
            DecodeFactor => scale(&mut correction, &OF_DECODES, *value),
            PrefillFactor => scale(&mut correction, &OF_CHUNKS, *value),
            Price(of) => correction.coefficients[of.index()] = *value,
            Queueing => correction.host.queueing_us = *value,
            FrontEnd => correction.host.front_end_us = *value,
        }
    }
    correction
}

fn scale(correction: &mut Correction, terms: &[Term], factor: f64) {
    for term in terms {
        let (least, greatest) = term.bounds();
        let coefficient = &mut correction.coefficients[term.index()];
        *coefficient = (*coefficient * factor).clamp(least, greatest);
    }
}

/// The share that each coefficient of `around` has in a move of each term.
pub(super) fn slopes(around: &Correction) -> [[f64; NUM_TERMS]; NUM_FITTED] {
    let slope = |(term, ..): (FittedTerm, &str, &str, f64)| {
        let mut slope = [0.0; NUM_TERMS];
        match term {
            DecodeFactor => OF_DECODES.iter().for_each(|of| slope[of.index()] = around.coefficient(*of)),
            PrefillFactor => OF_CHUNKS.iter().for_each(|of| slope[of.index()] = around.coefficient(*of)),
            Price(of) => slope[of.index()] = 1.0,
            Queueing | FrontEnd => {}
        }
        slope
    };
    TERMS.map(slope)
}
