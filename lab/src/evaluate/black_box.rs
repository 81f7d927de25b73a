//! The black-box baseline: a linear model of a step's time, fitted to what was measured of training runs. It knows no physics.
//!
//! `step = β0 + β1 · new prompt tokens + β2 · decodes`. A trace of steps has these features. For a serving run they follow from
//! Little's law: at λ requests per second, a step of s seconds processes the new prompt tokens of λ·s requests, and λ·(E2E − TTFT)
//! requests are decoding. The step time is (E2E − TTFT) / (output tokens − 1).

use super::case::Case;
use super::measured::WHOLE_RUN;
use super::metric::Metric;
use crate::stats::{median, non_negative_least_squares};
use ridgepoint::latency::BlackBox;
use ridgepoint_replay::RequestRecord;

/// Steps until the first token with one step in flight: the rest of a step (half of one on average), the step that is
/// already scheduled, and the request's own.
const STEPS_TO_FIRST_TOKEN: f64 = 2.5;

/// Means over steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSample {
    /// Time of a step, µs.
    pub step_us: f64,
    /// New prompt tokens of a step.
    pub prompt_tokens: f64,
    /// Requests that decode in a step.
    pub decodes: f64,
}

/// Fits a step's time by least squares of relative errors. No coefficient is below 0. `None` without samples.
pub fn fit_steps(samples: &[StepSample]) -> Option<BlackBox> {
    // With fewer samples than coefficients, decodes come before prompt tokens.
    let row = |of: &StepSample| [1.0, of.decodes, of.prompt_tokens].map(|feature| feature / of.step_us);
    let rows: Vec<[f64; 3]> = samples.iter().map(row).collect();
    let ones = vec![1.0; rows.len()];
    let [beta0_us, beta2_us, beta1_us] = non_negative_least_squares(&rows, &ones, &ones)?;
    Some(BlackBox { beta0_us, beta1_us, beta2_us, ..BlackBox::default() })
}

/// Means over the requests of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageMeans {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Prompt tokens of a request that were not in the prefix cache.
    pub new_prompt_tokens: f64,
    /// Output tokens of a request.
    pub output_tokens: f64,
    /// Measured time to first token, ms.
    pub ttft_ms: f64,
    /// Measured time from the first token to the last, ms.
    pub decoding_ms: f64,
}

impl StageMeans {
    /// The means of a stage: latencies as measured, tokens and arrivals from a replay. `None` if the stage was not measured.
    pub fn of(case: &Case, records: &[RequestRecord], stage: u32) -> Option<Self> {
        let of_stage: Vec<&RequestRecord> = records.iter().filter(|record| record.stage == stage).collect();
        let mean = |value: fn(&RequestRecord) -> u32| {
            of_stage.iter().map(|record| f64::from(value(record))).sum::<f64>() / of_stage.len() as f64
        };
        let output_tokens = mean(|record| record.num_output_tokens);
        let measured = |metric| {
            let own = i32::try_from(stage).ok().and_then(|stage| case.measured.get(stage, metric));
            own.or_else(|| case.measured.get(WHOLE_RUN, metric).filter(|_| case.concurrency.len() == 1))
        };
        let ttft_ms = measured(Metric::TTFT_MEAN)?;
        let decoding_ms = match measured(Metric::E2E_MEAN) {
            Some(e2e_ms) => e2e_ms - ttft_ms,
            None => measured(Metric::TPOT_MEAN)? * (output_tokens - 1.0),
        };
        let requests_per_s = match case.concurrency.get(stage as usize) {
            Some(Some(concurrency)) => f64::from(*concurrency) / ((ttft_ms + decoding_ms) / 1e3),
            _ => arrivals_per_s(&of_stage)?,
        };
        let new_prompt_tokens = mean(|record| record.num_prompt_tokens.saturating_sub(record.num_cached_tokens));
        Some(StageMeans { requests_per_s, new_prompt_tokens, output_tokens, ttft_ms, decoding_ms })
    }

    /// The mean step by Little's law; `None` if outputs have a single token or a mean is not a positive number.
    ///
    /// ```
    /// use ridgepoint_lab::evaluate::black_box::StageMeans;
    /// let means = StageMeans {
    ///     requests_per_s: 5.0, new_prompt_tokens: 8.0, output_tokens: 201.0, ttft_ms: 30.0, decoding_ms: 2000.0,
    /// };
    /// let step = means.step().expect("positive means");
    /// // Steps of 10 ms; 5 requests a second decode for 2 s each; in 10 ms a twentieth of a request arrives.
    /// assert_eq!((step.step_us, step.decodes, step.prompt_tokens), (10_000.0, 10.0, 0.4));
    /// ```
    pub fn step(&self) -> Option<StepSample> {
        let positive = [self.requests_per_s, self.output_tokens - 1.0, self.ttft_ms, self.decoding_ms];
        if !positive.iter().all(|value| value.is_finite() && *value > 0.0) || !self.new_prompt_tokens.is_finite() {
            return None;
        }
        let step_us = self.decoding_ms * 1e3 / (self.output_tokens - 1.0);
        Some(StepSample {
            step_us,
            prompt_tokens: self.requests_per_s * self.new_prompt_tokens * step_us / 1e6,
            decodes: self.requests_per_s * self.decoding_ms / 1e3,
        })
    }
}

/// Requests per second: gaps between arrivals over the time that they span. `None` for fewer than two requests.
fn arrivals_per_s(records: &[&RequestRecord]) -> Option<f64> {
    let arrivals = || records.iter().map(|record| record.arrival_ns);
    let span_ns = arrivals().max()?.checked_sub(arrivals().min()?).filter(|span| *span > 0)?;
    Some((records.len() - 1) as f64 / (span_ns as f64 / 1e9))
}

/// Fits steps and the delay before the engine to stages of serving runs; stages without a mean step are left out. `None`
/// without stages.
pub fn fit_stages(stages: &[StageMeans]) -> Option<BlackBox> {
    let seen: Vec<(&StageMeans, StepSample)> = stages.iter().filter_map(|of| Some((of, of.step()?))).collect();
    let line = fit_steps(&seen.iter().map(|(_, step)| *step).collect::<Vec<_>>())?;
    let before_the_engine = |(of, step): &(&StageMeans, StepSample)| {
        of.ttft_ms * 1e3 - STEPS_TO_FIRST_TOKEN * step.step_us - line.beta1_us * of.new_prompt_tokens
    };
    let alpha0_us = median(seen.iter().map(before_the_engine).collect())?.max(0.0);
    Some(BlackBox { alpha0_us, ..line })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage whose mean step has so many decodes and prompt tokens and takes so long.
    fn stage(decodes: f64, prompt_tokens: f64, step_us: f64) -> StageMeans {
        let (new_prompt_tokens, output_tokens) = (100.0, 101.0);
        let requests_per_s = decodes * 1e6 / (step_us * (output_tokens - 1.0));
        let new_prompt_tokens =
            if decodes > 0.0 { prompt_tokens * 1e6 / (requests_per_s * step_us) } else { new_prompt_tokens };
        let (ttft_ms, decoding_ms) = ((3.0 * step_us + 1000.0) / 1e3, step_us * (output_tokens - 1.0) / 1e3);
        StageMeans { requests_per_s, new_prompt_tokens, output_tokens, ttft_ms, decoding_ms }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn a_linear_model_is_recovered() {
        // step = 5000 + 10 · prompt tokens + 20 · decodes
        let of = |(decodes, tokens): (f64, f64)| stage(decodes, tokens, 5000.0 + 10.0 * tokens + 20.0 * decodes);
        let fitted = fit_stages(&[(10.0, 10.0), (100.0, 100.0), (40.0, 90.0), (80.0, 0.0)].map(of)).expect("stages");
        close(fitted.beta0_us, 5000.0);
        close(fitted.beta1_us, 10.0);
        close(fitted.beta2_us, 20.0);
        // TTFT = 3 steps + 1000; less 2.5 steps is 3650, 5000, 4350 and 4300. New prompt tokens of a request are 100 times those of a
        // step over its decodes: 100, 100, 225 and 0, 10 µs each. That leaves 2650, 4000, 2100 and 4300.
        close(fitted.alpha0_us, 3325.0);
    }

    #[test]
    fn a_single_stage_is_explained_by_a_constant() {
        let fitted = fit_stages(&[stage(1.0, 1.0, 1000.0)]).expect("a stage");
        close(fitted.beta0_us, 1000.0);
        assert!(fitted.beta1_us <= 0.0 && fitted.beta2_us <= 0.0, "{fitted:?}");
        assert_eq!((fit_stages(&[]), fit_steps(&[])), (None, None));
    }

    #[test]
    fn means_without_a_step_are_left_out() {
        let good = stage(10.0, 10.0, 1000.0);
        assert_eq!(StageMeans { output_tokens: 1.0, ..good }.step(), None);
        assert_eq!(StageMeans { requests_per_s: f64::NAN, ..good }.step(), None);
        assert_eq!(fit_stages(&[StageMeans { output_tokens: 1.0, ..good }]), None);
    }
}
