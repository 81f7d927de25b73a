//! Comparisons with named relative tolerances; no absolute part, so that small times are compared as strictly as large ones.

/// Sums of the same numbers in another order.
pub const REL_SUMMATION_ORDER: f64 = 1e-12;

/// Whether `got` is `want` within a relative tolerance; never for numbers that are not finite.
pub fn is_rel(got: f64, want: f64, tolerance: f64) -> bool {
    got.is_finite() && want.is_finite() && (got - want).abs() <= tolerance * want.abs()
}
