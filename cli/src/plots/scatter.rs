//! Predicted against measured times, with the lines of no error and of ±10 %.

use plotters::prelude::*;

use super::Drawn;
use super::canvas::{GREY, SIZE, Series, colour, dot, drawable, drawn, log_marks, log_range, mark, said, titled};

/// Predicted over measured on equal logarithmic axes.
pub fn predicted_over_measured(title: &str, unit: &str, series: Vec<Series>) -> Drawn {
    let mut series = drawable(series);
    series.iter_mut().for_each(|of| of.points.retain(|(x, y)| *x > 0.0 && *y > 0.0));
    let both = series.iter().flat_map(|of| &of.points).flat_map(|(x, y)| [*x, *y]);
    let axis = log_range(both).ok_or("no point to draw")?;
    drawn(SIZE, |root| {
        let mut chart = titled(root, title)
            .build_cartesian_2d(
                axis.clone().log_scale().with_key_points(log_marks(&axis)),
                axis.clone().log_scale().with_key_points(log_marks(&axis)),
            )
            .map_err(said)?;
        let measured = format!("measured, {unit}");
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(measured)
            .y_desc(format!("predicted, {unit}"))
            .x_label_formatter(&mark)
            .y_label_formatter(&mark)
            .draw()
            .map_err(said)?;
        for (factor, style) in [(1.0, GREY.stroke_width(2)), (0.9, GREY.stroke_width(1)), (1.1, GREY.stroke_width(1))] {
            // Within the axes on both sides: what lies beyond would be bent to their corners.
            let ends = [axis.start.max(axis.start / factor), axis.end.min(axis.end / factor)].map(|x| (x, x * factor));
            chart.draw_series(LineSeries::new(ends, style)).map_err(said)?;
        }
        dots(&mut chart, &series)?;
        legend(&mut chart, SeriesLabelPosition::UpperLeft)
    })
}

/// A cloud of dots per series, with its name for the legend.
fn dots<'a, DB, CT>(chart: &mut ChartContext<'a, DB, CT>, series: &[Series]) -> Result<(), String>
where
    DB: DrawingBackend + 'a,
    CT: CoordTranslate<From = (f64, f64)>,
{
    for (index, of) in series.iter().enumerate() {
        chart
            .draw_series(of.points.iter().map(|point| dot(*point, index)))
            .map_err(said)?
            .label(of.name.as_str())
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour(index).filled()));
    }
    Ok(())
}

/// The box that names the series.
pub(super) fn legend<'a, 'b, DB, CT>(
    chart: &mut ChartContext<'a, DB, CT>,
    position: SeriesLabelPosition,
) -> Result<(), String>
where
    DB: DrawingBackend + 'a,
    CT: CoordTranslate,
    'a: 'b,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(GREY)
        .draw()
        .map_err(said)
}
