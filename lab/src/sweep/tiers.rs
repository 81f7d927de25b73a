//! The sizes of the host's tier that a sweep goes through: what each buys, and from which on a larger one buys nothing.

use serde::Serialize;

use super::best::settings_without;
use super::row::Row;

/// The key of a server that gives the size.
const SIZE: &str = "kv_offloading_size";

/// A larger tier that changes the mean E2E latency by no more than this share buys nothing.
const NOTHING: f64 = 0.01;

/// Servers that differ in the size of their host's tier alone, under the same load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TierSizes {
    /// Each size, from none to the largest.
    pub sizes: Vec<TierSize>,
    /// The row from which on a larger tier changes the mean E2E latency by at most 1 %; `None` if the largest still gains more.
    pub enough: Option<u64>,
}

/// What a size of the host's tier buys.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TierSize {
    /// Index of the row.
    pub configuration: u64,
    /// KV blocks on the host.
    pub num_cpu_blocks: u32,
    /// Share of the tokens that the GPU did not hold which were loaded.
    pub host_hit_share: Option<f64>,
    /// Mean wait of a request that loads, ms.
    pub kv_load_wait_mean_ms: Option<f64>,
    /// Prompt tokens that were computed.
    pub prefill_tokens: Option<u64>,
    /// Mean time to first token, ms.
    pub ttft_mean_ms: Option<f64>,
    /// Mean time from sending to the last token, ms.
    pub e2e_mean_ms: Option<f64>,
    /// Whether the server keeps up with its load.
    pub keeps_up: Option<bool>,
}

/// The sizes of each server and load, in the order of the rows. Rows of a search for capacity are at different rates, and are not compared.
pub(super) fn tier_sizes(rows: &[Row]) -> Vec<TierSizes> {
    let mut alike: Vec<(Vec<String>, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|row| row.slo.is_none() && row.finished.is_some()) {
        let settings = settings_without(row, SIZE);
        match alike.iter_mut().find(|(known, _)| *known == settings) {
            Some((_, of)) => of.push(row),
            None => alike.push((settings, vec![row])),
        }
    }
    alike.into_iter().filter_map(|(_, rows)| TierSizes::of(rows)).collect()
}

impl TierSizes {
    /// `None` for a single size.
    fn of(mut rows: Vec<&Row>) -> Option<Self> {
        let blocks = |row: &Row| row.num_cpu_blocks.unwrap_or(0);
        rows.sort_by_key(|row| blocks(row));
        let (first, last) = (rows.first()?, rows.last()?);
        if blocks(first) == blocks(last) {
            return None;
        }
        let most_ms = (1.0 + NOTHING) * last.e2e_mean_ms?;
        let is_enough = |row: &&&Row| row.e2e_mean_ms.is_some_and(|e2e_ms| e2e_ms <= most_ms);
        let enough =
            rows.iter().rev().take_while(is_enough).last().filter(|row| row.configuration != last.configuration);
        let size = |row: &&Row| TierSize {
            configuration: row.configuration,
            num_cpu_blocks: blocks(row),
            host_hit_share: row.host_hit_share,
            kv_load_wait_mean_ms: row.kv_load_wait_mean_ms,
            prefill_tokens: row.prefill_tokens,
            ttft_mean_ms: row.ttft_mean_ms,
            e2e_mean_ms: row.e2e_mean_ms,
            keeps_up: row.keeps_up,
        };
        Some(TierSizes { enough: enough.map(|row| row.configuration), sizes: rows.iter().map(size).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(configuration: u64, gib: u32, seed: u64, e2e_ms: f64) -> Row {
        Row {
            configuration,
            num_cpu_blocks: (gib > 0).then_some(512 * gib),
            finished: Some(9),
            e2e_mean_ms: Some(e2e_ms),
            settings: format!("model m, hardware h, kv_offloading_size {gib}; seed {seed}"),
            ..Row::default()
        }
    }

    #[test]
    fn the_smallest_tier_behind_which_nothing_is_gained_is_enough() {
        let rows = [(0, 0, 900.0), (1, 50, 500.0), (2, 100, 301.0), (3, 200, 299.0), (4, 400, 300.0)];
        let mut rows: Vec<Row> = rows.map(|(at, gib, e2e_ms)| row(at, gib, 1, e2e_ms)).to_vec();
        // Another load of the same servers, whose largest tier still gains.
        rows.extend([row(5, 0, 2, 900.0), row(6, 50, 2, 500.0)]);
        let found = tier_sizes(&rows);
        assert_eq!(found.iter().map(|of| of.enough).collect::<Vec<_>>(), [Some(2), None]);
        assert_eq!(
            found[0].sizes.iter().map(|of| of.num_cpu_blocks).collect::<Vec<_>>(),
            [0, 25_600, 51_200, 102_400, 204_800]
        );
        assert!(tier_sizes(&rows[4..6]).is_empty(), "one size of each load");
    }

    #[test]
    fn a_tier_that_makes_it_worse_is_not_enough() {
        let rows = [row(0, 0, 1, 300.0), row(1, 50, 1, 400.0), row(2, 100, 1, 300.0)];
        assert_eq!(tier_sizes(&rows)[0].enough, None);
    }
}
