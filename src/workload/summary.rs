//! A load in five figures, for reports.

use std::fmt;

use serde::Serialize;

/// Totals and means of a whole load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of requests.
    pub requests: usize,
    /// Number of stages.
    pub stages: usize,
    /// Mean tokens of a prompt.
    pub mean_input_tokens: f64,
    /// Mean generated tokens of a request.
    pub mean_output_tokens: f64,
    /// Tokens of prompt and output of the longest request.
    pub max_total_tokens: u32,
}

impl Summary {
    /// Returns the summary of requests given by stage, prompt length and output length.
    pub(super) fn of(requests: impl Iterator<Item = (u32, u32, u32)>) -> Self {
        let (mut count, mut stages, mut input, mut output, mut longest) = (0usize, 0, 0u64, 0u64, 0);
        for (stage, num_prompt_tokens, num_output_tokens) in requests {
            count += 1;
            stages = stages.max(stage as usize + 1);
            input += u64::from(num_prompt_tokens);
            output += u64::from(num_output_tokens);
            longest = longest.max(num_prompt_tokens.saturating_add(num_output_tokens));
        }
        let mean = |sum: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
        Summary {
            requests: count,
            stages,
            mean_input_tokens: mean(input),
            mean_output_tokens: mean(output),
            max_total_tokens: longest,
        }
    }

    /// Returns the summary of `requests` equal requests in one stage.
    pub(super) fn uniform(requests: u64, num_prompt_tokens: u32, num_output_tokens: u32) -> Self {
        Summary {
            requests: requests as usize,
            stages: 1,
            mean_input_tokens: f64::from(num_prompt_tokens),
            mean_output_tokens: f64::from(num_output_tokens),
            max_total_tokens: num_prompt_tokens.saturating_add(num_output_tokens),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{} request{} in {} stage{}, {:.1} prompt and {:.1} output tokens on average, {} together at most",
            self.requests,
            plural(self.requests),
            self.stages,
            plural(self.stages),
            self.mean_input_tokens,
            self.mean_output_tokens,
            self.max_total_tokens
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_three_requests() {
        let summary = Summary::of([(0, 10, 1), (1, 20, 5), (1, 3, 30)].into_iter());
        assert_eq!(
            summary.to_string(),
            "3 requests in 2 stages, 11.0 prompt and 12.0 output tokens on average, 33 together at most"
        );
    }

    #[test]
    fn nothing_sums_to_nothing() {
        let summary = Summary::of(std::iter::empty());
        assert_eq!((summary.requests, summary.stages, summary.max_total_tokens), (0, 0, 0));
        assert!(summary.mean_input_tokens.abs() < f64::EPSILON);
    }
}
