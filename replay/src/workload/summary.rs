//! A load in five figures, for reports.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;

use super::WorkloadRequest;

/// Totals and means of a whole load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of requests.
    pub requests: usize,
    /// Number of stages.
    pub stages: usize,
    /// Number of sessions that the requests are the turns of; `None` if they do not continue each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<usize>,
    /// Mean tokens of a prompt.
    pub mean_input_tokens: f64,
    /// Mean generated tokens of a request.
    pub mean_output_tokens: f64,
    /// Tokens of prompt and output of the longest request.
    pub max_total_tokens: u32,
}

impl Summary {
    /// Returns the summary of requests.
    pub(super) fn of(requests: impl Iterator<Item = impl Borrow<WorkloadRequest>>) -> Self {
        let (mut count, mut stages, mut input, mut output, mut longest) = (0usize, 0, 0u64, 0u64, 0);
        for request in requests {
            let request = request.borrow();
            count += 1;
            stages = stages.max(request.stage as usize + 1);
            input += u64::from(request.num_prompt_tokens);
            output += u64::from(request.num_output_tokens);
            longest = longest.max(request.num_prompt_tokens.saturating_add(request.num_output_tokens));
        }
        let mean = |sum: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
        Summary {
            requests: count,
            stages,
            sessions: None,
            mean_input_tokens: mean(input),
            mean_output_tokens: mean(output),
            max_total_tokens: longest,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        if let Some(sessions) = self.sessions {
            let turns = if sessions == 0 { 0.0 } else { self.requests as f64 / sessions as f64 };
            write!(f, "{sessions} session{} of {turns:.1} turns on average: ", plural(sessions))?;
        }
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
        let summary = Summary::of(
            [(0, 10, 1), (1, 20, 5), (1, 3, 30)]
                .into_iter()
                .map(|(stage, input, output)| WorkloadRequest { stage, ..WorkloadRequest::new(0, input, output) }),
        );
        assert_eq!(
            summary.to_string(),
            "3 requests in 2 stages, 11.0 prompt and 12.0 output tokens on average, 33 together at most"
        );
    }

    #[test]
    fn nothing_sums_to_nothing() {
        let summary = Summary::of(std::iter::empty::<WorkloadRequest>());
        assert_eq!((summary.requests, summary.stages, summary.max_total_tokens), (0, 0, 0));
        assert!(summary.mean_input_tokens.abs() < f64::EPSILON);
    }
}
