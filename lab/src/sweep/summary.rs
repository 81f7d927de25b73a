//! The result of a sweep in short, and the list of its configurations. Keys of their JSON are stable: keys are added, never renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::best::{Best, best};
use super::row::Row;
use super::sweeping::Sweep;

const CANNOT_RUN: &str = "cannot_run";

/// The result of a sweep; its rows are in the output.
#[derive(Debug, Serialize)]
pub struct SweepSummary<'a> {
    /// Number of configurations.
    pub configurations: usize,
    /// Number of configurations whose rows are of an earlier run.
    pub reused: usize,
    /// Number of configurations by status.
    pub statuses: BTreeMap<&'a str, usize>,
    /// Number of configurations that do not keep up with their given load.
    pub overloaded: usize,
    /// Number of replays for all rows.
    pub replays: u64,
    /// Path of the output.
    pub out: &'a str,
    /// The reasons why configurations cannot run, the most frequent first.
    pub reasons: Vec<Reason<'a>>,
    /// The best of each model on each GPU.
    pub best: Vec<Best<'a>>,
}

/// Why some configurations cannot run.
#[derive(Debug, Serialize)]
pub struct Reason<'a> {
    /// Their number.
    pub configurations: usize,
    /// Why.
    pub reason: &'a str,
    /// Their indexes in the grid.
    pub rows: Vec<u64>,
    /// Their models and parallel sizes, each once: `llama-3.1-70b TP 1`.
    pub servers: Vec<String>,
}

impl<'a> SweepSummary<'a> {
    /// Sums up the rows.
    pub fn new(rows: &'a [Row], reused: usize, out: &'a str) -> Self {
        let mut statuses: BTreeMap<&str, usize> = BTreeMap::new();
        let mut by_reason: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            *statuses.entry(&row.status).or_default() += 1;
            if let (CANNOT_RUN, Some(reason)) = (row.status.as_str(), &row.reason) {
                by_reason.entry(reason).or_default().push(row);
            }
        }
        let of_reason = |(reason, rows): (&'a str, Vec<&Row>)| {
            let mut servers: Vec<String> =
                rows.iter().map(|row| format!("{} TP {}", row.model, row.tensor_parallel_size)).collect();
            servers.dedup();
            Reason {
                configurations: rows.len(),
                reason,
                rows: rows.iter().map(|row| row.configuration).collect(),
                servers,
            }
        };
        let mut reasons: Vec<Reason<'_>> = by_reason.into_iter().map(of_reason).collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.configurations));
        SweepSummary {
            configurations: rows.len(),
            reused,
            statuses,
            overloaded: rows.iter().filter(|row| row.slo.is_none() && row.keeps_up == Some(false)).count(),
            replays: rows.iter().map(|row| row.replays).sum(),
            out,
            reasons,
            best: best(rows),
        }
    }

    /// Whether no configuration could run.
    pub fn ran_none(&self) -> bool {
        self.statuses.keys().all(|status| *status == CANNOT_RUN)
    }
}

/// A configuration in the list of a dry run.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// Index in the grid, from 0.
    pub configuration: usize,
    /// Model, as the grid names it.
    pub model: String,
    /// GPU, as the grid names it.
    pub hardware: String,
    /// The keys that tell it from the others, with their values.
    pub varied: String,
    /// Whether an earlier run has its row.
    pub is_known: bool,
}

impl Listed {
    /// Lists the configurations of a sweep; `known` are the rows of an earlier run.
    pub fn all(sweep: &Sweep, known: &[Option<Row>]) -> Vec<Self> {
        let listed = sweep.grid().configurations().enumerate().map(|(index, of)| Listed {
            configuration: index,
            model: of.server().model.clone(),
            hardware: of.server().hardware.clone(),
            varied: of.varied(),
            is_known: matches!(known.get(index), Some(Some(_))),
        });
        listed.collect()
    }
}
