//! The result of a sweep in short, and the list of its configurations. Keys of their JSON are stable: keys are added, never renamed.

use std::collections::BTreeMap;

use ridgepoint_replay::LoadState;
use serde::Serialize;

use super::best::{Best, best};
use super::engines::{EnginesSideBySide, engines_side_by_side};
use super::row::{CANNOT_RUN, LOWEST_RATE_FAILS, Row};
use super::sweeping::Sweep;
use super::tiers::{TierSizes, tier_sizes};

/// The result of a sweep; its rows are in the output.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepSummary {
    /// Number of configurations.
    pub configurations: usize,
    /// Number of configurations whose rows are of an earlier run.
    pub reused: usize,
    /// Number of configurations by status.
    pub statuses: BTreeMap<String, usize>,
    /// Number of configurations that do not keep up with their given load.
    pub overloaded: usize,
    /// Number of configurations that are at their limit with their given load.
    pub at_limit: usize,
    /// The limits that break at the lowest rate, with their values, the most frequent first.
    pub lowest_rate_fails: Vec<Reason>,
    /// Number of replays for all rows.
    pub replays: u64,
    /// Path of the output.
    pub out: String,
    /// The reasons why configurations cannot run, the most frequent first.
    pub reasons: Vec<Reason>,
    /// The best of each model on each GPU.
    pub best: Vec<Best>,
    /// Servers that differ in the engine alone, under the same load.
    pub engines: Vec<EnginesSideBySide>,
    /// The sizes of the host's tier of servers that differ in it alone.
    pub tiers: Vec<TierSizes>,
}

/// Why some configurations cannot run, or break a limit at the lowest rate.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// Their number.
    pub configurations: usize,
    /// Why.
    pub reason: String,
    /// Their indexes in the grid.
    pub rows: Vec<u64>,
    /// Their models and parallel sizes, each once: `llama-3.1-70b TP 1`.
    pub servers: Vec<String>,
}

/// The reasons of the rows of a status, the most frequent first.
fn reasons(rows: &[Row], status: &str) -> Vec<Reason> {
    let mut by_reason: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.status == status) {
        if let Some(reason) = &row.reason {
            by_reason.entry(reason).or_default().push(row);
        }
    }
    let of_reason = |(reason, rows): (&str, Vec<&Row>)| {
        let mut servers: Vec<String> =
            rows.iter().map(|row| format!("{} TP {}", row.model, row.tensor_parallel_size)).collect();
        servers.dedup();
        Reason {
            configurations: rows.len(),
            reason: reason.to_owned(),
            rows: rows.iter().map(|row| row.configuration).collect(),
            servers,
        }
    };
    let mut reasons: Vec<Reason> = by_reason.into_iter().map(of_reason).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.configurations));
    reasons
}

impl SweepSummary {
    /// Sums up the rows.
    pub fn new(rows: &[Row], reused: usize, out: &str) -> Self {
        let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
        for row in rows {
            *statuses.entry(row.status.clone()).or_default() += 1;
        }
        let in_state = |state| rows.iter().filter(|row| row.slo.is_none() && row.load_state == Some(state)).count();
        SweepSummary {
            configurations: rows.len(),
            reused,
            statuses,
            overloaded: in_state(LoadState::Overloaded),
            at_limit: in_state(LoadState::AtLimit),
            lowest_rate_fails: reasons(rows, LOWEST_RATE_FAILS),
            replays: rows.iter().map(|row| row.replays).sum(),
            out: out.to_owned(),
            reasons: reasons(rows, CANNOT_RUN),
            best: best(rows),
            engines: engines_side_by_side(rows),
            tiers: tier_sizes(rows),
        }
    }

    /// The same of one shard. It compares and ranks nothing, because the other rows of the grid may be better.
    #[must_use]
    pub fn without_comparisons(self) -> Self {
        SweepSummary { best: Vec::new(), engines: Vec::new(), tiers: Vec::new(), ..self }
    }

    /// Whether there were configurations and none of them could run.
    pub fn ran_none(&self) -> bool {
        self.configurations > 0 && self.statuses.keys().all(|status| status == CANNOT_RUN)
    }
}

/// The configurations of a grid, and which of them an earlier run has.
#[derive(Debug, Serialize)]
pub struct SweepList {
    /// Number of configurations.
    pub number: usize,
    /// The configurations, in order.
    pub configurations: Vec<ListedConfiguration>,
}

/// A configuration in a list.
#[derive(Debug, Serialize)]
pub struct ListedConfiguration {
    /// Index in the grid, from 0.
    pub configuration: usize,
    /// Model, as the grid names it.
    pub model: String,
    /// GPU, as the grid names it.
    pub hardware: String,
    /// The keys that distinguish it from the others, with their values.
    pub varied: String,
    /// Whether an earlier run has its row.
    pub is_known: bool,
}

impl SweepList {
    /// Lists the configurations of a sweep, or of its shard; `known` are the rows of an earlier run.
    pub fn new(sweep: &Sweep, known: &[Option<Row>]) -> Self {
        let run = sweep.grid().configurations().enumerate().filter(|(index, _)| sweep.runs(*index));
        let listed = run.map(|(index, of)| ListedConfiguration {
            configuration: index,
            model: of.server.value.model.clone(),
            hardware: of.server.value.hardware.clone(),
            varied: of.varied(),
            is_known: matches!(known.get(index), Some(Some(_))),
        });
        let configurations: Vec<ListedConfiguration> = listed.collect();
        SweepList { number: configurations.len(), configurations }
    }
}
