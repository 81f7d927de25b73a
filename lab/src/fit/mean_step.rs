//! Lifts a fit of the median step to the mean step, each kind of batch by itself. The loss of a fit is robust, so a tail of slow steps does not
//! move it, while a request waits for every step alike.

use super::batch_kind::BatchKind;
use super::fit_rows::{FitResult, Prior};
use super::fit_steps::StepRun;
use super::residuals::MAX_TAIL;
use super::step_scatter::fit_level;
use super::window_errors::points;
use crate::stats::ErrorSummary;
use ridgepoint::correction::Level;
use ridgepoint::{Correction, Result};

/// Factor on the times of each kind of batch that are fitted, so that a fit of their median is one of the mean; 1 without a tail. `None` if no
/// kind has one.
///
/// # Source
/// Duan, "Smearing estimate" (1983): the mean of a prediction made on another scale is the prediction times the mean residual of the rows that
/// were fitted, here weighted by time.
fn lifts(runs: &[StepRun<'_>], correction: &Correction) -> Option<[f64; BatchKind::COUNT]> {
    let rows: Vec<_> = runs.iter().flat_map(|run| run.fitted_rows(correction)).collect();
    let mut sums = [(0.0, 0.0); BatchKind::COUNT];
    for (row, kind, ratio) in rows {
        let Some((measured_us, predicted_us)) = sums.get_mut(kind as usize) else { continue };
        *measured_us += row.span_us;
        *predicted_us += row.span_us / ratio;
    }
    let lifts = sums.map(|(measured_us, predicted_us)| {
        let tail = measured_us / predicted_us - 1.0;
        if tail > MAX_TAIL { 1.0 + tail } else { 1.0 }
    });
    lifts.iter().any(|lift| *lift > 1.0).then_some(lifts)
}

/// Fits the mean step in place of the median one where slow steps set them apart and windows that were held out are then met better; with a
/// remark.
pub(super) fn lift(
    origin: &str,
    runs: &mut [StepRun<'_>],
    prior: &Prior,
    level: &Level,
    fitted: &mut FitResult,
) -> Result<Option<String>> {
    let Some(lifts) = lifts(runs, &fitted.correction) else { return Ok(None) };
    let error_pct = |runs: &[StepRun<'_>], by: &Correction| {
        let windows = runs.iter().flat_map(|run| points(run, &run.held_out, by));
        ErrorSummary::of(windows).map_or(f64::INFINITY, |of| of.mape_pct)
    };
    runs.iter_mut().for_each(|run| run.lifts = lifts);
    let lifted = fit_level(origin, runs, prior, level)?;
    let (with, without) = (error_pct(runs, &lifted.correction), error_pct(runs, &fitted.correction));
    if with >= without {
        runs.iter_mut().for_each(|run| run.lifts = [1.0; BatchKind::COUNT]);
        return Ok(None);
    }
    *fitted = lifted;
    let [decodes, prompts, several] = lifts;
    Ok(Some(format!(
        "slow steps lift the mean above the median: times are fitted as {decodes:.3} times as long for decodes alone, {prompts:.3} for steps \
         with prompts and {several:.3} for several steps, with which the mean error on held-out windows is {with:.1} %, and {without:.1} % without"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::fit_steps::fit_steps;
    use super::super::fit_steps::tests::case;
    use super::super::step_scatter::StepRunReport;
    use super::*;

    /// The bias of held-out windows without and with the lift, percent; the latter only where there is one.
    fn biases(slow: u64) -> (f64, Option<f64>) {
        let mut start_us = 0;
        let steps: Vec<(u64, u64, u32)> = (0..1000)
            .map(|index| {
                let decodes = 10 + (index * 7 % 30) as u32;
                let began_us = start_us;
                let of_tail = if index % 10 == 3 { slow } else { 1 };
                start_us += of_tail * (8_000 + 100 * u64::from(decodes));
                (200 + index, began_us, decodes)
            })
            .collect();
        let case = case(&steps);
        let end = case.rows.len();
        let mut run = StepRun::new(&case, 0..end * 6 / 10, end * 6 / 10..end, &Prior::of_any_model());
        let fit = |run: &StepRun<'_>| {
            let fitted = fit_steps("made up", &[run], &Prior::of_any_model()).unwrap().correction;
            (StepRunReport::of(run, &fitted).held_out.unwrap().bias_pct, fitted)
        };
        let (without, fitted) = fit(&run);
        let found = lifts(std::slice::from_ref(&run), &fitted);
        let with = found.map(|lifts| {
            run.lifts = lifts;
            fit(&run).0
        });
        (without, with)
    }

    #[test]
    fn a_tail_of_slow_steps_lifts_the_mean_and_nothing_else_does() {
        // A tenth of the steps takes three times as long: the mean is 1.2 times the median.
        let (without, with) = biases(3);
        assert!(without < -10.0, "{without}");
        assert!(with.unwrap().abs() < 3.0, "{with:?}");
        assert_eq!(biases(1).1, None);
    }
}
