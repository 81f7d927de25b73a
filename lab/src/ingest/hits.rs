//! Prefix cache hits by tier: from a server's totals, and from KV events and rows as far as they report them.

use std::collections::HashMap;

use serde::Serialize;

use super::kv_counts::KvEvents;
use super::request::RequestTrace;
use super::server_totals::{Total, counted};
use super::whole::Whole;

/// The prefix cache hits of a tier. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierHits {
    /// `gpu`; `external`, which is every tier of a KV connector; `cpu`, of KV events; `all`, of the rows of requests.
    pub tier: &'static str,
    /// Their source: `metrics`, `kv_events` or `requests`.
    pub source: &'static str,
    /// Tokens that were looked up, which KV events do not report.
    pub queried_tokens: Option<f64>,
    /// Tokens that were found.
    pub hit_tokens: f64,
    /// Found tokens over looked up ones; `None` where none was looked up.
    pub rate: Option<f64>,
}

/// The hits that files report. Those of KV events need the one `block_size` of the files, and those of rows the cached tokens of every request.
///
/// # Formula
/// A load reports its blocks in `CacheLoadCommitted`. A server without that event reports a load by storing blocks on the GPU that the CPU holds.
pub(super) fn hits(
    totals: &[Total],
    events: &[KvEvents],
    requests: &[RequestTrace],
    block_size: Option<u64>,
) -> Vec<TierHits> {
    let of_metrics = |(tier, queried, hit): (&'static str, &str, &str)| {
        let (queried, hit_tokens) = (counted(totals, queried)?, counted(totals, hit)?);
        // A server without a connector looks nothing up in it.
        let is_used = queried > 0.0 || tier == "gpu";
        let rate = (queried > 0.0).then(|| hit_tokens / queried);
        is_used.then_some(TierHits { tier, source: "metrics", queried_tokens: Some(queried), hit_tokens, rate })
    };
    let of_events = || {
        let loaded = |of: &KvEvents| -> u64 {
            let loads = of.events.iter().filter(|event| event.event == "CacheLoadCommitted");
            let committed = loads.fold(0, |sum: u64, event| sum.saturating_add(event.blocks));
            if committed > 0 { committed } else { of.blocks_back_from_cpu }
        };
        // Two files of a run may hold the same events.
        let blocks = events.iter().map(loaded).max().filter(|blocks| *blocks > 0)?;
        let hit_tokens = blocks as f64 * block_size? as f64;
        Some(TierHits { tier: "cpu", source: "kv_events", queried_tokens: None, hit_tokens, rate: None })
    };
    let of_requests = || {
        // Two files of a run hold the same requests: the one that reports most of them counts.
        let mut runs: HashMap<&str, (f64, f64)> = HashMap::new();
        for trace in requests {
            let prompts = trace.total(|row| row.num_prompt_tokens.map(Whole::get));
            let hits = trace.total(|row| row.num_cached_tokens.map(Whole::get));
            let Some((prompts, hits)) = prompts.zip(hits) else { continue };
            let known = runs.entry(&trace.run.experiment).or_default();
            if prompts > known.0 {
                *known = (prompts, hits);
            }
        }
        let (prompts, hit_tokens) = runs.values().fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let rate = (prompts > 0.0).then(|| hit_tokens / prompts)?;
        Some(TierHits { tier: "all", source: "requests", queried_tokens: Some(prompts), hit_tokens, rate: Some(rate) })
    };
    let tiers = [
        ("gpu", "prefix_cache_queried_tokens", "prefix_cache_hit_tokens"),
        ("external", "external_prefix_cache_queried_tokens", "external_prefix_cache_hit_tokens"),
    ];
    tiers.into_iter().filter_map(of_metrics).chain(of_events()).chain(of_requests()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::{EventCount, RequestRow};

    #[test]
    fn rates_are_hits_over_queries_by_tier() {
        let total = |name, server| Total { name, server, rows: None };
        let totals = [
            total("prefix_cache_queried_tokens", 200.0),
            total("prefix_cache_hit_tokens", 50.0),
            total("external_prefix_cache_queried_tokens", 150.0),
            total("external_prefix_cache_hit_tokens", 120.0),
        ];
        let load = EventCount { event: "CacheLoadCommitted".to_owned(), blocks: 7, ..EventCount::default() };
        let events = [
            KvEvents { events: vec![load], ..KvEvents::default() },
            KvEvents { blocks_back_from_cpu: 5, ..KvEvents::default() },
        ];
        let row = |cached: Option<u64>| RequestRow {
            num_prompt_tokens: Some(Whole::from(100)),
            num_cached_tokens: cached.map(Whole::from),
            ..RequestRow::default()
        };
        let of = |rows: Vec<RequestRow>| RequestTrace { requests: rows, ..RequestTrace::default() };
        // Two files of one run, and one without hits.
        let traces =
            [of(vec![row(Some(10)), row(Some(50))]), of(vec![row(Some(10))]), of(vec![row(Some(10)), row(None)])];
        let found = hits(&totals, &events, &traces, Some(16));
        let tiers: Vec<_> = found.iter().map(|of| (of.tier, of.hit_tokens, of.rate)).collect();
        assert_eq!(
            tiers,
            [("gpu", 50.0, Some(0.25)), ("external", 120.0, Some(0.8)), ("cpu", 112.0, None), ("all", 60.0, Some(0.3))]
        );
        assert_eq!(hits(&totals[..2], &events, &[], None).len(), 1);
        assert_eq!(hits(&totals[..2], &[], &traces[2..], None).len(), 1, "one has no hits");
    }
}
