//! A bar per run and way to predict. Uses `canvas`, `scatter`'s legend, plotters.

use plotters::prelude::*;

use super::Drawn;
use super::canvas::{SIZE, colour, drawn, said, short, titled};
use super::scatter::legend;

/// Errors of a run, percent, one per way to predict; `None` where it lacks one.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Name of the run.
    pub name: String,
    /// Values from 0.
    pub values: Vec<Option<f64>>,
}

/// Where bars are cut, unless a prediction (the first way) is further off.
const LONGEST_PCT: f64 = 100.0;

/// Lying bars, a group per run from the top down.
pub fn bars(title: &str, unit: &str, ways: &[&str], groups: &[Bars]) -> Drawn {
    const ROW_PX: u32 = 16;
    const AROUND_PX: u32 = 150;
    const CHARACTER_PX: usize = 7;
    let values = || groups.iter().flat_map(|of| &of.values).flatten().copied().filter(|value| value.is_finite());
    let most = values().fold(0.0, f64::max);
    // One baseline that is far off must not press all others flat.
    let of_first = groups.iter().filter_map(|of| of.values.first().copied().flatten()).fold(0.0, f64::max);
    let end = (1.08 * most).clamp(1.0, (1.08 * of_first).max(LONGEST_PCT));
    let unit = if most > end { format!("{unit}; bars that reach the edge are longer") } else { unit.to_owned() };
    if values().next().is_none() || ways.is_empty() {
        return Err("no error to draw".to_owned());
    }
    let names: Vec<String> = groups.iter().map(|of| short(&of.name)).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let rows = u32::try_from(groups.len() * (ways.len() + 1)).unwrap_or(u32::MAX / 64).min(4096);
    let size = (SIZE.0, (AROUND_PX + ROW_PX * rows).max(SIZE.1 / 2));
    drawn(size, |root| {
        let top = groups.len() as f64;
        let mut chart = titled(root, title)
            .y_label_area_size(u32::try_from(widest * CHARACTER_PX + 12).unwrap_or(320))
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(said)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE)
            .y_labels(0)
            .x_desc(unit)
            .draw()
            .map_err(said)?;
        let thick = 0.9 / ways.len() as f64;
        for (way, name) in ways.iter().enumerate() {
            let bar = |(index, of): (usize, &Bars)| {
                let value = of.values.get(way).copied().flatten().filter(|value| value.is_finite())?;
                let upper = top - index as f64 - 0.05 - thick * way as f64;
                Some(Rectangle::new([(0.0, upper - thick), (value.min(end), upper)], colour(way).filled()))
            };
            chart
                .draw_series(groups.iter().enumerate().filter_map(bar))
                .map_err(said)?
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour(way).filled()));
        }
        let style = TextStyle::from(("sans-serif", 12).into_font()).pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Center,
        ));
        for (index, name) in names.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(0.0, top - index as f64 - 0.5));
            root.draw(&Text::new(name.clone(), (x - 6, y), style.clone())).map_err(said)?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_name_and_as_many_bars_as_errors() {
        let group = |name: &str, values: &[Option<f64>]| Bars { name: name.to_owned(), values: values.to_vec() };
        let groups = [group("chat <1>", &[Some(5.0), None]), group("code", &[Some(0.0), Some(30.0)])];
        let svg = bars("errors", "%", &["prediction", "black box"], &groups).unwrap();
        assert!(svg.contains("code") && svg.contains("chat &lt;1&gt;"), "{svg}");
        // Three bars, two marks of the legend, its box and border, and the background.
        let filled = [colour(0), colour(1)].map(|of| format!("fill=\"#{:02X}{:02X}{:02X}\"", of.0, of.1, of.2));
        assert_eq!(filled.map(|fill| svg.matches(fill.as_str()).count()), [3, 2], "{svg}");
        let far_off =
            bars("errors", "%", &["prediction", "black box"], &[group("a", &[Some(5.0), Some(1000.0)])]).unwrap();
        assert!(far_off.contains("are longer") && !svg.contains("are longer"));
        assert!(bars("errors", "%", &["prediction"], &[]).is_err());
        assert!(bars("errors", "%", &["prediction"], &[group("a", &[Some(f64::NAN)])]).is_err());
    }
}
