//! Replayed waits in the queue compared with the lines of the papers on learned simulators, on the same requests.

use serde::Serialize;

use super::times::JudgedRequest;
use crate::evaluate::steps::split::FIRST;
use crate::training::{HeldOut, LineFit, QueueRow, queue_wait_lines};

/// Waits in the queue of other requests than those that are judged.
#[derive(Debug, Clone)]
pub struct OtherWaits {
    /// A row per request.
    pub rows: Vec<QueueRow>,
    /// What they are from.
    pub from: String,
}

/// Waits in the queue by the replay and by lines. Keys of its JSON are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueWaits {
    /// What the lines were fitted on.
    pub lines_from: String,
    /// The replay's errors, ms.
    pub replay: HeldOut,
    /// The lines with theirs, on the same requests.
    pub lines: Vec<LineFit>,
    /// Whether the mean absolute error of the replay is below that of each line.
    pub replay_is_best: bool,
}

impl QueueWaits {
    /// Lines through other requests, or through the first part of the judged ones. `None` where no line can be fitted or judged.
    pub(super) fn of(judged: &[JudgedRequest], others: Option<&OtherWaits>) -> Option<Self> {
        let rows: Vec<(&QueueRow, f64)> =
            judged.iter().filter_map(|of| Some((of.queued.as_ref()?, of.predicted.queue_wait_ms?))).collect();
        let is_first = |at: usize| others.is_none() && (at as f64) < FIRST * rows.len() as f64;
        let (first, later): (Vec<_>, Vec<_>) = rows.iter().enumerate().partition(|(at, _)| is_first(*at));
        let (training, lines_from): (Vec<&QueueRow>, &str) = match others {
            Some(OtherWaits { rows, from }) => (rows.iter().collect(), from),
            None => (first.iter().map(|(_, (row, _))| *row).collect(), "the first 60 % of its requests"),
        };
        let held_out: Vec<&QueueRow> = later.iter().map(|(_, (row, _))| *row).collect();
        let lines = queue_wait_lines(&training, &held_out);
        let line = lines.first()?;
        let is_known = |row: &QueueRow| row.predicted_ms(line).is_some();
        let replayed =
            later.iter().filter(|(_, (row, _))| is_known(row)).map(|(_, (row, ms))| (row.alpha_latency_ms, *ms));
        let replay = HeldOut::of(&replayed.collect::<Vec<_>>())?;
        let is_worse = |of: &LineFit| of.held_out.is_some_and(|of| of.mean_absolute > replay.mean_absolute);
        let replay_is_best = lines.iter().all(is_worse);
        Some(QueueWaits { lines_from: lines_from.to_owned(), replay, lines, replay_is_best })
    }
}
