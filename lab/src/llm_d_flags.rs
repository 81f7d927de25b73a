//! The latency flags of llm-d-inference-sim that come nearest to a latency model or to a capture.

use ridgepoint::correction::Scatter;
use ridgepoint::latency::LatencyModel;
use ridgepoint::units::US_PER_MS;
use ridgepoint::{Error, Request, Result, Step};
use serde::Serialize;

use crate::evaluate::capture::{CapturedRun, Knob, MAX_STD_DEV_SHARE, RequestTimes, captured_gaps_ms};
use crate::stats::non_negative_least_squares;

/// Prompts that the line of the prefill time is fitted to have this many tokens at least; each is twice the last.
const SHORTEST_PROMPT: u32 = 16;
/// A step of more decodes is not built.
const MOST_DECODES: u32 = 1_000_000;
/// Cached tokens of a decode whose step is the time between tokens, if the server takes as many.
const DECODE_CONTEXT: u32 = 1024;

/// The sizes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSizes {
    /// Most requests in a step.
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Longest context, tokens.
    pub max_model_len: u32,
}

/// Flags with their values, and remarks on what they leave out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LlmDFlags {
    /// In the order in which they are given.
    pub flags: Vec<Flag>,
    /// What a user should know of them.
    pub notes: Vec<String>,
}

/// A flag.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flag {
    /// With its dashes.
    pub name: &'static str,
    /// As the simulator reads it: durations in ms or µs.
    pub value: String,
}

impl LlmDFlags {
    fn new(sizes: &ServerSizes) -> Self {
        let mut flags = LlmDFlags::default();
        flags.push("--max-num-seqs", sizes.max_num_seqs.to_string());
        flags.push("--max-model-len", sizes.max_model_len.to_string());
        flags
    }

    fn push(&mut self, name: &'static str, value: String) {
        self.flags.push(Flag { name, value });
    }

    /// Adds a standard deviation of a mean, as far as the simulator accepts it.
    fn push_std_dev(&mut self, name: &'static str, std_dev_ms: f64, of: &str, mean_ms: f64) {
        let most_ms = MAX_STD_DEV_SHARE * mean_ms;
        let accepted = duration_at_most(std_dev_ms, most_ms);
        if std_dev_ms > most_ms {
            self.notes
                .push(format!("{name} is capped at 30 % of {of}, {accepted}: it would be {}", duration(std_dev_ms)));
        }
        self.push(name, accepted);
    }

    /// Adds a knob with its standard deviation.
    fn push_knob(&mut self, names: [&'static str; 2], knob: &Knob) {
        self.push(names[0], duration(knob.mean_ms));
        self.push_std_dev(names[1], knob.measured_std_dev_ms, names[0], knob.mean_ms);
    }
}

/// The flags that come nearest to a latency model: a line through the times to first token of single prompts, and the step of one
/// decode with its growth to a full batch. `scatter` is that of measured times around the model's.
///
/// # Formula
/// `prefill = overhead + per token · n`, both at least 0, minimises `Σ ((prefill − TTFT(n)) / TTFT(n))²` over prompts of 16, 32, … tokens
/// up to one step. The factor under load is the step of `max_num_seqs` decodes over that of one: the simulator interpolates between.
///
/// # Errors
/// Sizes in which no prompt fits, and more requests in a step than any engine has.
pub fn predicted(latency: &dyn LatencyModel, scatter: Option<Scatter>, sizes: &ServerSizes) -> Result<LlmDFlags> {
    if sizes.max_num_seqs > MOST_DECODES {
        let problem = format!("max_num_seqs is {}, expected at most {MOST_DECODES}", sizes.max_num_seqs);
        return Err(Error::invalid("llm-d-inference-sim", vec![problem]));
    }
    let longest = sizes.max_num_batched_tokens.min(sizes.max_model_len);
    let prompts: Vec<u32> =
        std::iter::successors(Some(SHORTEST_PROMPT.min(longest)), |n| n.checked_mul(2).filter(|n| *n <= longest))
            .collect();
    let host = latency.host();
    let ttft_ms = |tokens: u32| {
        let prompt = Request::prefill(tokens, 0);
        let parts_us = [
            host.queueing_time_us(&prompt),
            host.scheduling_processing_time_us(),
            latency.step_time_us(&Step::from(&[prompt])),
            host.output_token_processing_time_us(),
        ];
        parts_us.iter().sum::<f64>() / US_PER_MS
    };
    let times_ms: Vec<f64> = prompts.iter().map(|tokens| ttft_ms(*tokens)).collect();
    let rows: Vec<[f64; 2]> = prompts.iter().map(|tokens| [1.0, f64::from(*tokens)]).collect();
    let weights: Vec<f64> = times_ms.iter().map(|time| time.powi(-2)).collect();
    let fitted = non_negative_least_squares(&rows, &times_ms, &weights).filter(|_| longest > 0);
    let Some([overhead_ms, per_token_ms]) = fitted else {
        return Err(Error::invalid(
            "llm-d-inference-sim",
            vec!["no prompt fits into a step of this server".to_owned()],
        ));
    };
    let off = |(tokens, time_ms): (&u32, &f64)| (overhead_ms + per_token_ms * f64::from(*tokens)) / time_ms - 1.0;
    let most_off = prompts.iter().zip(&times_ms).map(off).fold(0.0f64, |most, off| most.max(off.abs()));

    let context = DECODE_CONTEXT.min(sizes.max_model_len.saturating_sub(1)).max(1);
    let period_ms = |decodes: u32| {
        let step_us = latency.step_time_us(&Step::from(&vec![Request::decode(context); decodes as usize]));
        step_us.max(host.scheduling_processing_time_us()) / US_PER_MS
    };
    let (one_ms, full_ms) = (period_ms(1), period_ms(sizes.max_num_seqs));
    let mut found = LlmDFlags::new(sizes);
    found.push("--prefill-overhead", duration(overhead_ms));
    found.push("--prefill-time-per-token", duration(per_token_ms));
    found.push("--inter-token-latency", duration(one_ms));
    found.push("--time-factor-under-load", format!("{:.3}", (full_ms / one_ms).max(1.0)));
    found.notes.push(format!(
        "the line of the prefill time is within {:.1} % of the predicted times to first token of {} to {} prompt tokens",
        100.0 * most_off,
        prompts.first().copied().unwrap_or_default(),
        prompts.last().copied().unwrap_or_default()
    ));
    found.notes.push(format!(
        "tokens take {} with one request at {context} tokens of context and {} with {}",
        duration(one_ms),
        duration(full_ms),
        sizes.max_num_seqs
    ));
    match scatter {
        Some(Scatter { step, ttft }) => {
            found.push_std_dev("--prefill-time-std-dev", ttft * overhead_ms, "--prefill-overhead", overhead_ms);
            found.push_std_dev("--inter-token-latency-std-dev", step * one_ms, "--inter-token-latency", one_ms);
        }
        None => found
            .notes
            .push("standard deviations are left out: no correction has the scatter of measured times".to_owned()),
    }
    Ok(found)
}

/// The flags that come nearest to a capture: means and standard deviations of its times to first token and of its gaps between tokens.
///
/// # Errors
/// A capture without times to first token or without times between tokens.
pub fn captured(run: &CapturedRun, sizes: &ServerSizes) -> Result<LlmDFlags> {
    let times: Vec<RequestTimes> = run.requests.iter().map(RequestTimes::measured).collect();
    let ttft_ms: Vec<f64> = times.iter().filter_map(|of| of.ttft_ms).collect();
    let mut gaps_ms: Vec<f64> = run.tokens.values().flat_map(captured_gaps_ms).collect();
    let mut found = LlmDFlags::new(sizes);
    if gaps_ms.is_empty() {
        gaps_ms.extend(times.iter().filter_map(|of| of.tpot_ms));
        found.notes.push(
            "the capture has no token times: the time between tokens is that of requests' means, which spread less"
                .to_owned(),
        );
    }
    let (Some(ttft), Some(itl)) = (Knob::fit(&ttft_ms), Knob::fit(&gaps_ms)) else {
        let problem = "has no times to first token or none between tokens".to_owned();
        return Err(Error::invalid(run.run.experiment.as_str(), vec![problem]));
    };
    found.push_knob(["--time-to-first-token", "--time-to-first-token-std-dev"], &ttft);
    found.push_knob(["--inter-token-latency", "--inter-token-latency-std-dev"], &itl);
    found.notes.push(format!(
        "of {} requests and {} gaps as captured, waiting and load included: no --time-factor-under-load",
        ttft_ms.len(),
        gaps_ms.len()
    ));
    Ok(found)
}

/// Durations below this have digits of nanoseconds, µs: a prompt has thousands of tokens.
const SHORT_US: f64 = 1000.0;
/// By how much a limit may be missed through the rounding of a product.
const ROUNDING: f64 = 1e-9;

/// A duration as the simulator, a Go program, reads it: whole milliseconds, else microseconds.
fn duration(ms: f64) -> String {
    let us = ms * US_PER_MS;
    written(if us < SHORT_US { (us * 1e3).round() / 1e3 } else { us.round() })
}

/// A duration in whole microseconds, rounded down where it would exceed a limit of the simulator.
fn duration_at_most(ms: f64, most_ms: f64) -> String {
    let most_us = (most_ms * US_PER_MS * (1.0 + ROUNDING)).floor();
    written((ms * US_PER_MS).round().min(most_us))
}

fn written(us: f64) -> String {
    if us > 0.0 && us % US_PER_MS == 0.0 { format!("{}ms", us / US_PER_MS) } else { format!("{us}us") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::{Chunk, RequestRow, RequestTokens};
    use ridgepoint::latency::BlackBox;

    const SIZES: ServerSizes = ServerSizes { max_num_seqs: 101, max_num_batched_tokens: 4096, max_model_len: 2048 };

    fn value<'a>(found: &'a LlmDFlags, name: &str) -> &'a str {
        &found.flags.iter().find(|flag| flag.name == name).unwrap().value
    }

    #[test]
    fn a_straight_line_comes_back() {
        let line = BlackBox {
            beta0_us: 5000.0,
            beta1_us: 10.0,
            beta2_us: 20.0,
            alpha0_us: 1000.0,
            alpha1_us: 2.0,
            alpha2_us: 500.0,
            ..BlackBox::default()
        };
        // TTFT(n) = 1,000 + 2 n + 5,000 + 10 n + 500 µs; one decode takes 5,020 µs and 101 take 7,020.
        let found = predicted(&line, Some(Scatter { step: 0.05, ttft: 0.4 }), &SIZES).unwrap();
        for (name, wanted) in [
            ("--max-num-seqs", "101"),
            ("--max-model-len", "2048"),
            ("--prefill-overhead", "6500us"),
            ("--prefill-time-per-token", "12us"),
            ("--inter-token-latency", "5020us"),
            ("--time-factor-under-load", "1.398"),
            ("--prefill-time-std-dev", "1950us"),
            ("--inter-token-latency-std-dev", "251us"),
        ] {
            assert_eq!(value(&found, name), wanted, "{name}");
        }
        let notes = found.notes.join("\n");
        assert!(notes.contains("within 0.0 %") && notes.contains("of 16 to 2048 prompt tokens"), "{notes}");
        assert!(notes.contains("--prefill-time-std-dev is capped at 30 % of --prefill-overhead, 1950us"), "{notes}");
        let without = predicted(&line, None, &SIZES).unwrap();
        assert!(without.flags.iter().all(|flag| !flag.name.ends_with("std-dev")), "{without:?}");
    }

    #[test]
    fn a_capture_gives_means_and_capped_deviations() {
        let ms = 1_000_000;
        let request = |id: &str, ttft_ms: u64| RequestRow {
            request_id: id.into(),
            arrived_ns: Some(0.into()),
            first_response_ns: Some((ttft_ms * ms).into()),
            departed_ns: Some((200 * ms).into()),
            num_output_tokens: Some(3.into()),
            ..RequestRow::default()
        };
        let chunk = |at_ms: u64| Chunk { time_ns: at_ms * ms, num_tokens: 1, ..Chunk::default() };
        let tokens = RequestTokens { request_id: "a".to_owned(), chunks: [50, 60, 90].map(chunk).to_vec() };
        let mut run = CapturedRun { requests: vec![request("a", 90), request("b", 110)], ..CapturedRun::default() };
        run.tokens.insert("a".to_owned(), tokens);
        // Means of 100 and 20 ms with deviations of 10 ms: the latter is capped at 6.
        let found = captured(&run, &SIZES).unwrap();
        let wanted = [
            ("--time-to-first-token", "100ms"),
            ("--time-to-first-token-std-dev", "10ms"),
            ("--inter-token-latency", "20ms"),
            ("--inter-token-latency-std-dev", "6ms"),
        ];
        for (name, wanted) in wanted {
            assert_eq!(value(&found, name), wanted, "{name}");
        }
        assert!(found.notes[0].contains("30 % of --inter-token-latency, 6ms: it would be 10ms"), "{:?}", found.notes);
        // Without token times, the means of requests: (200 − 90) / 2 and (200 − 110) / 2 ms.
        run.tokens.clear();
        assert_eq!(value(&captured(&run, &SIZES).unwrap(), "--inter-token-latency"), "50ms");
        assert!(captured(&CapturedRun::default(), &SIZES).is_err());
    }

    #[test]
    fn a_deviation_is_never_rounded_above_its_limit() {
        // 30 % of 6.6655 ms is 1,999.65 µs.
        assert_eq!(duration_at_most(2.5, 1.999_65), "1999us");
        assert_eq!(duration_at_most(9.0, 0.3 * 20.0), "6ms");
        assert_eq!([duration(0.021_437_2), duration(132.0), duration(3.300_4)], ["21.437us", "132ms", "3300us"]);
    }
}
