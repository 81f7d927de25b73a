//! Progress on stderr, drawn only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `length` that looks as indicatif's `template` says.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    styled(ProgressBar::new(length), template)
}

/// A count without a known end.
pub fn spinner(template: &str) -> ProgressBar {
    styled(ProgressBar::new_spinner(), template)
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
