//! The charts, on logarithmic axes: predicted over measured times, and the share of times that are longer than a time. plotters
//! gets decimal logarithms.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions in a list, numbers of digits")]

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use plotters::prelude::*;
use ridgepoint_lab::stats::quantile;

/// The text of a plot, or the reason why it cannot be drawn.
pub type PlotResult = Result<String, String>;

/// Width and height, pixels.
const SIZE: (u32, u32) = (960, 640);
/// Height of a title, pixels.
const TITLE_PX: u32 = 22;
/// Largest number of series that have a colour of their own.
const MAX_SERIES: usize = 12;
/// Largest number of points that a file holds of a series.
const MAX_POINTS: usize = 4000;
/// Largest number of characters of a name in a legend.
const MAX_NAME_CHARS: usize = 44;
/// Points of a survival curve.
const CURVE_POINTS: usize = 400;
/// Times that are drawn, ms. Axes of more decades would have marks that no font can show; no measurement is beyond these.
const DRAWN_MS: RangeInclusive<f64> = 1e-9..=1e12;
/// Lines that guide the eye.
const GREY: RGBColor = RGBColor(140, 140, 140);

/// Points under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Measured and predicted times.
    pub points: Vec<(f64, f64)>,
}

/// Predicted over measured times on equal axes, with the lines of no error and of ±10 %.
pub fn predicted_over_measured(title: &str, axis_title: &str, series: Vec<Series>) -> PlotResult {
    let series = drawable(series);
    let times = series.iter().flat_map(|of| &of.points).flat_map(|(x, y)| [*x, *y]);
    let axis = log_range(times).ok_or("no point to draw")?;
    let guides = [1.0f64, 0.9, 1.1].map(|factor| {
        let shift = factor.log10();
        // The ends are within both axes: points beyond would be moved to the corners.
        [axis.start.max(axis.start - shift), axis.end.min(axis.end - shift)].map(|x| (x, x + shift))
    });
    let [x, y] = ["measured", "predicted"].map(|which| format!("{which} {axis_title}"));
    chart(title, (&x, &axis), (&y, &axis), &guides, &series, Marks::Dots)
}

/// Quantiles of each model's times over those of measured ones, from the 1st to the 99th percentile. A model has a name.
pub fn quantiles(title: &str, measured_ms: &[f64], models: &[(&str, &[f64])]) -> PlotResult {
    let measured = sorted(measured_ms);
    let of_model = |(name, times_ms): &(&str, &[f64])| {
        let times = sorted(times_ms);
        let shares = (0..=196).map(|index| 0.01 + f64::from(index) / 200.0);
        let points = shares.filter_map(|share| Some((quantile(&measured, share)?, quantile(&times, share)?))).collect();
        Series { name: (*name).to_owned(), points }
    };
    predicted_over_measured(title, "quantiles, ms", models.iter().map(of_model).collect())
}

/// Share of times that are longer, a curve for each name. `share_title` is the title of that axis.
pub fn survival(title: &str, share_title: &str, curves: &[(&str, &[f64])]) -> PlotResult {
    let curves: Vec<(&str, Vec<f64>)> = curves.iter().map(|(name, times)| (*name, sorted(times))).collect();
    let x = log_range(curves.iter().flat_map(|(_, times)| times).copied()).ok_or("no time to draw")?;
    let least = 1.0 / curves.iter().map(|(_, times)| times.len()).max().unwrap_or(0).max(2) as f64;
    // The range ends above 1, so that 1 has a mark.
    let y = least.log10()..0.02;
    let curve = |(name, times): &(&str, Vec<f64>)| Series { name: (*name).to_owned(), points: survivors(times, least) };
    let series: Vec<Series> = curves.iter().map(curve).collect();
    chart(title, ("time between tokens t, ms", &x), (share_title, &y), &[], &series, Marks::Line)
}

/// How the points of a series are drawn.
enum Marks {
    Dots,
    Line,
}

/// An SVG of a chart with a legend. Each axis has its title and the range of its logarithms; `guides` are grey lines.
fn chart(
    title: &str,
    x: (&str, &Range<f64>),
    y: (&str, &Range<f64>),
    guides: &[[(f64, f64); 2]],
    series: &[Series],
    marks: Marks,
) -> PlotResult {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(message)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", TITLE_PX))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(x.1.clone(), y.1.clone())
            .map_err(message)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(WHITE).x_desc(x.0).y_desc(y.0).x_label_formatter(&mark).y_label_formatter(&mark);
        mesh.draw().map_err(message)?;
        for ends in guides {
            chart.draw_series(LineSeries::new(*ends, GREY)).map_err(message)?;
        }
        for (index, of) in series.iter().enumerate() {
            let colour = HSLColor((0.58 + index as f64 / series.len() as f64).fract(), 0.8, 0.4);
            let points = of.points.iter().map(|(x, y)| (x.log10(), y.log10()));
            let drawn = match marks {
                Marks::Dots => chart.draw_series(points.map(|point| Circle::new(point, 3, colour.mix(0.6).filled()))),
                Marks::Line => chart.draw_series(LineSeries::new(points, colour.stroke_width(2))),
            };
            let legend = move |(x, y)| Circle::new((x + 8, y), 4, colour.filled());
            drawn.map_err(message)?.label(of.name.as_str()).legend(legend);
        }
        let position = match marks {
            Marks::Dots => SeriesLabelPosition::UpperLeft,
            Marks::Line => SeriesLabelPosition::UpperRight,
        };
        let mut labels = chart.configure_series_labels();
        labels.position(position).background_style(WHITE.mix(0.85)).border_style(GREY).draw().map_err(message)?;
        root.present().map_err(message)?;
    }
    Ok(svg)
}

fn message(error: impl Display) -> String {
    error.to_string()
}

/// A range of logarithms around positive values; `None` without any.
fn log_range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let logs = values.map(f64::log10);
    let (least, most) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)));
    let margin = 0.1 + 0.05 * (most - least);
    (least <= most).then_some(least - margin..most + margin)
}

/// The number of a mark, with two digits at least.
fn mark(log10: &f64) -> String {
    let digits = (1.0 - log10.floor()).clamp(0.0, 9.0) as usize;
    format!("{:.digits$}", 10f64.powf(*log10))
}

/// The series with the times of [`DRAWN_MS`]. Those beyond `MAX_SERIES` are joined into the last one.
fn drawable(mut series: Vec<Series>) -> Vec<Series> {
    series.iter_mut().for_each(|of| of.points.retain(|(x, y)| DRAWN_MS.contains(x) && DRAWN_MS.contains(y)));
    series.retain(|of| !of.points.is_empty());
    if series.len() > MAX_SERIES {
        let others = series.split_off(MAX_SERIES - 1).into_iter().flat_map(|of| of.points);
        series.push(Series { name: "others".to_owned(), points: others.collect() });
    }
    for of in &mut series {
        let step = of.points.len().div_ceil(MAX_POINTS);
        of.points = of.points.iter().copied().step_by(step).collect();
        of.name = of.name.chars().take(MAX_NAME_CHARS).collect();
    }
    series
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().copied().filter(|time| DRAWN_MS.contains(time)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

/// Ascending times with the share of times that are longer, from 1 down to `least`. The tail has more points than the rest.
fn survivors(sorted: &[f64], least: f64) -> Vec<(f64, f64)> {
    let (count, step) = (sorted.len(), sorted.len().div_ceil(CURVE_POINTS).max(1));
    let drawn = (0..count).filter(|index| index % step == 0 || index + CURVE_POINTS / 4 >= count);
    let share = |index: usize| ((count - index) as f64 / count as f64).max(least);
    drawn.filter_map(|index| Some((*sorted.get(index)?, share(index)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_values_and_are_never_empty() {
        let same = log_range([5.0, 5.0].into_iter()).unwrap();
        assert!(same.start < 5f64.log10() && 5f64.log10() < same.end, "{same:?}");
        assert_eq!(log_range([].into_iter()), None);
        assert_eq!([1.2, 0.0, -1.0, 3.5].map(|of| mark(&of)), ["16", "1.0", "0.10", "3162"]);
    }

    #[test]
    fn survivors_fall_from_one_to_the_last() {
        assert_eq!(survivors(&[1.0, 2.0, 3.0, 4.0], 0.25), [(1.0, 1.0), (2.0, 0.75), (3.0, 0.5), (4.0, 0.25)]);
        let many: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let curve = survivors(&many, 1e-4);
        assert!(curve.len() < 600 && curve.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        assert_eq!(curve.last(), Some(&(10_000.0, 1e-4)));
    }

    #[test]
    fn distributions_are_drawn_whatever_they_are() {
        let extremes = [1e-308, 1e-12, 1e-9, 5.0, 1e12, 1e15, 1e300, f64::MAX, f64::INFINITY, f64::NAN, -1.0];
        for times in [&[5.0][..], &[5.0; 10], &[1e-9, 1e9, f64::NAN, -1.0], &extremes] {
            let points = times.iter().zip(times.iter().rev()).map(|(x, y)| (*x, *y)).chain([(5.0, 5.0)]).collect();
            let series = vec![Series { name: "a".to_owned(), points }];
            let scatter = predicted_over_measured("<a & b>", "ms", series);
            let curves = survival("<a & b>", "share", &[("one", times), ("two", times)]);
            for svg in [scatter, curves, quantiles("<a & b>", times, &[("one", times)])] {
                let svg = svg.unwrap();
                assert!(svg.contains("</svg>") && !svg.contains("<a & b>") && svg.len() < 100_000, "{svg}");
                assert!(!svg.contains("inf") && !svg.contains("NaN"), "{svg}");
            }
        }
        assert!(survival("t", "share", &[("a", &[1e300]), ("b", &[1e-308])]).is_err());
        assert!(survival("t", "share", &[]).is_err() && quantiles("t", &[1.0], &[("a", &[])]).is_err());
    }

    #[test]
    fn many_points_are_thinned_and_many_series_joined() {
        let series = |name: &str, count: usize| Series { name: name.to_owned(), points: vec![(1.0, 2.0); count] };
        let thinned = drawable(vec![series("none", 0), series("a", 10_000)]);
        assert_eq!((thinned.len(), thinned[0].points.len(), thinned[0].name.as_str()), (1, 3334, "a"));
        let many = drawable((0..16).map(|index| series(&index.to_string(), 10)).collect());
        assert_eq!((many.len(), many[11].points.len(), many[11].name.as_str()), (12, 50, "others"));
    }

    /// The colour that an SVG gives to the legend's mark of a name: the circle before it that is not faint.
    fn legend_colour(svg: &str, name: &str) -> String {
        let text = svg.find(&format!("\n{name}\n")).unwrap();
        let row = svg[..text].rfind("<text").unwrap();
        let y: f64 = svg[row..].split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        let is_beside = |circle: &&&str| {
            let cy: f64 = circle.split("cy=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            circle.contains("r=\"4\"") && (cy - y - 5.0).abs() < 7.0
        };
        let circles: Vec<&str> = svg.split("<circle").skip(1).collect();
        let mark = circles.iter().find(is_beside).unwrap();
        mark.split("fill=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    }

    #[test]
    fn each_name_of_a_legend_has_the_colour_of_its_points() {
        // The first series has no point that can be drawn: it must not shift the others.
        let of = |name: &str, time: f64| Series { name: name.to_owned(), points: vec![(time, time)] };
        let svg =
            predicted_over_measured("t", "ms", vec![of("gone", f64::NAN), of("left", 1.0), of("right", 9.0)]).unwrap();
        let dots: Vec<&str> = svg.split("<circle").skip(1).filter(|circle| circle.contains("r=\"3\"")).collect();
        let colour = |dot: &str| dot.split("fill=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert_eq!([legend_colour(&svg, "left"), legend_colour(&svg, "right")], [colour(dots[0]), colour(dots[1])]);
        assert!(colour(dots[0]) != colour(dots[1]) && !svg.contains("gone"));
    }
}
