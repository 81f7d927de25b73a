//! The line that vLLM logs for each iteration of an engine, as a step.

use ridgepoint::units::US_PER_MS;

use crate::ingest::StepRecord;
use crate::ingest::step::contradiction;
use crate::ingest::unknown_names::UnknownNames;
use crate::measured_time::MICROSECONDS;

/// What every iteration line has.
pub(super) const MARK: &str = "Iteration(";

/// A line that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Iteration<'t> {
    /// The engine's number, as in `Engine 000:`; empty where there is none.
    pub(super) engine: &'t str,
    /// The process that logs it, as `EngineCore_DP0 pid=7`; empty where the line does not begin with one.
    pub(super) process: &'t str,
    pub(super) step: StepRecord,
    /// Share of the KV blocks in use, in percent.
    pub(super) kv_usage_pct: Option<f64>,
}

/// Reads a line that has [`MARK`]. Parts of unknown names are counted.
///
/// # Errors
/// The part that is missing or at fault, and what is expected of it.
///
/// # Source
/// vLLM 0.32, `vllm/v1/metrics/loggers.py`; releases from 0.15 log the same from the engine, without the KV cache.
pub(super) fn iteration<'t>(line: &'t str, unknown: &mut UnknownNames) -> Result<Iteration<'t>, String> {
    let (before, rest) = line.split_once(MARK).unwrap_or_default();
    let engine = before.rsplit_once("Engine ").map_or("", |(_, engine)| engine.trim_end_matches([' ', ':']));
    let process = line.trim_start().strip_prefix('(').and_then(|line| line.split_once(')'));
    let process = process.map_or("", |(process, _)| process);
    let (number, parts) = rest.split_once("): ").ok_or("expected 'Iteration(N): ' and counts")?;
    let step_id = number.parse().map_err(|_| format!("Iteration({number}), expected a whole number"))?;
    let mut counts = [None; 4];
    let (mut elapsed_ms, mut kv_usage_pct) = (None, None);
    for part in parts.trim_end().split(", ") {
        let count = COUNTS.iter().zip(&mut counts).find_map(|(name, count)| Some((part.strip_suffix(name)?, count)));
        if let Some((text, count)) = count {
            let value = text.trim_end().parse().map_err(|_| format!("'{part}', expected a whole number"))?;
            *count = Some(value);
        } else if let Some(text) = part.strip_prefix("iteration elapsed time: ") {
            let ms: Option<f64> = text.strip_suffix(" ms").and_then(|text| text.parse().ok());
            elapsed_ms = Some(ms.filter(|ms| *ms >= 0.0).ok_or_else(|| format!("'{part}', expected a time in ms"))?);
        } else if let Some((_, text)) = part.split_once("KV cache usage: ") {
            let pct: Option<f64> = text.strip_suffix('%').and_then(|text| text.parse().ok());
            let pct = pct.filter(|pct| (0.0..=100.0).contains(pct));
            kv_usage_pct = Some(pct.ok_or_else(|| format!("'{part}', expected 0 to 100 %"))?);
        } else {
            unknown.add(part.trim_matches(|of: char| of.is_ascii_digit() || of.is_whitespace()));
        }
    }
    let missing = |name: &str| format!("'{}' is missing: is the line cut short?", name.trim());
    let count = |at: usize| counts.get(at).copied().flatten().ok_or_else(|| missing(COUNTS.get(at).unwrap_or(&"")));
    let requests = |at: usize| u32::try_from(count(at)?).map_err(|_| "more requests than any engine has".to_owned());
    let step = StepRecord {
        step_id,
        num_prefill_requests: requests(0)?,
        prefill_tokens: count(1)?,
        num_decode_requests: requests(2)?,
        decode_tokens: count(3)?,
        gpu_time_us: Some(elapsed_ms.ok_or_else(|| missing("iteration elapsed time"))? * US_PER_MS),
        ..StepRecord::default()
    };
    if let Some((field, expected)) = contradiction(&step) {
        let is_prefill = field == "prefill_tokens";
        let (tokens, what) =
            if is_prefill { (step.prefill_tokens, "context") } else { (step.decode_tokens, "generation") };
        return Err(format!("{tokens} {what} tokens, expected {expected}"));
    }
    // An iteration of nothing may take no time. One of something may not, to the two digits that are logged.
    if !step.gpu_time_us.is_some_and(|time_us| MICROSECONDS.contains(time_us) || (time_us <= 0.0 && step.is_empty())) {
        return Err(format!("an iteration of {} ms, expected {MICROSECONDS}", elapsed_ms.unwrap_or_default()));
    }
    Ok(Iteration { engine, process, step, kv_usage_pct })
}

const COUNTS: [&str; 4] = [" context requests", " context tokens", " generation requests", " generation tokens"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Result<Iteration<'_>, String>, Option<String>) {
        let mut unknown = UnknownNames::default();
        let found = iteration(line, &mut unknown);
        (found, unknown.note("parts"))
    }

    #[test]
    fn an_iteration_of_something_takes_time() {
        let line = |tokens: u64, ms: &str| {
            format!(
                "INFO Iteration(130): 0 context requests, 0 context tokens, {tokens} generation requests, {tokens} generation \
                 tokens, iteration elapsed time: {ms} ms"
            )
        };
        assert!(read(&line(0, "0.00")).0.is_ok() && read(&line(3, "0.01")).0.is_ok());
        let error = read(&line(3, "0.00")).0.unwrap_err();
        assert!(error.contains("an iteration of"), "{error}");
    }

    #[test]
    fn a_line_of_either_release_is_a_step() {
        let counts =
            "Iteration(130): 2 context requests, 300 context tokens, 5 generation requests, 6 generation tokens";
        let new = format!(
            "(APIServer pid=7) INFO 11-22 [loggers.py:199] Engine 001: {counts}, iteration elapsed time: 7.25 ms, GPU KV cache usage: 12.5%\n"
        );
        let (found, unknown) = read(&new);
        let found = found.unwrap();
        let step = StepRecord {
            step_id: 130,
            num_prefill_requests: 2,
            prefill_tokens: 300,
            num_decode_requests: 5,
            decode_tokens: 6,
            gpu_time_us: Some(7250.0),
            ..StepRecord::default()
        };
        assert_eq!((found.engine, &found.step, found.kv_usage_pct, unknown), ("001", &step, Some(12.5), None));
        let old = format!("(EngineCore_DP0 pid=7) INFO 01-02 [core.py:1] {counts}, iteration elapsed time: 7.25 ms");
        let found = read(&old).0.unwrap();
        assert_eq!((found.engine, &found.step, found.kv_usage_pct), ("", &step, None));
        assert_eq!(found.process, "EngineCore_DP0 pid=7");
    }

    #[test]
    fn parts_of_unknown_names_are_counted() {
        let line = "Iteration(1): 0 context requests, 0 context tokens, 1 generation requests, 1 generation tokens, \
                    3 draft tokens, iteration elapsed time: 1.00 ms";
        let (found, unknown) = read(line);
        assert!(found.is_ok());
        assert_eq!(unknown.as_deref(), Some("parts that are not read: draft tokens (1)"));
    }

    #[test]
    fn faults_say_which_part() {
        for (line, said) in [
            ("Iteration(x): 1 context requests", "Iteration(x), expected a whole number"),
            ("Iteration(1) 1 context", "expected 'Iteration(N): '"),
            ("Iteration(1): 1 context requests, 5 context tokens", "'generation requests' is missing: is the line cut"),
            ("Iteration(1): -1 context requests", "'-1 context requests', expected a whole number"),
            (
                "Iteration(1): 2 context requests, 1 context tokens, 0 generation requests, 0 generation tokens, \
                 iteration elapsed time: 1 ms",
                "1 context tokens, expected at least one for each of 2 requests, else 0",
            ),
            ("Iteration(1): iteration elapsed time: NaN ms", "'iteration elapsed time: NaN ms', expected a time in ms"),
            ("Iteration(1): GPU KV cache usage: 120%", "expected 0 to 100 %"),
        ] {
            let error = read(line).0.unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
