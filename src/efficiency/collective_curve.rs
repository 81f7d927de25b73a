//! Collectives over a fixed number of ranks, by the bytes of a message.

use super::chip::Chip;
use super::collective_model::ExchangeModel;
use super::provenance::Provenance;
use super::residual_curve::{ResidualCurve, SourcedTime, Uneven};
use super::series::Series;
use super::series_key::CallShape;
use crate::physics::communication::{Collective, ExchangeShape, all_reduce_sent_bytes};

/// A collective over a fixed number of ranks.
#[derive(Debug, Clone)]
pub struct CollectiveCurve {
    curve: ResidualCurve,
    /// The collective over its ranks, or over the most that were measured.
    shape: ExchangeShape,
    /// Ranks beyond the measured ones.
    beyond: Option<BeyondRanks>,
}

/// Cost that ranks beyond the measured ones add to a collective: the bytes that each sends, and steps like those of a tree (assumed).
#[derive(Debug, Clone, Copy)]
struct BeyondRanks {
    /// Bytes that a rank sends, divided by the bytes that it sends in the largest measured group.
    sent_ratio: f64,
    /// Time of the additional steps, µs.
    steps_us: f64,
}

impl CollectiveCurve {
    /// Returns the curve of an engine's own all-reduce over `gpus` ranks.
    pub fn all_reduce(series: &Series, gpus: f64, chip: Chip, at_best: Provenance) -> Self {
        let shape = ExchangeShape::all_reduce(0.0, gpus);
        CollectiveCurve { curve: CollectiveCurve::residuals(series, shape, chip, at_best), shape, beyond: None }
    }

    /// Returns the curve of a collective of NCCL over `gpus` ranks.
    pub fn nccl(collective: Collective, series: &Series, gpus: f64, chip: Chip, at_best: Provenance) -> Self {
        let most = series.grid.axes.first().and_then(|ranks| ranks.last()).copied().unwrap_or(gpus);
        let measured = gpus.min(most);
        let sent = |gpus| all_reduce_sent_bytes(1.0, gpus);
        let beyond = (gpus > measured && measured >= 2.0).then(|| BeyondRanks {
            sent_ratio: sent(gpus) / sent(measured),
            steps_us: ExchangeModel::rank_us(&series.coefficients) * measured * (gpus.log2() / measured.log2() - 1.0),
        });
        let gpus = if beyond.is_some() { measured } else { gpus };
        let shape = ExchangeShape { collective, message_bytes: 0.0, gpus };
        CollectiveCurve { curve: CollectiveCurve::residuals(series, shape, chip, at_best), shape, beyond }
    }

    fn residuals(series: &Series, shape: ExchangeShape, chip: Chip, at_best: Provenance) -> ResidualCurve {
        let of = |message_bytes: f64| CallShape::Exchange(ExchangeShape { message_bytes, ..shape });
        let curve = ResidualCurve::new(series, &[shape.gpus], chip, at_best);
        curve.rising(|message_bytes| of(message_bytes).time_us(&series.coefficients, &chip))
    }

    /// The most ranks that were measured, if the collective has more.
    pub fn extrapolated_from(&self) -> Option<f64> {
        self.beyond.map(|_| self.shape.gpus)
    }

    /// Rows near a message that fall.
    pub fn uneven_near(&self, message_bytes: f64) -> Option<Uneven> {
        self.curve.uneven_near(message_bytes * self.beyond.map_or(1.0, |beyond| beyond.sent_ratio))
    }

    /// Time for a message, counted as [`ExchangeShape`] does.
    pub fn time(&self, message_bytes: f64) -> SourcedTime {
        let message_bytes = message_bytes * self.beyond.map_or(1.0, |beyond| beyond.sent_ratio);
        let shape = ExchangeShape { message_bytes, ..self.shape };
        // The models of both differ in their coefficients alone.
        let (time_us, provenance) = self.curve.timed_rising(&CallShape::Exchange(shape), message_bytes.max(1.0));
        match self.beyond {
            None => (time_us, provenance),
            Some(beyond) => (time_us + beyond.steps_us, provenance.max(Provenance::Clamped)),
        }
    }
}
