//! The turns of sessions on a page: the first ones, which find what other sessions share, and the later ones, which find their own past.

use ridgepoint_lab::simulate::SessionReport;

use crate::text::{Page, Rows, count, percent, shown};

/// Puts the turns on a page.
pub fn lay_out(of: &SessionReport, page: &mut Page) {
    let groups = [("first", &of.first_turns), ("later", &of.later_turns)];
    let rows = Rows::of(groups)
        .left("turns", |(name, _)| (*name).to_owned())
        .right("sent", |(_, of)| count(of.requests))
        .right("finished", |(_, of)| count(of.finished))
        .right("prompt tokens", |(_, of)| count(of.prompt_tokens))
        .right("found in cache", |(_, of)| shown(of.cached_share(), percent))
        .distribution("TTFT mean ms", |(_, of)| of.ttft_ms);
    page.rows(&rows, &["p50", "prompt tokens"]);
}
