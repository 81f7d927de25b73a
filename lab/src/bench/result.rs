//! One result of a load generator: what it sent, how long that took, and the times that its clients had.

use std::path::Path;

use ridgepoint::input::{FileKind, check};
use ridgepoint::{Error, Result};
use ridgepoint_replay::Distribution;
use ridgepoint_replay::input::head;
use ridgepoint_replay::vllm_bench::is_result;
use serde_json::{Map, Value};

use super::keys::ResultKeys;
use crate::evaluate::measured::{Measured, WHOLE_RUN};
use crate::evaluate::metric::{Metric, Statistic};
use crate::ingest::RequestRow;
use crate::ingest::format::Format;
use crate::ingest::json_stream::for_each_object;

/// A request as a result lists it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListedRequest {
    /// When it was sent, s; `None` where the result does not say.
    pub sent_s: Option<f64>,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
}

/// One result of a load generator.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchResult {
    /// Name of its file; with a number where the file holds several.
    pub name: String,
    /// The model as the client names it.
    pub model: Option<String>,
    /// Requests that were answered.
    pub completed: u64,
    /// From the first one sent to the last one's end, s.
    pub duration_s: f64,
    /// Prompt tokens of all requests.
    pub prompt_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// The most requests that the client kept in flight; `None` if it had no limit.
    pub max_concurrency: Option<u32>,
    /// Requests per second; `None` if all were sent as soon as the limit allowed.
    pub request_rate: Option<f64>,
    /// Shape of the gaps between requests at a rate.
    pub burstiness: Option<f64>,
    /// Each request, where the result lists them.
    pub requests: Vec<ListedRequest>,
    /// The latencies, of the whole run.
    pub measured: Measured,
    /// Remarks on it.
    pub notes: Vec<String>,
}

/// The results of a file: vLLM's or SGLang's JSON, or one of the other load generators' that list their requests; else the printed
/// tables in a text.
///
/// # Errors
/// A file that cannot be read or holds no result; a result that lacks its totals, or contradicts itself.
pub fn read_results(path: &Path) -> Result<Vec<BenchResult>> {
    let input = ridgepoint_replay::input::open(FileKind::Trace, path)?;
    let origin = path.display().to_string();
    let is_json = head(input.head()).is_json();
    let results = if is_json && is_result(&head(input.head())) {
        let mut found = Vec::new();
        for_each_object(path, |object: Map<String, Value>| found.push(ResultKeys::of_object(object)))?;
        of_keys(&origin, found)?
    } else if is_json {
        vec![of_capture(path)?]
    } else {
        of_keys(&origin, ResultKeys::printed(&input.text()?))?
    };
    if results.is_empty() {
        let message = "holds no result of a load generator: give the file that `vllm bench serve --save-result` or bench_serving wrote, or \
                       the text that they printed, from 'Serving Benchmark Result' on";
        return Err(Error::parse(path, message));
    }
    Ok(results)
}

fn of_keys(origin: &str, found: Vec<ResultKeys>) -> Result<Vec<BenchResult>> {
    let several = found.len() > 1;
    let file =
        Path::new(origin).file_name().map_or_else(|| origin.to_owned(), |name| name.to_string_lossy().into_owned());
    let name = |number: usize| if several { format!("{file} #{number}") } else { file.clone() };
    found.into_iter().zip(1..).map(|(keys, number)| of(origin, name(number), &keys)).collect()
}

fn of(origin: &str, name: String, keys: &ResultKeys) -> Result<BenchResult> {
    let required = ["completed", "duration", "total_input_tokens", "total_output_tokens"];
    let missing = required.into_iter().filter(|key| keys.number(key).is_none());
    check(origin, missing.map(|key| format!("{name}: {key} is missing or not above 0")).collect())?;
    let (prompts, outputs) = (keys.list("input_lens"), keys.list("output_lens"));
    let times = keys.times("start_times");
    let listed = prompts.zip(outputs).filter(|(prompts, outputs)| prompts.len() == outputs.len());
    let requests = listed.map_or_else(Vec::new, |(prompts, outputs)| {
        let sent_s = |index: usize| times.as_ref().filter(|times| times.len() == prompts.len())?.get(index).copied();
        let request = |(index, (prompt_tokens, output_tokens)): (usize, (&u64, &u64))| ListedRequest {
            sent_s: sent_s(index),
            prompt_tokens: *prompt_tokens,
            output_tokens: *output_tokens,
        };
        // A request without an answer has failed.
        let answered = |of: &ListedRequest| of.prompt_tokens > 0 && of.output_tokens > 0;
        prompts.iter().zip(&outputs).enumerate().map(request).filter(answered).collect()
    });
    let result = BenchResult {
        model: keys.text("model_id").map(str::to_owned),
        completed: keys.whole("completed").unwrap_or(0),
        duration_s: keys.number("duration").unwrap_or(0.0),
        prompt_tokens: keys.whole("total_input_tokens").unwrap_or(0),
        output_tokens: keys.whole("total_output_tokens").unwrap_or(0),
        max_concurrency: keys.whole("max_concurrency").and_then(|most| u32::try_from(most).ok()),
        request_rate: keys.number("request_rate"),
        burstiness: keys.number("burstiness").filter(|burstiness| (*burstiness - 1.0).abs() > 0.0),
        requests,
        measured: Measured::new(keys.latencies().map(|(metric, ms)| ((WHOLE_RUN, metric), ms))),
        notes: Vec::new(),
        name,
    };
    result.checked(origin, keys.number("total_output_tokens_retokenized"))
}

/// The result of a load generator that lists its requests with their times.
fn of_capture(path: &Path) -> Result<BenchResult> {
    let capture = Format::detect(path)?.read(path)?;
    let origin = path.display().to_string();
    let [trace] = capture.requests.as_slice() else {
        let message = format!("holds {} runs with requests: give one run a file", capture.requests.len());
        return Err(Error::parse(path, message));
    };
    let s = |ns: u64| ns as f64 / 1e9;
    let timed = |row: &RequestRow| {
        let [sent, first, last] = [row.arrived_ns?, row.first_response_ns?, row.departed_ns?].map(|at| s(at.get()));
        let (prompt, output) = (row.num_prompt_tokens?.get(), row.num_output_tokens?.get());
        (prompt > 0 && output > 0 && first >= sent && last >= first).then_some((sent, first, last, prompt, output))
    };
    let mut rows: Vec<_> = trace.requests.iter().filter_map(timed).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(from), Some(to)) = (rows.first().map(|row| row.0), rows.iter().map(|row| row.2).reduce(f64::max)) else {
        return Err(Error::parse(
            path,
            "has no request with the times of its sending, first token and end, and its lengths",
        ));
    };
    let mut measured = Vec::new();
    let mut add = |latency, ms: Vec<f64>| {
        let of = Distribution::of(ms);
        let figure =
            |statistic: Statistic| Some(((WHOLE_RUN, Metric { latency, statistic }), statistic.of(of.as_ref()?)));
        measured.extend(Statistic::ALL.into_iter().filter_map(figure));
    };
    add(Metric::TTFT_MEAN.latency, rows.iter().map(|(sent, first, ..)| (first - sent) * 1e3).collect());
    add(Metric::E2E_MEAN.latency, rows.iter().map(|(sent, _, last, ..)| (last - sent) * 1e3).collect());
    let several = rows.iter().filter(|row| row.4 > 1);
    add(
        Metric::TPOT_MEAN.latency,
        several.map(|(_, first, last, _, n)| (last - first) * 1e3 / (*n as f64 - 1.0)).collect(),
    );
    let request = |(sent, _, _, prompt_tokens, output_tokens): &(f64, f64, f64, u64, u64)| ListedRequest {
        sent_s: Some(sent - from),
        prompt_tokens: *prompt_tokens,
        output_tokens: *output_tokens,
    };
    let result = BenchResult {
        name: trace.run.experiment.clone(),
        model: trace.run.model.clone(),
        completed: rows.len() as u64,
        duration_s: to - from,
        prompt_tokens: rows.iter().map(|row| row.3).sum(),
        output_tokens: rows.iter().map(|row| row.4).sum(),
        max_concurrency: None,
        request_rate: None,
        burstiness: None,
        requests: rows.iter().map(request).collect(),
        measured: Measured::new(measured),
        notes: Vec::new(),
    };
    result.checked(&origin, None)
}

/// The most requests of a result that is replayed.
const MAX_COMPLETED: u64 = 1_000_000;
/// A mean TPOT may be this many times what the means of E2E and TTFT leave for a token: short answers weigh more in it.
const SAME_TPOT: (f64, f64) = (0.5, 3.0);
/// Two counts of tokens may differ by this share.
const RETOKENIZED: f64 = 0.2;

impl BenchResult {
    /// A figure of all requests, ms.
    pub(super) fn ms(&self, metric: Metric) -> Option<f64> {
        self.measured.get(WHOLE_RUN, metric)
    }

    /// Requests in flight on average, by Little's law; `None` without a mean E2E.
    pub(super) fn mean_in_flight(&self) -> Option<f64> {
        let e2e_ms = self.ms(Metric::E2E_MEAN).or_else(|| {
            // Means over requests whose lengths vary make no mean E2E.
            let decodes = self.output_tokens as f64 / self.completed as f64 - 1.0;
            let equal = self.requests.is_empty() && self.output_tokens.is_multiple_of(self.completed);
            equal.then(|| Some(self.ms(Metric::TTFT_MEAN)? + self.ms(Metric::TPOT_MEAN)? * decodes))?
        })?;
        Some(self.completed as f64 / self.duration_s * e2e_ms / 1e3)
    }

    /// Refuses figures that cannot be of one run.
    fn checked(self, origin: &str, retokenized: Option<f64>) -> Result<Self> {
        let mut problems = Vec::new();
        let name = &self.name;
        let duration_ms = 1e3 * self.duration_s;
        if self.completed > MAX_COMPLETED {
            problems.push(format!("{name}: completed = {} must be at most {MAX_COMPLETED}", self.completed));
        }
        for (metric, ms) in self.measured.iter().map(|(_, metric, ms)| (metric, ms)) {
            if ms > duration_ms * 1.01 {
                problems.push(format!("{name}: {metric} = {ms:.0} ms is longer than the whole run, {duration_ms:.0} ms: two clocks, or two runs"));
            }
        }
        if let (Some(e2e), Some(ttft)) = (self.ms(Metric::E2E_MEAN), self.ms(Metric::TTFT_MEAN))
            && e2e < ttft
        {
            problems.push(format!(
                "{name}: e2e_mean = {e2e} ms is shorter than ttft_mean = {ttft} ms: figures of two runs"
            ));
        }
        if self.measured.iter().next().is_none() {
            problems.push(format!("{name}: has neither TTFT nor TPOT nor E2E: there is nothing to compare with"));
        }
        let outputs = self.output_tokens as f64;
        if let Some(again) = retokenized.filter(|again| (again / outputs - 1.0).abs() > RETOKENIZED) {
            problems.push(format!(
                "{name}: the client counts {outputs} output tokens, and {again} by its own tokenizer: it has another model's tokenizer"
            ));
        }
        if let Some((most, in_flight)) = self.max_concurrency.zip(self.mean_in_flight())
            && in_flight > 1.05 * f64::from(most)
        {
            problems.push(format!(
                "{name}: {in_flight:.0} requests were in flight on average, by the mean E2E and the rate, and max_concurrency is {most}: \
                 figures of two runs"
            ));
        }
        check(origin, problems)?;
        Ok(self.without_other_tpot())
    }

    /// Leaves out TPOT where it is not what E2E and TTFT leave for a token, as of a client that counts the tokens of a chunk, or of what it
    /// was told to think, apart.
    fn without_other_tpot(mut self) -> Self {
        let means = [Metric::E2E_MEAN, Metric::TTFT_MEAN, Metric::TPOT_MEAN].map(|metric| self.ms(metric));
        let [Some(e2e_ms), Some(ttft_ms), Some(tpot_ms)] = means else { return self };
        let by_e2e_ms = (e2e_ms - ttft_ms) / (self.output_tokens as f64 / self.completed as f64 - 1.0).max(1.0);
        if (SAME_TPOT.0..=SAME_TPOT.1).contains(&(tpot_ms / by_e2e_ms)) {
            return self;
        }
        let others = self.measured.iter().filter(|(_, metric, _)| metric.latency != Metric::TPOT_MEAN.latency);
        self.measured = Measured::new(others.map(|(stage, metric, ms)| ((stage, metric), ms)));
        self.notes.push(format!(
            "tpot_mean = {tpot_ms} ms, but E2E - TTFT is {by_e2e_ms:.2} ms a token: TPOT is of other tokens or of another clock, and is \
             left out"
        ));
        self
    }
}
