//! Times that never fall as work grows: the closest rising sequence to one of measurements.
#![expect(clippy::indexing_slicing, reason = "places are counted from the number of values")]

/// Replaces logs of times of growing work by a sequence that never falls.
///
/// # Formula
/// Pool adjacent violators: neighbours that fall become one block, whose value is their median, the mean of the middle two if their number
/// is even. This is a fit of least absolute log errors, so a single slow or fast call among many moves no other value. A sequence that
/// rises stays as it is.
///
/// # Source
/// Robertson, Wright and Dykstra, *Order Restricted Statistical Inference*, 1988.
///
/// ```text
/// Times of 8, 5, 5 and 6 µs become 5, 5, 5 and 6; 6, 8, 7 and 9 become 6, 7.48, 7.48 and 9.
/// ```
pub(super) fn rising(logs: &[f64]) -> Vec<f64> {
    /// Neighbours with one value.
    struct Pool {
        sorted: Vec<f64>,
    }
    impl Pool {
        fn median(&self) -> f64 {
            let middle = |rank: usize| self.sorted.get(rank).copied().unwrap_or(f64::NAN);
            let count = self.sorted.len();
            if count % 2 == 1 { middle(count / 2) } else { 0.5 * (middle(count / 2 - 1) + middle(count / 2)) }
        }
    }
    let mut blocks: Vec<Pool> = Vec::with_capacity(logs.len());
    for log in logs {
        let mut last = Pool { sorted: vec![*log] };
        while let Some(before) = blocks.pop_if(|before| before.median() > last.median()) {
            last.sorted.extend(before.sorted);
            last.sorted.sort_by(f64::total_cmp);
        }
        blocks.push(last);
    }
    blocks.iter().flat_map(|block| std::iter::repeat_n(block.median(), block.sorted.len())).collect()
}

/// Rounds of fits along one axis and the other before what is left of a fall is shared out.
const ROUNDS: usize = 8;

/// [`rising`] for logs of times that grow along two axes: `logs` has rows of `width` values.
///
/// # Formula
/// Fits along the rows and along the columns by turns. What still falls after a few rounds becomes the mean of the largest value before a
/// place and the smallest behind it, neither of which falls along any axis.
pub(super) fn rising_rows(logs: &[f64], width: usize) -> Vec<f64> {
    let mut values = logs.to_vec();
    if width == 0 {
        return values;
    }
    let height = values.len() / width;
    for _ in 0..ROUNDS {
        let before = values.clone();
        for row in values.chunks_mut(width) {
            let risen = rising(row);
            row.copy_from_slice(&risen);
        }
        for column in 0..width {
            let risen = rising(&values.iter().skip(column).step_by(width).copied().collect::<Vec<f64>>());
            values.iter_mut().skip(column).step_by(width).zip(risen).for_each(|(value, risen)| *value = risen);
        }
        if before.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-12) {
            return values;
        }
    }
    let (mut largest, mut smallest) = (values.clone(), values.clone());
    for at in 0..height * width {
        let left = if at % width > 0 { largest[at - 1] } else { f64::NEG_INFINITY };
        let above = if at >= width { largest[at - width] } else { f64::NEG_INFINITY };
        largest[at] = largest[at].max(left).max(above);
        let at = height * width - 1 - at;
        let right = if at % width + 1 < width { smallest[at + 1] } else { f64::INFINITY };
        let below = if at + width < height * width { smallest[at + width] } else { f64::INFINITY };
        smallest[at] = smallest[at].min(right).min(below);
    }
    largest.iter().zip(&smallest).map(|(largest, smallest)| 0.5 * (largest + smallest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_times(times_us: &[f64]) -> Vec<f64> {
        let logs: Vec<f64> = times_us.iter().map(|us| us.ln()).collect();
        rising(&logs).into_iter().map(|log| (100.0 * log.exp()).round() / 100.0).collect()
    }

    #[test]
    fn falls_are_pooled_and_a_rise_is_kept() {
        assert_eq!(of_times(&[1.0, 2.0, 2.0, 3.5]), [1.0, 2.0, 2.0, 3.5]);
        assert_eq!(of_times(&[8.0, 5.0, 5.0, 6.0]), [5.0, 5.0, 5.0, 6.0]);
        assert_eq!(of_times(&[6.0, 8.0, 7.0, 9.0]), [6.0, 7.48, 7.48, 9.0]);
        assert_eq!(of_times(&[4.0, 3.0, 2.0]), [3.0, 3.0, 3.0]);
        assert!(of_times(&[]).is_empty());
    }

    #[test]
    fn one_slow_call_moves_no_other() {
        assert_eq!(of_times(&[5.0, 5.1, 20.0, 5.2, 5.3, 6.0]), [5.0, 5.1, 5.3, 5.3, 5.3, 6.0]);
    }

    #[test]
    fn times_rise_along_both_axes() {
        let kept = [1.0, 2.0, 3.0, 2.0, 2.0, 4.0];
        assert_eq!(rising_rows(&kept, 3), kept);
        assert_eq!(rising_rows(&[1.0, 2.0, 3.0, 1.0, 9.0, 4.0, 2.0, 4.0, 5.0], 3)[4..6], [5.25, 5.75]);
        let mut next = 7u64;
        let mut random = || {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (next >> 40) as f64
        };
        for width in 1..9 {
            let logs: Vec<f64> = (0..width * 6).map(|_| random()).collect();
            let risen = rising_rows(&logs, width);
            for at in 0..risen.len() {
                assert!(at % width == 0 || risen[at] >= risen[at - 1] - 1e-9, "{logs:?}");
                assert!(at < width || risen[at] >= risen[at - width] - 1e-9, "{logs:?}");
            }
        }
    }
}
