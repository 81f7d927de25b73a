//! The JSON of `sweep`. Its keys are stable: keys are added, never renamed or dropped.

use std::collections::BTreeMap;

use ridgepoint_lab::sweep::{Best, Row, best};
use serde::Serialize;

/// What became of a grid; its rows are in the file.
#[derive(Debug, Serialize)]
pub struct SweepJson<'a> {
    /// Configurations of the grid.
    pub configurations: usize,
    /// Those of them that were in the journal.
    pub reused: usize,
    /// Configurations by status.
    pub statuses: BTreeMap<&'a str, usize>,
    /// Replays behind all rows.
    pub replays: u64,
    /// The file of results.
    pub out: &'a str,
    /// The journal beside it.
    pub journal: &'a str,
    /// Why configurations can't run, each reason once, with their number; the most frequent first.
    pub reasons: Vec<Reason<'a>>,
    /// The best of each model on each GPU.
    pub best: Vec<Best<'a>>,
}

/// Why some configurations can't run.
#[derive(Debug, Serialize)]
pub struct Reason<'a> {
    /// Their number.
    pub configurations: usize,
    /// Why.
    pub reason: &'a str,
}

impl<'a> SweepJson<'a> {
    /// The rows, summed up.
    pub fn new(rows: &'a [Row], reused: usize, out: &'a str, journal: &'a str) -> Self {
        let mut statuses: BTreeMap<&str, usize> = BTreeMap::new();
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for row in rows {
            *statuses.entry(&row.status).or_default() += 1;
            if let (CANNOT_RUN, Some(reason)) = (row.status.as_str(), &row.reason) {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        let mut reasons: Vec<Reason<'_>> =
            reasons.into_iter().map(|(reason, configurations)| Reason { configurations, reason }).collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.configurations));
        let replays = rows.iter().map(|row| row.replays).sum();
        SweepJson { configurations: rows.len(), reused, statuses, replays, out, journal, reasons, best: best(rows) }
    }

    /// Whether not one configuration could run.
    pub fn ran_none(&self) -> bool {
        self.statuses.keys().all(|status| *status == CANNOT_RUN)
    }
}

/// A configuration as a dry run lists it.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// Position in the grid, from 0.
    pub configuration: usize,
    /// Model, as the grid calls it.
    pub model: String,
    /// GPU, as the grid calls it.
    pub hardware: String,
    /// The keys that tell it from others, with its values.
    pub varied: String,
    /// Its row is in the journal.
    pub is_known: bool,
}

const CANNOT_RUN: &str = "cannot_run";
