//! Progress bars on stderr. They are drawn only on a terminal, and only for work that takes longer than a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ridgepoint_replay::workload::{Workload, WorkloadRequest};
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

/// A load whose finished requests a bar counts, if there is one: that of several replicas.
pub struct FinishedRequests<'a> {
    /// The load.
    pub workload: &'a mut dyn Workload,
    /// The bar.
    pub bar: Option<ProgressBar>,
}

impl Workload for FinishedRequests<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.workload.next_arrival_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        self.workload.next_request()
    }

    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        self.workload.finished(now_ns, stage, request);
    }

    fn expected_requests(&self) -> Option<usize> {
        self.workload.expected_requests()
    }
}
