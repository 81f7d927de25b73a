//! Logarithmic axes: ranges that hold their values, and round marks.

use std::ops::Range;

/// A range around the positive values; `None` without any.
pub fn log_range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let positive = values.filter(|value| value.is_finite() && *value > 0.0);
    let (least, most) =
        positive.fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    let margin = 1.25 * (most / least).powf(0.05);
    (least <= most).then(|| least / margin..most * margin)
}

/// Round numbers within a range of positive values: 1, 2 and 5 times powers of ten, or evenly spaced ones if these are few.
pub fn log_marks(range: &Range<f64>) -> Vec<f64> {
    const FEW: usize = 4;
    const MOST: usize = 12;
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let marks: Vec<f64> = decades
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .filter(|mark| range.contains(mark))
        .collect();
    if marks.len() >= FEW {
        let step = marks.len().div_ceil(MOST);
        return marks.into_iter().step_by(step).collect();
    }
    let rough = (range.end - range.start) / MOST as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (range.start / step).ceil();
    (0..=MOST).map(|index| (first + index as f64) * step).filter(|mark| range.contains(mark)).collect()
}

/// A mark as text of three digits, without zeros at its end.
pub fn mark(value: &f64) -> String {
    if !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 5.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_values_and_are_never_empty() {
        let same = log_range([5.0, 5.0].into_iter()).unwrap();
        assert!(same.start < 5.0 && 5.0 < same.end, "{same:?}");
        let range = log_range([10.0, -1.0, 0.0, f64::NAN, 1000.0].into_iter()).unwrap();
        assert!(range.start > 0.0 && range.start < 10.0 && range.end > 1000.0, "{range:?}");
        assert_eq!(log_range([0.0, f64::NAN].into_iter()), None);
    }

    #[test]
    fn marks_are_round_and_within_the_axis() {
        assert_eq!(log_marks(&(0.9..250.0)), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        // A twelfth of 9.6 is 0.8: steps of 1 from 14 on.
        let narrow = log_marks(&(13.2..22.8));
        assert_eq!((narrow.len(), narrow[0], narrow[8]), (9, 14.0, 22.0));
        assert!(log_marks(&(1e-9..1e9)).len() <= 12);
        assert_eq!([14.0, 0.5, 1500.0, 0.012, 1e-9].map(|of| mark(&of)), ["14", "0.5", "1500", "0.012", "1e-9"]);
    }
}
