//! The plots of a judged capture: its requests, and how the gaps between their tokens are distributed.

use ridgepoint_lab::evaluate::capture::{CaptureReport, Distributions, RequestTimes};

use super::charts::PlotResult;
use super::charts::{Series, predicted_over_measured, quantiles, survival};
use super::scatter_file;

/// Quantiles that stand for the draws of the knobs.
const KNOB_QUANTILES: usize = 2000;
/// Names of the sources in legends.
const SOURCES: [&str; 3] = ["captured", "predicted", "best knobs of llm-d-inference-sim"];

/// The names of files with their plots, in a stable order.
pub fn figures(report: &CaptureReport, kind: &str) -> Vec<(String, PlotResult)> {
    type Time = fn(&RequestTimes) -> Option<f64>;
    let times: [(&str, Time); 3] = [("e2e", |of| of.e2e_ms), ("ttft", |of| of.ttft_ms), ("tpot", |of| of.tpot_ms)];
    let series = times.into_iter().map(|(name, time)| {
        let points = report.judged.iter().filter_map(|of| Some((time(&of.measured)?, time(&of.predicted)?)));
        Series { name: name.to_owned(), points: points.collect() }
    });
    let title = format!("{}: requests", report.experiment);
    let mut figures = vec![(scatter_file(kind), predicted_over_measured(&title, "ms", series.collect()))];
    figures.extend(report.distributions.iter().flat_map(|of| gaps(of, &report.experiment, kind)));
    figures
}

fn gaps(of: &Distributions, run: &str, kind: &str) -> [(String, PlotResult); 3] {
    let knob = of.knob.quantiles_ms(KNOB_QUANTILES);
    let [captured, predicted, of_knob] = SOURCES;
    let gaps = [(captured, &of.captured.gaps_ms[..]), (predicted, &of.predicted.gaps_ms), (of_knob, &knob)];
    let pooled = [
        ("gaps by token", &of.captured.gaps_ms[..]),
        ("means of requests", &of.captured.request_means_ms),
        ("predicted means of requests", &of.predicted.request_means_ms),
    ];
    let models = [(predicted, &of.predicted.gaps_ms[..]), (of_knob, &knob)];
    let share = "share of tokens that take longer than t";
    [
        (format!("{kind}-itl-survival.svg"), survival(&format!("{run}: gaps between tokens"), share, &gaps)),
        (
            format!("{kind}-itl-qq.svg"),
            quantiles(&format!("{run}: gaps between tokens"), &of.captured.gaps_ms, &models),
        ),
        (
            format!("{kind}-itl-by-request.svg"),
            survival(&format!("{run}: gaps, and their means by request"), "share that is longer than t", &pooled),
        ),
    ]
}
