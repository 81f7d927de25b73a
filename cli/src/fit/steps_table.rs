//! The table of the runs of `fit --steps`: how far the correction is off on windows that were fitted and that were not. Uses `text`.

use ridgepoint_lab::fit::{StepRunReport, WindowErrors};

use crate::text::{count, rendered, table, width, wrap};

/// The runs.
pub fn render(runs: &[StepRunReport]) -> String {
    let mut rows = table(&["run", ">rows", ">median", ">bias", ">held-out rows", ">median", ">bias"]);
    for run in runs {
        let [fitted, held_out] = [&run.fitted, &run.held_out].map(cells);
        rows.add_row([vec![run.name.clone()], fitted.to_vec(), held_out.to_vec()].concat());
    }
    let mut out = rendered(rows, &[]);
    out.push_str("errors of means over windows of 50 sampled steps\n");
    for run in runs {
        let mut said = format!(
            "{} on {}, tensor_parallel_size {}; a step's start to the next one's start is the time of {}",
            run.model,
            run.hardware,
            run.tensor_parallel_size,
            run.alignment.in_words()
        );
        if let Some((own, before)) = run.alignment_slopes {
            said.push_str(&format!(
                " (times of single steps rise by {own:.2} of what is predicted of the step and {before:.2} of that of the one before)"
            ));
        }
        if run.dropped.total() > 0 {
            said.push_str(&format!("; left out: {}", run.dropped));
        }
        out.push_str(&wrap(&format!("{}: ", run.name), &said, width()));
    }
    out.push('\n');
    out
}

fn cells(errors: &Option<WindowErrors>) -> [String; 3] {
    match errors {
        Some(of) => [count(of.rows as u64), format!("{:.1} %", of.median_ape_pct), format!("{:+.1} %", of.bias_pct)],
        None => ["-", "-", "-"].map(str::to_owned),
    }
}
