//! What a power limit below the board's own leaves of a GPU's clocks. Uses `error`, `units`.

use super::spec::Hardware;
use crate::error::{Error, Result};

/// Share of a board's power that does not depend on the clock of its SMs: leakage, memory, fans and regulators (assumed). Idle boards draw 5 to
/// 22 % of their power as `nvidia-smi` shows it (RTX 4090 25 of 450 W, H100 SXM 70 of 700 W, L4 16 of 72 W).
const STATIC_SHARE: f64 = 0.15;

/// Least share of the board's power that a limit may be. Drivers refuse limits below some 30 %: 200 of 700 W on an H100 SXM, 150 of 450 W
/// on an RTX 4090.
const LEAST_SHARE: f64 = 0.3;

/// Share of the clock that is left under a power limit, from the limit as a share of the board's power.
///
/// # Formula
/// `∛((limit − static) / (1 − static))`, at most 1: dynamic power is proportional to `f · V²`, and voltage to the clock.
///
/// # Assumptions
/// The board draws all of its power at the peaks; the static share is 15 %; the clock of the memory does not change. None of it was measured.
pub(super) fn clock_share(limit_share: f64) -> f64 {
    ((limit_share - STATIC_SHARE) / (1.0 - STATIC_SHARE)).max(0.0).cbrt().min(1.0)
}

impl Hardware {
    /// Returns the GPU under a power limit, W, as `nvidia-smi -pl` sets it. All peaks, the rates of `[power_limit]` and the boost clock get
    /// the share of the clock that the limit leaves; the memory keeps its rate. A limit of the board's own power changes nothing.
    ///
    /// With `s = limit / board_watt` that share is `∛((s − 0.15) / 0.85)`. It is an assumption: dynamic power rises with the third power
    /// of the clock above 15 % that do not depend on it. Rates within the board's power, which were measured, get the same share, as what
    /// they sustain is a clock within the same power; they and the lower peaks bound a time together, and the larger bound holds.
    ///
    /// ```
    /// use ridgepoint::{DType, Hardware};
    /// let half = Hardware::find("h100")?.with_power_limit(350.0)?;
    /// // ∛(0.35 / 0.85) = 0.744 of 989.4 TFLOP/s.
    /// assert!((half.peak_dense_flop_per_s(DType::Bfloat16)? / 736.1e12 - 1.0).abs() < 1e-3);
    /// assert_eq!(half.hbm_bytes_per_s, 3.35e12);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for a GPU whose file has no `board_watt`, one that has another limit already, and a limit above the
    /// board's power or below 30 % of it.
    pub fn with_power_limit(&self, limit_watt: f64) -> Result<Hardware> {
        let refused = |reason: String| Err(Error::invalid_argument("power_limit_watt", limit_watt, reason));
        let Some(board_watt) = self.board_watt else {
            return refused(format!(
                "cannot be judged: {} has no board_watt; add it to [datasheet] of its file, as in board_watt = 350",
                self.name
            ));
        };
        if let Some(set) = self.power_limit_watt {
            let is_same = (set - limit_watt).abs() < f64::EPSILON * set;
            return if is_same { Ok(self.clone()) } else { refused(format!("contradicts a limit of {set} W")) };
        }
        let least_watt = LEAST_SHARE * board_watt;
        if !(least_watt..=board_watt).contains(&limit_watt) {
            return refused(format!(
                "must be from {least_watt:.0} to {board_watt} W on {}, 30 % of the board's power to all of it",
                self.display_name
            ));
        }
        let mut limited = self.clone();
        if limit_watt >= board_watt {
            return Ok(limited);
        }
        let share = clock_share(limit_watt / board_watt);
        limited.power_limit_watt = Some(limit_watt);
        limited.scale_clock(share);
        limited.notes.push(format!(
            "power_limit_watt = {limit_watt} of {board_watt} W: all peaks are taken as {:.1} % of the datasheet's, as if the clock fell with the \
             cube root of the power above a static share of 15 %, and the memory kept its rate (assumed, not measured); the interval has half \
             of the change on either side",
            100.0 * share
        ));
        Ok(limited)
    }

    /// The GPU without its power limit; `None` if it has none.
    pub(crate) fn without_power_limit(&self) -> Option<Hardware> {
        let (limit_watt, board_watt) = (self.power_limit_watt?, self.board_watt?);
        let share = clock_share(limit_watt / board_watt);
        let mut whole = Hardware { power_limit_watt: None, ..self.clone() };
        whole.scale_clock(1.0 / share);
        Some(whole)
    }

    /// Multiplies the boost clock by a factor, and every rate that follows it.
    fn scale_clock(&mut self, factor: f64) {
        self.boost_clock_hz *= factor;
        self.peaks_dense_flop_per_s.values_mut().for_each(|peak| *peak *= factor);
        if let Some(sustained) = &mut self.power_limit {
            sustained.flop_per_s.values_mut().for_each(|rate| *rate *= factor);
            sustained.bytes_per_s *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn the_clock_falls_with_the_cube_root_of_dynamic_power() {
        // (0.15 + 0.85/8 − 0.15) / 0.85 = 1/8, whose cube root is a half.
        assert!((clock_share(0.15 + 0.85 / 8.0) - 0.5).abs() < 1e-12);
        assert!((clock_share(0.5) - 0.744_012_7).abs() < 1e-4);
        assert!((clock_share(1.0) - 1.0).abs() < 1e-12 && clock_share(2.0) <= 1.0);
        assert!(clock_share(0.1).abs() < 1e-12, "below the static share nothing is left");
    }

    #[test]
    fn peaks_and_sustained_rates_fall_together_and_the_memory_stays() {
        let gpu = Hardware::find("h200").unwrap();
        let limited = gpu.with_power_limit(350.0).unwrap();
        let share = clock_share(0.5);
        for (dtype, peak) in &gpu.peaks_dense_flop_per_s {
            assert!((limited.peaks_dense_flop_per_s[dtype] / peak / share - 1.0).abs() < 1e-12, "{dtype}");
        }
        let (before, after) = (gpu.power_limit.as_ref().unwrap(), limited.power_limit.as_ref().unwrap());
        let of = |limit: &super::super::PowerLimit| limit.flop_per_s[&DType::Bfloat16];
        assert!((of(after) / of(before) / share - 1.0).abs() < 1e-12);
        assert!((after.bytes_per_s / before.bytes_per_s / share - 1.0).abs() < 1e-12);
        assert!((limited.hbm_bytes_per_s - gpu.hbm_bytes_per_s).abs() < 1.0);
        assert_eq!(limited.with_power_limit(350.0).unwrap(), limited, "a limit is set once");
        assert_eq!(gpu.with_power_limit(700.0).unwrap(), gpu, "the board's own power is no limit");
    }

    #[test]
    fn limits_that_no_driver_takes_are_refused_with_the_range() {
        let gpu = Hardware::find("l4").unwrap();
        for watt in [0.0, 21.0, 73.0, f64::NAN] {
            let error = gpu.with_power_limit(watt).unwrap_err().to_string();
            assert!(error.contains("from 22 to 72 W") && error.contains("power_limit_watt"), "{error}");
        }
        let unknown = Hardware { board_watt: None, ..gpu };
        assert!(unknown.with_power_limit(50.0).unwrap_err().to_string().contains("l4 has no board_watt"));
    }
}
