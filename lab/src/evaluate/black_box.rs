//! The black-box baseline: straight lines fitted on what clients saw of other experiments, never of the one they predict.
//! Uses `latency` and nalgebra.
//!
//! A simulator that knows nothing of a model starts from `step = β0 + β1 · new prompt tokens + β2 · decodes`. Its features
//! at a stage follow from Little's law: at λ requests per second, a step of s seconds takes up λ·s requests' new prompt
//! tokens, and λ · (E2E − TTFT) requests are decoding. Its target is the step period (E2E − TTFT) / (output tokens − 1).

use crate::stats::{median, non_negative_least_squares};
use ridgepoint::latency::BlackBox;

/// Steps until the first token with one step in flight: the rest of a step (half of one on average), the step that is
/// already scheduled, and the request's own.
const STEPS_TO_FIRST_TOKEN: f64 = 2.5;

/// What clients saw of one stage of one experiment, as a step sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The experiment that it is from.
    pub experiment: String,
    /// The model, by its short name.
    pub model: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// The GPU.
    pub hardware: String,
    /// Requests that decode in a step.
    pub decodes: f64,
    /// New prompt tokens in a step.
    pub prompt_tokens_per_step: f64,
    /// New prompt tokens of a request: those not found in the prefix cache.
    pub prompt_tokens_per_request: f64,
    /// Step period, µs.
    pub step_us: f64,
    /// Mean time to first token, µs.
    pub ttft_us: f64,
}

/// What an observation is made from: means over the requests of a stage.
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

impl Observation {
    /// By Little's law; `None` where outputs have a single token or the means are no positive numbers.
    ///
    /// ```
    /// use ridgepoint_lab::evaluate::black_box::{Observation, StageMeans};
    /// let means = StageMeans {
    ///     requests_per_s: 5.0, new_prompt_tokens: 8.0, output_tokens: 201.0, ttft_ms: 30.0, decoding_ms: 2000.0,
    /// };
    /// let seen = Observation::new("run", "llama-2-7b", 1, "h100_sxm", means).expect("positive means");
    /// // Steps of 10 ms; 5 requests a second decode for 2 s each; in 10 ms a twentieth of a request arrives.
    /// assert_eq!((seen.step_us, seen.decodes, seen.prompt_tokens_per_step), (10_000.0, 10.0, 0.4));
    /// ```
    pub fn new(
        experiment: &str,
        model: &str,
        tensor_parallel_size: u32,
        hardware: &str,
        means: StageMeans,
    ) -> Option<Self> {
        let StageMeans { requests_per_s, new_prompt_tokens, output_tokens, ttft_ms, decoding_ms } = means;
        let positive = [requests_per_s, output_tokens - 1.0, ttft_ms, decoding_ms];
        if !positive.iter().all(|value| value.is_finite() && *value > 0.0) || !new_prompt_tokens.is_finite() {
            return None;
        }
        let step_us = decoding_ms * 1e3 / (output_tokens - 1.0);
        Some(Observation {
            experiment: experiment.to_owned(),
            model: model.to_owned(),
            tensor_parallel_size,
            hardware: hardware.to_owned(),
            decodes: requests_per_s * decoding_ms / 1e3,
            prompt_tokens_per_step: requests_per_s * new_prompt_tokens * step_us / 1e6,
            prompt_tokens_per_request: new_prompt_tokens,
            step_us,
            ttft_us: ttft_ms * 1e3,
        })
    }
}

/// A fitted black box, and on what.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The coefficients.
    pub black_box: BlackBox,
    /// Stages that it was fitted on.
    pub stages: usize,
    /// Whether those are of the same model and tensor parallelism; else they are all others on the same GPU.
    pub same_model: bool,
}

/// Fits the black box for an experiment on the observations of others: those of its model and tensor parallelism, or else
/// those on its GPU. `None` where there is no other.
pub fn fit(
    experiment: &str,
    model: &str,
    tensor_parallel_size: u32,
    hardware: &str,
    seen: &[Observation],
) -> Option<Fitted> {
    let others: Vec<&Observation> =
        seen.iter().filter(|o| o.experiment != experiment && o.hardware == hardware).collect();
    let alike: Vec<&Observation> =
        others.iter().copied().filter(|o| o.model == model && o.tensor_parallel_size == tensor_parallel_size).collect();
    let same_model = !alike.is_empty();
    let chosen = if same_model { alike } else { others };
    let black_box = fit_lines(&chosen)?;
    Some(Fitted { black_box, stages: chosen.len(), same_model })
}

fn fit_lines(seen: &[&Observation]) -> Option<BlackBox> {
    // Divided by the target, so that fast and slow models count alike.
    let rows: Vec<[f64; 3]> =
        seen.iter().map(|o| [1.0 / o.step_us, o.decodes / o.step_us, o.prompt_tokens_per_step / o.step_us]).collect();
    let [beta0_us, beta2_us, beta1_us] =
        non_negative_least_squares(&rows, &vec![1.0; rows.len()], &vec![1.0; rows.len()])?;
    let before_the_engine =
        |o: &&Observation| o.ttft_us - STEPS_TO_FIRST_TOKEN * o.step_us - beta1_us * o.prompt_tokens_per_request;
    let alpha0_us = median(seen.iter().map(before_the_engine).collect())?.max(0.0);
    Some(BlackBox { beta0_us, beta1_us, beta2_us, alpha0_us, alpha1_us: 0.0, alpha2_us: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(experiment: &str, model: &str, decodes: f64, prompt_tokens: f64, step_us: f64) -> Observation {
        Observation {
            experiment: experiment.to_owned(),
            model: model.to_owned(),
            tensor_parallel_size: 1,
            hardware: "h100_sxm".to_owned(),
            decodes,
            prompt_tokens_per_step: prompt_tokens,
            prompt_tokens_per_request: 100.0,
            step_us,
            ttft_us: 3.0 * step_us + 1000.0,
        }
    }

    #[test]
    fn a_line_is_recovered_from_what_others_saw() {
        // step = 5000 + 10 · prompt tokens + 20 · decodes
        let line = |name: &str, decodes: f64, tokens: f64| {
            observation(name, "m", decodes, tokens, 5000.0 + 10.0 * tokens + 20.0 * decodes)
        };
        let mut seen = vec![line("a", 10.0, 5.0), line("a", 100.0, 50.0), line("b", 40.0, 90.0), line("b", 80.0, 0.0)];
        seen.push(observation("own", "m", 10.0, 10.0, 90_000.0));
        let fitted = fit("own", "m", 1, "h100_sxm", &seen).expect("others");
        assert!((fitted.black_box.beta0_us - 5000.0).abs() < 1e-6, "{fitted:?}");
        assert!((fitted.black_box.beta1_us - 10.0).abs() < 1e-6, "{fitted:?}");
        assert!((fitted.black_box.beta2_us - 20.0).abs() < 1e-6, "{fitted:?}");
        // TTFT = 3 steps + 1000; less 2.5 steps and 100 tokens of 10 µs each is half a step. The steps are 5250, 7500, 6700
        // and 6600: half of the median is 3325.
        assert!((fitted.black_box.alpha0_us - 3325.0).abs() < 1e-6, "{fitted:?}");
        assert_eq!((fitted.stages, fitted.same_model), (4, true));
    }

    #[test]
    fn its_own_stages_and_other_gpus_are_never_used() {
        let mut elsewhere = observation("b", "m", 1.0, 1.0, 1000.0);
        elsewhere.hardware = "l40s".to_owned();
        let seen = [observation("own", "m", 1.0, 1.0, 1000.0), elsewhere];
        assert_eq!(fit("own", "m", 1, "h100_sxm", &seen), None);
    }

    #[test]
    fn other_models_are_used_where_no_other_run_has_this_one() {
        let seen = [observation("a", "x", 1.0, 1.0, 1000.0), observation("b", "y", 2.0, 1.0, 3000.0)];
        let fitted = fit("own", "m", 1, "h100_sxm", &seen).expect("others");
        assert_eq!((fitted.stages, fitted.same_model), (2, false));
        let fitted = fit("own", "x", 1, "h100_sxm", &seen).expect("others");
        // A single stage is explained by a constant.
        assert_eq!((fitted.stages, fitted.same_model), (1, true));
        assert!((fitted.black_box.beta0_us - 1000.0).abs() < 1e-6 && fitted.black_box.beta2_us <= 0.0, "{fitted:?}");
        assert!(!fit("own", "x", 2, "h100_sxm", &seen).expect("others").same_model, "TP differs");
    }

    #[test]
    fn means_without_a_step_are_no_observation() {
        let means = StageMeans {
            requests_per_s: 5.0,
            new_prompt_tokens: 8.0,
            output_tokens: 1.0,
            ttft_ms: 30.0,
            decoding_ms: 2000.0,
        };
        assert_eq!(Observation::new("a", "m", 1, "h", means), None);
        let means = StageMeans { output_tokens: 100.0, requests_per_s: f64::NAN, ..means };
        assert_eq!(Observation::new("a", "m", 1, "h", means), None);
    }
}
