//! Progress bars on stderr. They are drawn only on a terminal, and only for work that takes longer than a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ridgepoint_replay::{Event, Events, Observer};

/// Work that takes less time than this has no bar.
const SHORT: Duration = Duration::from_secs(1);

/// A bar over `length` in indicatif's `template`.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let shown = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        if !shown.is_finished() {
            shown.set_draw_target(ProgressDrawTarget::stderr());
            shown.enable_steady_tick(SHORT / 2);
        }
    });
    bar
}

/// A bar over the requests of a replay that have their first token.
pub struct AnsweredRequests(pub ProgressBar);

impl Observer for AnsweredRequests {
    fn wants(&self) -> Events {
        Events::FIRST_TOKENS
    }

    fn on(&mut self, _: &Event<'_>) {
        self.0.inc(1);
    }
}
