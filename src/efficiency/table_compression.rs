//! Compresses tables: drops the values of a line that interpolation between its other knots reproduces within a tolerance.
#![expect(clippy::indexing_slicing, reason = "places on a line are counted from its length")]

/// Most that a measured value which is left out may differ from what its neighbours give, as a log ratio of times: one per cent, less
/// than kernels repeat.
const TOLERANCE: f64 = 0.01;
/// The same for a value that was filled in: about the error of such values where measurements exist.
const FILLED_IN_TOLERANCE: f64 = 0.03;

/// A value of a line.
#[derive(Debug, Clone, Copy)]
pub struct Value {
    /// Natural log of its knot.
    pub log_knot: f64,
    /// Natural log of measured over modelled time.
    pub residual: f64,
    /// Whether it was filled in from other measurements.
    pub is_filled_in: bool,
}

/// Which values of a line need a number; holes are `None`. Both ends of a stretch without holes always do, and others as few as reach
/// the next one.
pub fn significant_knots(line: &[Option<Value>]) -> Vec<bool> {
    let mut matter = vec![false; line.len()];
    let mut start = 0;
    for stretch in line.split_inclusive(Option::is_none) {
        let values: Vec<Value> = stretch.iter().flatten().copied().collect();
        let mut at = 0;
        while at < values.len() {
            matter[start + at] = true;
            at = furthest(&values, at);
        }
        start += stretch.len();
    }
    matter
}

/// The furthest value after `from` whose straight line from there is near all values between; the number of values if `from` is the last.
fn furthest(values: &[Value], from: usize) -> usize {
    let reaches = |to: usize| {
        let is_near = |value: &Value| {
            let tolerance = if value.is_filled_in { FILLED_IN_TOLERANCE } else { TOLERANCE };
            (interpolated(values[from], values[to], value.log_knot) - value.residual).abs() <= tolerance
        };
        values[from + 1..to].iter().all(is_near)
    };
    (from + 1..values.len()).take_while(|to| reaches(*to)).last().unwrap_or(values.len())
}

/// The residual between two values at the logarithm of a knot, as a lookup interpolates.
pub fn interpolated(low: Value, high: Value, log_knot: f64) -> f64 {
    low.residual + (high.residual - low.residual) * (log_knot - low.log_knot) / (high.log_knot - low.log_knot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(residuals: &[f64]) -> Vec<Option<Value>> {
        let value = |(place, residual): (usize, &f64)| {
            let value = Value { log_knot: place as f64, residual: *residual, is_filled_in: false };
            (!residual.is_nan()).then_some(value)
        };
        residuals.iter().enumerate().map(value).collect()
    }

    #[test]
    fn values_on_a_straight_line_are_left_out_and_corners_kept() {
        let matter = |residuals: &[f64]| {
            let marks: String =
                significant_knots(&line(residuals)).iter().map(|of| if *of { 'x' } else { '.' }).collect();
            marks
        };
        assert_eq!(matter(&[0.0, 0.1, 0.2, 0.3]), "x..x");
        assert_eq!(matter(&[0.0, 0.1, 0.2, 0.1, 0.0]), "x.x.x");
        assert_eq!(matter(&[0.0, 0.004, 0.0, -0.004, 0.0]), "x...x", "less than kernels repeat");
        assert_eq!(matter(&[0.0, 0.05, 0.0, 0.0]), "xxxx");
        assert_eq!(matter(&[0.0, f64::NAN, 0.2, 0.3, 0.4, f64::NAN]), "x.x.x.", "nothing reaches over a hole");
        assert_eq!(matter(&[f64::NAN, 0.2]), ".x");
        assert_eq!(matter(&[]), "");
        let mut bent = line(&[0.0, 0.02, 0.0]);
        assert_eq!(significant_knots(&bent), [true, true, true]);
        bent[1].as_mut().unwrap().is_filled_in = true;
        assert_eq!(significant_knots(&bent), [true, false, true]);
    }
}
