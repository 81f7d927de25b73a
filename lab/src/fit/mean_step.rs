//! Lifts a fit of the median step to the mean step. The loss of a fit is robust, so a tail of slow steps does not move it, while a request waits
//! for every step alike.

#![expect(clippy::indexing_slicing, reason = "a correction has a coefficient for every term")]

use super::fit_rows::FitResult;
use super::fit_steps::StepRun;
use super::residuals::{MAX_TAIL, tail};
use super::window_errors::points;
use crate::stats::ErrorSummary;
use ridgepoint::Correction;
use ridgepoint::correction::Term;

/// The fit with every price and factor raised by the tail of the fitted rows, if there is such a tail and windows that were held out are then met
/// better; with a remark.
///
/// # Source
/// Duan, "Smearing estimate" (1983): the mean of a prediction made on another scale is the prediction times the mean residual of the rows that
/// were fitted, here weighted by time.
pub(super) fn lifted(runs: &[StepRun<'_>], fitted: &FitResult) -> Option<(FitResult, String)> {
    let factor = mean_over_median(runs, &fitted.correction);
    let lifted = scaled(fitted, factor).filter(|_| factor > 1.0 + MAX_TAIL)?;
    let error_pct = |by: &Correction| {
        let windows = runs.iter().flat_map(|run| points(run, &run.held_out, by));
        ErrorSummary::of(windows).map(|of| of.mape_pct)
    };
    let (with, without) = (error_pct(&lifted.correction)?, error_pct(&fitted.correction)?);
    let remark = format!(
        "slow steps lift the mean above what a fit of the median predicts: the coefficients are raised to {factor:.3} times those of that fit, \
         with which the mean error on held-out windows is {with:.1} %, and {without:.1} % without"
    );
    (with < without).then_some((lifted, remark))
}

/// The sum of the measured times of the fitted rows over that of the predicted ones.
pub(super) fn mean_over_median(runs: &[StepRun<'_>], correction: &Correction) -> f64 {
    1.0 + tail(&runs.iter().flat_map(|run| run.fitted_rows(correction)).collect::<Vec<_>>())
}

/// The fit with every time that it predicts multiplied; `None` if a coefficient would leave its bounds.
pub(super) fn scaled(fitted: &FitResult, factor: f64) -> Option<FitResult> {
    let FitResult { correction, report } = fitted;
    let (mut scaled, mut report) = (correction.clone(), report.clone());
    report.raise(factor);
    for term in Term::ALL {
        let value = &mut scaled.coefficients[term.index()];
        *value *= factor;
        let (least, most) = term.bounds();
        if !(least..=most).contains(value) {
            return None;
        }
    }
    // What is not known grows too, up to the most that a correction may have.
    let growths = Term::ALL.map(|term| {
        let sd = correction.covariance[term.index()][term.index()].sqrt();
        factor.min((term.max_sd() / sd).max(1.0))
    });
    for (row, growth) in scaled.covariance.iter_mut().zip(growths) {
        row.iter_mut().zip(growths).for_each(|(value, other)| *value *= growth * other);
    }
    if correction.source.steps_hold_scheduling {
        let prices = correction.host.queue_prices_us();
        scaled.host = correction.host.with_queue_prices(prices.map(|price| price * factor));
    }
    Some(FitResult { correction: scaled, report })
}

#[cfg(test)]
mod tests {
    use super::super::fit_rows::Prior;
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
        let run = StepRun::new(&case, 0..end * 6 / 10, end * 6 / 10..end, &Prior::of_any_model());
        let fitted = fit_steps("made up", &[&run], &Prior::of_any_model()).unwrap();
        let bias_pct = |by: &Correction| StepRunReport::of(&run, by).held_out.unwrap().bias_pct;
        let lift = lifted(std::slice::from_ref(&run), &fitted).map(|(FitResult { correction: lifted, report }, _)| {
            let step = report.parameters.iter().find(|of| of.parameter.name == Term::Steps.name()).unwrap();
            assert!((step.value - lifted.coefficients[Term::Steps.index()]).abs() < 1e-6, "{step:?}");
            let text = lifted.to_toml_string().unwrap();
            assert_eq!(Correction::from_toml_str("lifted", &text).unwrap().level, lifted.level);
            bias_pct(&lifted)
        });
        (bias_pct(&fitted.correction), lift)
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
