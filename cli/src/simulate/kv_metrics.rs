//! The tables of `--kv-metrics`: lives of KV blocks, hits by prefix group, the host's time, and the break-even of prefix caching.

use ridgepoint_replay::{BlockStats, Hits, HostCost, KvMetrics, PrefixCacheBalance, PrefixGroup};

use crate::text::{Page, Rows, count, four_digits, number, percent, plural, shown};

/// Puts the metrics on a page.
pub fn lay_out(metrics: &KvMetrics, page: &mut Page) {
    match &metrics.blocks {
        None => page.paragraph("KV lives   ", "prefix caching is off, so that no content outlives its request"),
        Some(blocks) => lives(blocks, page),
    }
    page.blank();
    hits(metrics, page);
    if let Some(host) = &metrics.host {
        page.blank();
        page.paragraph("hashing    ", &costs(host));
    }
    if let Some(balance) = &metrics.balance {
        page.paragraph("saves      ", &saves(balance));
        page.paragraph("pays       ", &pays(balance));
    }
}

fn lives(blocks: &BlockStats, page: &mut Page) {
    let times = [
        ("lifetime", blocks.lifetime_ms),
        ("idle before eviction", blocks.idle_ms),
        ("between hits", blocks.reuse_gap_ms),
    ];
    let rows = Rows::of(times)
        .left("KV blocks, ms", |(name, _)| (*name).to_owned())
        .right("count", |(_, of)| shown(of.map(|of| of.count), count))
        .distribution("mean", |(_, of)| *of);
    page.rows(&rows, &["p50"]);
    let text = format!(
        "{} allocated, {} evicted, {} of these without a hit; {} hold content at the end; {} in {}",
        count(blocks.allocated),
        count(blocks.evicted),
        count(blocks.evicted_without_hit),
        count(blocks.resident),
        plural(blocks.hits, "hit"),
        plural(blocks.lookups, "look-up"),
    );
    page.paragraph("KV lives   ", &text);
}

fn hits(metrics: &KvMetrics, page: &mut Page) {
    let named = |group: &PrefixGroup| group.prefix.clone().unwrap_or_else(|| "nothing shared".to_owned());
    let mut rows: Vec<(String, Hits)> = vec![("all".to_owned(), metrics.hits)];
    rows.extend(metrics.prefix_groups.iter().map(|group| (named(group), group.hits)));
    if metrics.num_other_groups > 0 {
        let others = format!("{} others", count(metrics.num_other_groups));
        rows.push((others, metrics.other_groups));
    }
    let any_on_disk = metrics.hits.disk_hit_tokens > 0;
    let mut rows = Rows::of(rows)
        .left("prefix", |(name, _)| name.clone())
        .right("requests", |(_, of)| count(of.requests))
        .right("prompt tokens", |(_, of)| count(of.asked_tokens))
        .right("GPU hits", |(_, of)| count(of.gpu_hit_tokens))
        .right("share", |(_, of)| shown(of.gpu_hit_share(), percent))
        .right("host hits", |(_, of)| count(of.host_hit_tokens));
    if any_on_disk {
        rows = rows.right("disk hits", |(_, of)| count(of.disk_hit_tokens));
    }
    let rows = rows.right("computed", |(_, of)| count(of.missed_tokens));
    page.rows(&rows, &["host hits", "requests"]);
}

fn costs(host: &HostCost) -> String {
    format!(
        "{} hashed; the host spends {} ms on hashes, {} on look-ups, {} on hits and {} on the table: {} µs a request{}",
        plural(host.hashed_blocks, "block"),
        number(Some(host.hash_ms)),
        number(Some(host.lookup_ms)),
        number(Some(host.touch_ms)),
        number(Some(host.table_ms)),
        number(Some(host.per_request_us)),
        host.run_share.map_or_else(String::new, |share| format!(", {} % of the run", four_digits(100.0 * share))),
    )
}

fn saves(balance: &PrefixCacheBalance) -> String {
    format!(
        "a hit token saves {} µs of prefill ({} of {} prompt tokens, in steps with {} decodes); all hits save {} ms and cost {} ms",
        four_digits(balance.saved_us_per_token),
        count(u64::from(balance.price_cached_tokens)),
        count(u64::from(balance.price_prompt_tokens)),
        four_digits(balance.mean_decodes_beside),
        number(Some(balance.saved_ms)),
        number(Some(balance.cost_ms)),
    )
}

fn pays(balance: &PrefixCacheBalance) -> String {
    let here = format!("this load has {}", percent(balance.hit_rate));
    match balance.break_even_hit_rate {
        None => format!("prefix caching never pays: a hit costs more than it saves; {here}"),
        Some(rate) if rate > 1.0 => format!("prefix caching pays at no hit rate; {here}"),
        Some(rate) => format!("prefix caching pays from a hit rate of {} % on; {here}", four_digits(100.0 * rate)),
    }
}
