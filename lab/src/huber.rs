//! Huber's loss: quadratic for small residuals, linear for large ones. Uses nothing of the crate.

/// Standard deviations beyond which the pull of a residual no longer grows. 1.5 keeps 96 % of least squares' efficiency
/// where the noise is normal (Huber 1964), and a row that is off by ten standard deviations counts 1.5/10 as much.
pub const HUBER_DELTA: f64 = 1.5;

/// Mean of [`weight`]`(r)·r²` for a standard normal `r`: 2Φ(δ) − 1.
const MEAN_WEIGHTED_SQUARE: f64 = 0.866_385_597_462_283_9;

/// `r²/2` up to δ, `δ·(|r| − δ/2)` beyond.
pub fn loss(r: f64) -> f64 {
    let size = r.abs();
    if size <= HUBER_DELTA { 0.5 * r * r } else { HUBER_DELTA * (size - 0.5 * HUBER_DELTA) }
}

/// Derivative of [`loss`].
pub fn slope(r: f64) -> f64 {
    r.clamp(-HUBER_DELTA, HUBER_DELTA)
}

/// Weight of the row in the least squares that have the same slope: [`slope`]`(r) / r`.
pub fn weight(r: f64) -> f64 {
    let size = r.abs();
    if size <= HUBER_DELTA { 1.0 } else { HUBER_DELTA / size }
}

/// χ² of residuals, each with the number of rows that it counts as. Huber's weights keep outliers from inflating it; its mean is the
/// number of rows for normal noise.
pub fn chi_square(rows: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    rows.into_iter().map(|(count, r)| count * weight(r) * r * r).sum::<f64>() / MEAN_WEIGHTED_SQUARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_quadratic_then_linear_without_a_step_between() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(loss(-1.0), 0.5);
        close(loss(1.5), 1.125);
        close(loss(-10.0), 1.5 * 9.25);
        close(slope(-10.0), -1.5);
        close(weight(10.0) * 10.0, slope(10.0));
    }

    #[test]
    fn mean_weighted_square_is_what_the_integral_says() {
        let (mut sum, step) = (0.0, 1e-4);
        for i in 0..100_000 {
            let r = (f64::from(i) + 0.5) * step;
            sum += 2.0 * weight(r) * r * r * (-0.5 * r * r).exp() * step;
        }
        let mean = sum / (2.0 * std::f64::consts::PI).sqrt();
        assert!((mean - MEAN_WEIGHTED_SQUARE).abs() < 1e-6, "{mean}");
    }
}
