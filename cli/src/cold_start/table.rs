//! The table of `cold-start`: terms and their parts, their origins, and measured starts.

use ridgepoint::units::si;
use ridgepoint_lab::cold_start::{ColdStartFit, LoggedStart, MeasuredTerm, RateFit};
use ridgepoint_replay::cold_start::{Part, RateName, Seconds, StartUp};

use super::ColdStartReport;
use crate::outcome::Report;
use crate::text::{Page, Rows, count, json_name, number, plural};

impl Report for ColdStartReport {
    fn lay_out(&self, page: &mut Page) {
        page.paragraph("", &self.title);
        page.fact("storage", &self.storage);
        page.fact("compile", &format!("{} compile cache", self.compile_cache));
        page.fact(
            "request",
            &format!("{} of prompt, waiting since the start", plural(self.prompt_tokens.into(), "token")),
        );
        page.blank();
        terms(&self.start_up, page);
        page.blank();
        for part in self.start_up.terms.iter().flat_map(|term| &term.parts) {
            page.paragraph(&format!("{:<18}", part.name), &part.origin);
        }
        if let Some(fit) = &self.logs {
            page.blank();
            measured(fit, page);
        }
        if let Some(path) = &self.written {
            page.blank();
            page.line(&format!("written to {}; --fitted reads it", path.display()));
        }
        page.warnings(&self.warnings);
    }
}

/// The six terms with their parts, and the two sums.
pub fn terms(start_up: &StartUp, page: &mut Page) {
    type Line<'a> = (&'a str, Option<&'a Part>, Seconds, String);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for term in &start_up.terms {
        lines.push((term.term.name(), None, term.time, term.source.to_string()));
        if term.parts.len() > 1 {
            lines.extend(term.parts.iter().map(|part| (part.name, Some(part), part.time, part.source.to_string())));
        }
    }
    lines.push(("ready", None, start_up.ready, String::new()));
    lines.push(("first token", None, start_up.first_token, String::new()));
    let rows = Rows::of(lines)
        .left("term", |(name, part, ..)| format!("{}{name}", if part.is_some() { "  " } else { "" }))
        .right("seconds", |(_, _, time, _)| seconds(time.estimate_s))
        .right("90 % interval", |(_, _, time, _)| interval(time))
        .left("source", |(.., source)| source.clone());
    page.rows(&rows, &[]);
}

fn measured(fit: &ColdStartFit, page: &mut Page) {
    let lines: Vec<(&LoggedStart, &MeasuredTerm)> =
        fit.starts.iter().flat_map(|start| start.measured.iter().map(move |of| (start, of))).collect();
    let rows = Rows::of(lines)
        .left("log", |(start, _)| start.log.clone())
        .left("measured", |(_, of)| json_name(&of.quantity))
        .right("seconds", |(_, of)| seconds(of.measured_s))
        .right("predicted", |(_, of)| seconds(of.predicted.estimate_s))
        .right("90 % interval", |(_, of)| interval(&of.predicted))
        .right("fitted", |(_, of)| seconds(of.fitted_s));
    page.rows(&rows, &["90 % interval"]);
    page.blank();
    for start in &fit.starts {
        let ready = start.ready_s.map(|ready_s| {
            let predicted = &start.predicted_ready;
            format!(
                "ready after {} s, predicted {} ({})",
                seconds(ready_s),
                seconds(predicted.estimate_s),
                interval(predicted)
            )
        });
        let missing = (!start.not_found.is_empty()).then(|| format!("not found: {}", start.not_found.join(", ")));
        let ranks = start.ranks.iter().map(|rank| {
            format!(
                "{}: weights {} GiB, predicted {:.2}; KV cache {} GiB, predicted {:.2}",
                if rank.process.is_empty() { "its process" } else { &rank.process },
                number(rank.weights_gib),
                start.predicted_weights_gib,
                number(rank.kv_cache_gib),
                start.predicted_kv_cache_gib
            )
        });
        for text in ready.into_iter().chain(missing).chain(ranks) {
            page.paragraph(&format!("{:<18}", start.log), &text);
        }
    }
    page.blank();
    let rows = Rows::of(&fit.rates)
        .left("rate", |rate| rate.rate.name().to_owned())
        .right("before", |rate| amount(rate.rate, rate.prior))
        .right("fitted", |rate| amount(rate.rate, rate.value))
        .right("90 % interval", |rate| {
            format!("{} to {}", amount(rate.rate, rate.lower), amount(rate.rate, rate.upper))
        })
        .right("times", |rate| count(rate.times as u64))
        .left("", |rate| status(rate).to_owned());
    page.rows(&rows, &[]);
    page.fact("scatter", &format!("{:.0} % between starts", 100.0 * fit.scatter));
}

fn status(rate: &RateFit) -> &'static str {
    if rate.identified { "" } else { "not identified by the logs" }
}

fn amount(rate: RateName, value: f64) -> String {
    match rate {
        RateName::StorageBytesPerS | RateName::HostToDeviceBytesPerS => format!("{}B/s", si(value)),
        _ => format!("{} s", seconds(value)),
    }
}

/// Seconds with three significant digits or so.
fn seconds(seconds: f64) -> String {
    let digits = match seconds {
        _ if seconds >= 100.0 => 0,
        _ if seconds >= 10.0 => 1,
        _ if seconds >= 0.1 => 2,
        _ => 4,
    };
    format!("{seconds:.digits$}")
}

fn interval(time: &Seconds) -> String {
    format!("{} to {}", seconds(time.lower_s), seconds(time.upper_s))
}
