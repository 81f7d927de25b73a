//! Distributions: survival curves of measured and predicted times, and their quantiles against each other. Uses `canvas`,
//! `scatter`'s legend, plotters.

use plotters::prelude::*;

use super::Drawn;
use super::canvas::{GREY, SIZE, colour, dot, drawn, log_marks, log_range, mark, range, said, titled};
use super::scatter::legend;

/// Steps of a curve.
const STEPS: usize = 400;

/// Share of times that are longer, for both; logarithmic upwards.
pub fn survival(title: &str, measured_ms: &[f64], predicted_ms: &[f64]) -> Drawn {
    let (measured, predicted) = (sorted(measured_ms), sorted(predicted_ms));
    let x = log_range(measured.iter().chain(&predicted).copied()).ok_or("no time to draw")?;
    let least = 1.0 / measured.len().max(predicted.len()).max(2) as f64;
    drawn(SIZE, |root| {
        let mut chart = titled(root, title)
            .build_cartesian_2d(x.clone().log_scale().with_key_points(log_marks(&x)), (least..1.0).log_scale())
            .map_err(said)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("time between tokens t, ms")
            .y_desc("share of steps that take longer than t")
            .x_label_formatter(&mark)
            .y_label_formatter(&mark)
            .draw()
            .map_err(said)?;
        for (index, (name, times)) in [("measured", &measured), ("predicted", &predicted)].into_iter().enumerate() {
            let curve = survivors(times, least);
            chart
                .draw_series(LineSeries::new(curve, colour(index).stroke_width(2)))
                .map_err(said)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour(index).stroke_width(2)));
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// Quantiles of predicted times over those of measured ones, from the 1st to the 99th percentile.
pub fn quantiles(title: &str, measured_ms: &[f64], predicted_ms: &[f64]) -> Drawn {
    let (measured, predicted) = (sorted(measured_ms), sorted(predicted_ms));
    let at = |times: &[f64], share: f64| -> Option<f64> {
        times.get((share * times.len().saturating_sub(1) as f64).round() as usize).copied()
    };
    let shares = (0..=196).map(|index| 0.01 + f64::from(index) / 200.0);
    let points: Vec<(f64, f64)> =
        shares.filter_map(|share| Some((at(&measured, share)?, at(&predicted, share)?))).collect();
    let axis = range(points.iter().flat_map(|(x, y)| [*x, *y])).ok_or("no time to draw")?;
    drawn(SIZE, |root| {
        let mut chart = titled(root, title).build_cartesian_2d(axis.clone(), axis.clone()).map_err(said)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("quantiles of measured times, ms")
            .y_desc("quantiles of predicted times, ms")
            .draw()
            .map_err(said)?;
        let ends = [(axis.start, axis.start), (axis.end, axis.end)];
        chart.draw_series(LineSeries::new(ends, GREY.stroke_width(2))).map_err(said)?;
        chart.draw_series(points.iter().map(|point| dot(*point, 0))).map_err(said)?;
        Ok(())
    })
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().copied().filter(|time| time.is_finite() && *time > 0.0).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

/// Times with the share of others that are longer, from 1 down to `least`.
fn survivors(sorted: &[f64], least: f64) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let step = count.div_ceil(STEPS).max(1);
    let share = |index: usize| ((count - index) as f64 / count as f64).max(least);
    let mut curve: Vec<(f64, f64)> =
        sorted.iter().enumerate().step_by(step).map(|(index, time)| (*time, share(index))).collect();
    // The tail is what such a plot is for.
    let tail = sorted.iter().enumerate().skip(count.saturating_sub(STEPS / 4));
    curve.extend(tail.map(|(index, time)| (*time, share(index))));
    curve.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    curve.dedup();
    curve
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
}
