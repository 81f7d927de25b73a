//! The sizes of the host's tier that a sweep goes through: what each buys, and from which on a larger one buys nothing.

#![expect(clippy::indexing_slicing, reason = "positions within a list")]

use serde::Serialize;

use super::best::alike_but_for;
use super::row::Row;

/// The key of a server that gives the size.
const SIZE: &str = "kv_offloading_size";

/// A mean E2E latency within this share of another one is the same.
const SAME: f64 = 0.01;

/// Servers that differ in the size of their host's tier alone, under the same load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TierSizes {
    /// The keys that they share, with their values.
    pub settings: String,
    /// The sizes that ran, from no tier to the largest.
    pub sizes: Vec<TierSize>,
    /// Number of sizes that could not run.
    pub not_run: usize,
    /// The row from which on every larger tier has its mean E2E latency within 1 %; `None` if the largest one still changes it.
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
    pub e2e_mean_ms: f64,
    /// Whether the server keeps up with its load, as in [`Row::keeps_up`].
    pub keeps_up: Option<bool>,
}

/// The sizes of each server and load, in the order of the rows. Rows of a search for capacity are at different rates, and are not compared.
pub(super) fn tier_sizes(rows: &[Row]) -> Vec<TierSizes> {
    let has_size = |row: &&Row| row.slo.is_none() && row.settings.replace('-', "_").contains(SIZE);
    let alike = alike_but_for(rows.iter().filter(has_size), SIZE);
    alike.into_iter().filter_map(|(settings, rows)| TierSizes::of(settings, rows)).collect()
}

impl TierSizes {
    /// `None` unless several sizes ran.
    fn of(settings: String, rows: Vec<&Row>) -> Option<Self> {
        let num_rows = rows.len();
        let size = |row: &Row| {
            Some(TierSize {
                configuration: row.configuration,
                num_cpu_blocks: row.num_cpu_blocks.unwrap_or(0),
                host_hit_share: row.host_hit_share,
                kv_load_wait_mean_ms: row.kv_load_wait_mean_ms,
                prefill_tokens: row.prefill_tokens,
                ttft_mean_ms: row.ttft_mean_ms,
                e2e_mean_ms: row.e2e_mean_ms?,
                keeps_up: row.keeps_up,
            })
        };
        let mut sizes: Vec<TierSize> = rows.into_iter().filter_map(size).collect();
        sizes.sort_by_key(|of| of.num_cpu_blocks);
        let (first, last) = (sizes.first()?, sizes.last()?);
        if first.num_cpu_blocks == last.num_cpu_blocks {
            return None;
        }
        let is_same = |one: &TierSize, other: &TierSize| (other.e2e_mean_ms / one.e2e_mean_ms - 1.0).abs() <= SAME;
        let is_enough = |at: &usize| sizes[*at..].iter().all(|larger| is_same(&sizes[*at], larger));
        let enough = (0..sizes.len() - 1).find(is_enough).map(|at| sizes[at].configuration);
        Some(TierSizes { settings, not_run: num_rows - sizes.len(), enough, sizes })
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
    fn a_tier_that_makes_it_worse_is_no_reason_for_none() {
        let of = |e2e_ms: &[f64]| {
            let rows: Vec<Row> = (0..).zip(e2e_ms).map(|(at, e2e_ms)| row(at, 50 * at as u32, 1, *e2e_ms)).collect();
            tier_sizes(&rows)[0].enough
        };
        assert_eq!(of(&[207.0, 279.0, 298.0, 299.0]), Some(2));
        assert_eq!(of(&[300.0, 400.0, 300.0]), None);
        assert_eq!(of(&[900.0, 250.0, 300.0]), None);
        assert_eq!(of(&[300.0, 301.0, 300.0]), Some(0));
    }

    #[test]
    fn sizes_that_cannot_run_are_counted() {
        let mut rows: Vec<Row> = (0..4).map(|at| row(at, 50 * at as u32, 1, 300.0 - at as f64)).collect();
        (rows[3].finished, rows[3].e2e_mean_ms) = (None, None);
        let found = tier_sizes(&rows);
        assert_eq!((found[0].not_run, found[0].sizes.len(), found[0].enough), (1, 3, Some(0)));
        assert_eq!(found[0].settings, "model m, hardware h, seed 1");
        rows.iter_mut().for_each(|row| row.settings = "model m".to_owned());
        assert!(tier_sizes(&rows).is_empty(), "no size was given");
    }
}
