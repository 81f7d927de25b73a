//! By how much the times of steps scatter.

use ridgepoint::Correction;

/// By how much steps scatter.
#[derive(Debug, Clone, Copy)]
pub enum Noise {
    /// As the correction says.
    OfCorrection,
    /// The standard deviation of a factor's logarithm.
    Sigma(f64),
}

/// The spread that is taken if none is given.
pub const OF_CORRECTION: &str = "correction";

/// Values of a spread.
pub const NOISE: &str = "a number from 0 to 1, or correction";

impl Noise {
    /// The spread of a text; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let sigma = || text.parse().ok().filter(|sigma| (0.0..=1.0).contains(sigma)).map(Noise::Sigma);
        if text == OF_CORRECTION { Some(Noise::OfCorrection) } else { sigma() }
    }

    /// The standard deviation; `None` without the correction that has it.
    pub fn sigma(self, correction: Option<&Correction>) -> Option<f64> {
        match self {
            Noise::Sigma(sigma) => Some(sigma),
            Noise::OfCorrection => correction.map(|correction| correction.scatter.step),
        }
    }
}
