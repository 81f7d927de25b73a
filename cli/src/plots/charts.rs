//! The charts: predicted over measured times, and the share of times that are longer than a time.

use std::fmt::Display;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::WithKeyPoints;
use plotters::prelude::*;

use super::Drawn;
use super::axis::{log_marks, log_range, mark};

/// Width and height, pixels.
const SIZE: (u32, u32) = (960, 640);
/// Height of a title, pixels.
const TITLE_PX: u32 = 22;
/// Largest number of points that a file holds of a series.
const MAX_POINTS: usize = 4000;
/// Largest number of characters of a name in a legend.
const MAX_NAME_CHARS: usize = 44;
/// Points of a survival curve.
const CURVE_POINTS: usize = 400;

const COLOURS: [RGBColor; 8] = [
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
const GREY: RGBColor = RGBColor(140, 140, 140);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Axis = WithKeyPoints<LogCoord<f64>>;

/// Points under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Measured and predicted times.
    pub points: Vec<(f64, f64)>,
}

/// Predicted over measured times on equal logarithmic axes, with the lines of no error and of ±10 %.
pub fn predicted_over_measured(title: &str, axis_title: &str, series: Vec<Series>) -> Drawn {
    let series = drawable(series);
    let axis =
        log_range(series.iter().flat_map(|of| &of.points).flat_map(|(x, y)| [*x, *y])).ok_or("no point to draw")?;
    drawn(|root| {
        let mut chart = chart(
            root,
            title,
            [&axis, &axis],
            [&format!("measured {axis_title}"), &format!("predicted {axis_title}")],
        )?;
        for (factor, style) in [(1.0, GREY.stroke_width(2)), (0.9, GREY.stroke_width(1)), (1.1, GREY.stroke_width(1))] {
            // The ends are within both axes: points beyond would be moved to the corners.
            let ends = [axis.start.max(axis.start / factor), axis.end.min(axis.end / factor)].map(|x| (x, x * factor));
            chart.draw_series(LineSeries::new(ends, style)).map_err(message)?;
        }
        for (of, colour) in series.iter().zip(COLOURS) {
            chart
                .draw_series(of.points.iter().map(|point| Circle::new(*point, 3, colour.mix(0.6).filled())))
                .map_err(message)?
                .label(of.name.as_str())
                .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)
    })
}

/// Quantiles of predicted times over those of measured ones, from the 1st to the 99th percentile.
pub fn quantiles(title: &str, measured_ms: &[f64], predicted_ms: &[f64]) -> Drawn {
    let (measured, predicted) = (sorted(measured_ms), sorted(predicted_ms));
    let at = |times: &[f64], share: f64| -> Option<f64> {
        times.get((share * times.len().saturating_sub(1) as f64).round() as usize).copied()
    };
    let shares = (0..=196).map(|index| 0.01 + f64::from(index) / 200.0);
    let points = shares.filter_map(|share| Some((at(&measured, share)?, at(&predicted, share)?))).collect();
    predicted_over_measured(title, "quantiles, ms", vec![Series { name: "1st to 99th percentile".to_owned(), points }])
}

/// Share of times that are longer, measured and predicted, on logarithmic axes.
pub fn survival(title: &str, measured_ms: &[f64], predicted_ms: &[f64]) -> Drawn {
    let (measured, predicted) = (sorted(measured_ms), sorted(predicted_ms));
    let x = log_range(measured.iter().chain(&predicted).copied()).ok_or("no time to draw")?;
    let least = 1.0 / measured.len().max(predicted.len()).max(2) as f64;
    drawn(|root| {
        let titles = ["time between tokens t, ms", "share of steps that take longer than t"];
        // The range ends above 1, so that 1 has a mark.
        let mut chart = chart(root, title, [&x, &(least..1.05)], titles)?;
        for ((name, times), colour) in [("measured", &measured), ("predicted", &predicted)].into_iter().zip(COLOURS) {
            chart
                .draw_series(LineSeries::new(survivors(times, least), colour.stroke_width(2)))
                .map_err(message)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

fn message(error: impl Display) -> String {
    error.to_string()
}

/// An SVG with a white ground.
fn drawn(draw: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(message)?;
        draw(&root)?;
        root.present().map_err(message)?;
    }
    Ok(svg)
}

/// Logarithmic axes under a title, each with its range and title.
fn chart<'a, 'b>(
    root: &'a Area<'b>,
    title: &str,
    [x, y]: [&Range<f64>; 2],
    [x_title, y_title]: [&str; 2],
) -> Result<Chart<'a, 'b>, String> {
    let axis = |range: &Range<f64>| range.clone().log_scale().with_key_points(log_marks(range));
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", TITLE_PX))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(axis(x), axis(y))
        .map_err(message)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).x_desc(x_title).y_desc(y_title).x_label_formatter(&mark).y_label_formatter(&mark);
    mesh.draw().map_err(message)?;
    Ok(chart)
}

/// Draws the box that names the series.
fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Result<(), String> {
    let mut labels = chart.configure_series_labels();
    labels.position(position).background_style(WHITE.mix(0.85)).border_style(GREY).draw().map_err(message)
}

/// The series with positive times, at most as many as there are colours; the others are joined into the last one.
fn drawable(series: Vec<Series>) -> Vec<Series> {
    let mut kept: Vec<Series> = Vec::new();
    for Series { name, mut points } in series {
        points.retain(|(x, y)| *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite());
        let is_full = kept.len() == COLOURS.len();
        match kept.last_mut() {
            _ if points.is_empty() => {}
            Some(last) if is_full => {
                last.points.extend(points);
                last.name = "others".to_owned();
            }
            _ => kept.push(Series { name: name.chars().take(MAX_NAME_CHARS).collect(), points }),
        }
    }
    for of in &mut kept {
        let step = of.points.len().div_ceil(MAX_POINTS).max(1);
        of.points = of.points.iter().copied().step_by(step).collect();
    }
    kept
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().copied().filter(|time| time.is_finite() && *time > 0.0).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

/// Ascending times with the share of times that are longer, from 1 down to `least`. The tail has more points than the rest.
fn survivors(sorted: &[f64], least: f64) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let step = count.div_ceil(CURVE_POINTS).max(1);
    let in_tail = |index: usize| index + CURVE_POINTS / 4 >= count;
    let share = |index: usize| ((count - index) as f64 / count as f64).max(least);
    let drawn = sorted.iter().enumerate().filter(|(index, _)| index % step == 0 || in_tail(*index));
    drawn.map(|(index, time)| (*time, share(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for times in [&[5.0][..], &[5.0; 10], &[1e-9, 1e9, f64::NAN, -1.0]] {
            for svg in [survival("<a & b>", times, times), quantiles("<a & b>", times, times)] {
                let svg = svg.unwrap();
                assert!(svg.contains("</svg>") && !svg.contains("<a & b>"), "{svg}");
            }
        }
        assert!(survival("t", &[], &[]).is_err() && quantiles("t", &[1.0], &[]).is_err());
    }

    #[test]
    fn many_points_are_thinned_and_many_series_joined() {
        let series = |name: &str, count: usize| Series { name: name.to_owned(), points: vec![(1.0, 2.0); count] };
        let thinned = drawable(vec![series("none", 0), series("a", 10_000)]);
        assert_eq!((thinned.len(), thinned[0].points.len(), thinned[0].name.as_str()), (1, 3334, "a"));
        let many = drawable((0..12).map(|index| series(&index.to_string(), 10)).collect());
        assert_eq!((many.len(), many[7].points.len(), many[7].name.as_str()), (8, 50, "others"));
    }

    /// The colour that an SVG gives to the legend's mark beside a name: the circle before it that is not faint.
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
