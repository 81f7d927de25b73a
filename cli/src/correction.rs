//! Which correction a command predicts with. Uses the library's `correction`.

use ridgepoint::internals::correction::{Correction, find_correction};

use super::args::Efficiency;
use super::output::Failure;

/// The correction that `--correction` asks for of a model. Nothing is learned on top of the textbook roofline: with it `auto` is
/// `none`.
///
/// # Errors
/// A correction of the textbook roofline; as [`find_correction`].
pub fn find(wanted: &str, efficiency: Efficiency, model: &str) -> Result<Option<Correction>, Failure> {
    match (efficiency, wanted) {
        (Efficiency::Tables, wanted) => Ok(find_correction(wanted, model)?),
        (Efficiency::Ideal, "none" | "auto") => Ok(None),
        (Efficiency::Ideal, wanted) => Err(Failure::input(format!(
            "--correction {wanted}: corrections are learned on top of calibrated tables and say nothing of --efficiency \
             ideal; leave one of them out"
        ))),
    }
}
