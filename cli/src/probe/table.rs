//! The tables of `probe`.

use ridgepoint_probe::{Report as Probed, RequestRecord, Rung, Signal, Spread};

use crate::outcome::Report;
use crate::text::{Page, Rows, count, shown};

impl Report for Probed {
    fn lay_out(&self, page: &mut Page) {
        page.paragraph("", &title(self));
        let prompts = if self.is_same_prompt { "the same each time" } else { "each with a beginning of its own" };
        page.paragraph(
            "load       ",
            &format!("prompts {prompts}, seed {}; at most {} output tokens", self.seed, self.max_tokens),
        );
        page.blank();
        runs(self, page);
        page.blank();
        summary(self, page);
        page.blank();
        diagnosis(self, page);
        if !self.ladder.is_empty() {
            page.blank();
            ladder(&self.ladder, page);
        }
        page.blank();
        counts(self, page);
    }
}

/// The server in a line.
pub fn title(report: &Probed) -> String {
    let version = report.server.version.as_ref().map(|version| format!(", version {version}"));
    let longest = report.server.max_model_len(&report.model).map(|tokens| format!(", max_model_len {tokens}"));
    let model = if report.model.is_empty() { "a model that is not known" } else { &report.model };
    format!("{} with {model}{}{}", report.url, version.unwrap_or_default(), longest.unwrap_or_default())
}

/// A time, or a dash.
pub fn ms(value: Option<f64>) -> String {
    shown(value, |value| format!("{value:.2}"))
}

/// A count, or a dash.
pub fn whole(value: Option<u64>) -> String {
    shown(value, count)
}

/// Name and time, and what is odd.
pub fn remarks(record: &RequestRecord) -> String {
    let names = record.remarks.iter().map(|remark| remark.name().to_owned());
    let fault = (!record.is_ok()).then(|| record.outcome.to_owned());
    fault.into_iter().chain(names).collect::<Vec<_>>().join(", ")
}

fn runs(report: &Probed, page: &mut Page) {
    let table = Rows::of(report.one_by_one())
        .left("run", |record: &&RequestRecord| record.name.clone())
        .right("connect ms", |record| ms(record.connect.map(|times| times.total_ms())))
        .right("headers ms", |record| ms(record.headers_ms))
        .right("TTFT ms", |record| ms(record.ttft_ms))
        .right("ITL ms, median", |record| ms(record.itl_ms.map(|of| of.median)))
        .right("wall ms", |record| ms(record.wall_ms))
        .right("prompt", |record| whole(record.prompt_tokens))
        .right("cached", |record| whole(record.cached_tokens))
        .right("output", |record| whole(record.completion_tokens))
        .left("remarks", |record| remarks(record));
    page.rows(&table, &["cached", "connect ms", "headers ms", "prompt"]);
    for record in report.one_by_one() {
        if let Some(fault) = record.fault() {
            page.paragraph("", &format!("{}: {fault}", record.name));
        }
    }
}

fn summary(report: &Probed, page: &mut Page) {
    let warm = report.warm_summary();
    let rows = [("TTFT", warm.ttft_ms), ("ITL", warm.itl_ms), ("wall", warm.wall_ms)];
    let table = Rows::of(rows)
        .left("warm, ms", |(name, _)| (*name).to_owned())
        .right("min", |(_, of)| ms(of.map(|of| of.min)))
        .right("median", |(_, of)| ms(of.map(|of| of.median)))
        .right("max", |(_, of)| ms(of.map(|of| of.max)))
        .right("spread", |(_, of)| shown(of.map(|of| of.spread_pct), |spread| format!("{spread:.1} %")))
        .right("values", |(_, of)| shown(of.map(|of| of.count), count));
    page.rows(&table, &["values"]);
    page.blank();
    let penalty = shown(report.penalty(), |penalty| format!("{penalty:.2} times"));
    page.paragraph("penalty    ", &format!("TTFT of cold_1 over the median of the warm ones: {penalty}"));
}

fn diagnosis(report: &Probed, page: &mut Page) {
    let found = report.diagnosis();
    page.paragraph("diagnosis  ", &format!("{}: {}", found.name, found.about));
    if !found.signals.is_empty() {
        page.blank();
        let table = Rows::of(&found.signals)
            .left("signal", |of: &&Signal| of.name.to_owned())
            .right("value", |of| figure(of.value))
            .right("limit", |of| figure(of.limit))
            .left("unit", |of| of.unit.to_owned())
            .left("reached", |of| if of.is_met { "yes" } else { "no" }.to_owned())
            .left("speaks for", |of| of.speaks_for.name().to_owned());
        page.rows(&table, &["unit"]);
        page.paragraph("missing    ", &found.missing.join("; "));
    }
}

/// A figure with few digits.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        "-".to_owned()
    } else if value.abs() >= 1e5 {
        format!("{value:.2e}")
    } else {
        format!("{value:.2}")
    }
}

fn ladder(rungs: &[Rung], page: &mut Page) {
    let of = |of: Option<Spread>, figure: fn(&Spread) -> f64| ms(of.as_ref().map(figure));
    let table = Rows::of(rungs)
        .right("prompt", |rung: &&Rung| count(rung.input_len))
        .right("counted", |rung| shown(rung.prompt_tokens, |of| format!("{:.0}", of.median)))
        .right("in flight", |rung| count(rung.concurrency))
        .right("ok", |rung| format!("{} of {}", rung.ok, rung.requests))
        .right("TTFT ms, min", |rung| of(rung.ttft_ms, |of| of.min))
        .right("median", |rung| of(rung.ttft_ms, |of| of.median))
        .right("max", |rung| of(rung.ttft_ms, |of| of.max))
        .right("ITL ms, median", |rung| of(rung.itl_ms, |of| of.median))
        .right("p99", |rung| of(rung.itl_ms, |of| of.p99))
        .right("wall ms, median", |rung| of(rung.wall_ms, |of| of.median))
        .right("output tokens/s", |rung| shown(rung.output_tokens_per_s, |of| format!("{of:.1}")));
    page.rows(&table, &["counted", "p99", "TTFT ms, min", "max"]);
}

fn counts(report: &Probed, page: &mut Page) {
    let list = |counts: std::collections::BTreeMap<&str, u64>| {
        counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    };
    page.paragraph("outcomes   ", &list(report.outcomes()));
    let remarks = report.remarks();
    if !remarks.is_empty() {
        page.paragraph("remarks    ", &list(remarks));
    }
    let missing: Vec<&str> = report.server.missing.iter().chain(&report.before.missing).map(String::as_str).collect();
    if !missing.is_empty() {
        page.paragraph("not known  ", &missing.join("; "));
    }
}
