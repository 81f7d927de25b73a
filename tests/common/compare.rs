//! Comparison with a relative tolerance and no absolute part, so small times are compared as strictly as large ones.

/// Whether `got` is `want` within a relative tolerance; never for numbers that are not finite.
pub fn is_rel(got: f64, want: f64, tolerance: f64) -> bool {
    got.is_finite() && want.is_finite() && (got - want).abs() <= tolerance * want.abs()
}
