//! What all plots share: size, colours, ranges that hold their points, series that are not too many. Uses plotters.

use std::fmt::Display;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Drawn;

/// Width and height, pixels.
pub const SIZE: (u32, u32) = (960, 640);
/// Height of a title, pixels.
const TITLE_PX: u32 = 22;
/// Points of a series that a file holds at most.
const MAX_POINTS: usize = 4000;
/// Series that have a colour of their own.
const MAX_SERIES: usize = 8;
/// Characters of a name in a legend.
const MAX_NAME_CHARS: usize = 44;

const COLOURS: [RGBColor; MAX_SERIES] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 70),
    RGBColor(110, 110, 110),
];

/// Lines that guide the eye.
pub const GREY: RGBColor = RGBColor(140, 140, 140);

/// A drawing area of an SVG.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What went wrong, in words.
pub fn said(error: impl Display) -> String {
    error.to_string()
}

/// An SVG of `size` pixels, white under what `draw` puts on it.
pub fn drawn(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(said)?;
        draw(&root)?;
        root.present().map_err(said)?;
    }
    Ok(svg)
}

/// A chart under a title, with room for labels.
pub fn titled<'a, 'b>(root: &'a Area<'b>, title: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(root);
    chart.caption(title, ("sans-serif", TITLE_PX)).margin(16).x_label_area_size(48).y_label_area_size(72);
    chart
}

/// A small filled circle in a series' colour.
pub fn dot(point: (f64, f64), index: usize) -> Circle<(f64, f64), i32> {
    Circle::new(point, 3, colour(index).mix(0.6).filled())
}

/// Points under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<(f64, f64)>,
}

/// The colour of a series.
pub fn colour(index: usize) -> RGBColor {
    COLOURS.get(index % MAX_SERIES).copied().unwrap_or(RGBColor(0, 0, 0))
}

/// Series as they are drawn: finite points alone, not too many of them, short names, and what is beyond the colours as one.
pub fn drawable(series: Vec<Series>) -> Vec<Series> {
    let mut kept: Vec<Series> = Vec::new();
    for (index, mut of) in series.into_iter().enumerate() {
        of.points.retain(|(x, y)| x.is_finite() && y.is_finite());
        of.name = short(&of.name);
        match kept.last_mut() {
            Some(last) if index >= MAX_SERIES => {
                last.points.extend(of.points);
                last.name = "others".to_owned();
            }
            _ => kept.push(of),
        }
    }
    for of in &mut kept {
        let step = of.points.len().div_ceil(MAX_POINTS).max(1);
        if step > 1 {
            of.points = of.points.iter().copied().step_by(step).collect();
            of.name.push_str(&format!(" (one in {step})"));
        }
    }
    kept.retain(|of| !of.points.is_empty());
    kept
}

/// A name that fits a legend.
pub fn short(name: &str) -> String {
    if name.chars().count() <= MAX_NAME_CHARS {
        return name.to_owned();
    }
    name.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect()
}

/// A range around values, never empty; `None` without finite ones.
pub fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let finite = values.filter(|value| value.is_finite());
    let (least, greatest) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    if least > greatest {
        return None;
    }
    let pad = (0.05 * (greatest - least)).max(0.02 * greatest.abs()).max(1e-9);
    Some(least - pad..greatest + pad)
}

/// A range of ratios around positive values, for logarithmic axes.
pub fn log_range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let logs = range(values.filter(|value| *value > 0.0).map(f64::ln))?;
    let pad = (1.25f64).ln();
    Some((logs.start - pad).exp()..(logs.end + pad).exp())
}

/// Round numbers within a range of positive values, for the marks of a logarithmic axis: 1, 2 and 5 times powers of ten, and where
/// these are few, round steps between the ends.
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

/// A mark as text: three digits, no zeros behind.
pub fn mark(value: &f64) -> String {
    if *value == 0.0 || (1e-3..1e6).contains(&value.abs()) {
        let digits = (2.0 - value.abs().max(1e-3).log10().floor()).clamp(0.0, 5.0) as usize;
        let text = format!("{value:.digits$}");
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    }
    format!("{value:.0e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_values_and_are_never_empty() {
        assert_eq!(range([f64::NAN].into_iter()), None);
        let same = range([5.0, 5.0].into_iter()).unwrap();
        assert!(same.start < 5.0 && 5.0 < same.end, "{same:?}");
        let zero = range([0.0].into_iter()).unwrap();
        assert!(zero.start < 0.0 && 0.0 < zero.end, "{zero:?}");
        let logs = log_range([10.0, -1.0, 0.0, 1000.0].into_iter()).unwrap();
        assert!(logs.start > 0.0 && logs.start < 10.0 && logs.end > 1000.0, "{logs:?}");
        assert_eq!(log_range([0.0].into_iter()), None);
    }

    #[test]
    fn marks_are_round_and_within_the_axis() {
        assert_eq!(log_marks(&(0.9..250.0)), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        // A twelfth of 9.6 is 0.8: steps of 1 from 14 on.
        let narrow = log_marks(&(13.2..22.8));
        assert_eq!((narrow.len(), narrow[0], narrow[8]), (9, 14.0, 22.0));
        assert!(log_marks(&(1e-9..1e9)).len() <= 12);
        assert_eq!(
            [14.0, 0.5, 0.0, 1500.0, 0.012, 1e-9].map(|of| mark(&of)),
            ["14", "0.5", "0", "1500", "0.012", "1e-9"]
        );
    }

    #[test]
    fn many_points_are_thinned_and_many_series_gathered() {
        let series = |name: &str, count: usize| Series { name: name.to_owned(), points: vec![(1.0, 2.0); count] };
        let thinned = drawable(vec![series("a", 10_000), series("none", 0)]);
        assert_eq!((thinned.len(), thinned[0].points.len()), (1, 3334));
        assert_eq!(thinned[0].name, "a (one in 3)");
        let many = drawable((0..12).map(|index| series(&index.to_string(), 10)).collect());
        assert_eq!((many.len(), many[7].points.len(), many[7].name.as_str()), (8, 50, "others"));
        assert_eq!(short(&"é".repeat(60)).chars().count(), 44);
    }
}
