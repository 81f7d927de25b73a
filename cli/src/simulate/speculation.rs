//! Speculative decoding on a page: what a step brings, up to which concurrency it pays, and the same load without it.

use ridgepoint_lab::simulate::SpeculationReport;

use crate::text::{Page, Rows, count, number, plural, shown};

/// Puts the report on a page. `most` is the most requests of a step.
pub fn lay_out(of: &SpeculationReport, most: u32, page: &mut Page) {
    let [least_length, most_length] = of.acceptance_bounds;
    let brought = shown(of.tokens_per_step, |tokens| format!("{tokens:.2}"));
    let drafted = format!(
        "{} by {} for each step; a verification brought {brought} tokens, by an acceptance length of {:.2} ({}; {least_length:.2} to {most_length:.2})",
        plural(u64::from(of.num_draft_tokens), "draft"),
        of.method.name(),
        of.acceptance_length,
        of.acceptance_source,
    );
    page.paragraph("drafts     ", &drafted);
    let [least, up_to] = of.pays_up_to_concurrency;
    let bound = |concurrency: u32| match concurrency {
        0 => "none".to_owned(),
        all if all == most => format!("{} (max_num_seqs)", count(all)),
        other => count(other),
    };
    let pays = if up_to == 0 {
        "at no concurrency".to_owned()
    } else if least == most {
        format!("at any concurrency up to {}", bound(most))
    } else if least == up_to {
        format!("up to {} requests that decode together", bound(up_to))
    } else {
        format!("up to {} to {} requests that decode together", bound(least), bound(up_to))
    };
    let tokens = plural(u64::from(of.context_tokens), "token");
    page.paragraph("pays       ", &format!("{pays}, with contexts of {tokens} and by the time of decodes alone"));
    if let Some(without) = &of.without {
        page.blank();
        let rows = Rows::of(vec![("with", &of.with), ("without", without)])
            .left("speculation", |(name, _)| (*name).to_owned())
            .right("TTFT mean ms", |(_, of)| number(of.ttft_mean_ms))
            .right("TPOT mean ms", |(_, of)| number(of.tpot_mean_ms))
            .right("ITL mean ms", |(_, of)| number(of.itl_mean_ms))
            .right("E2E mean ms", |(_, of)| number(of.e2e_mean_ms))
            .right("output tokens/s", |(_, of)| number(of.output_tokens_per_s));
        page.rows(&rows, &["ITL mean ms"]);
    }
}
