//! The host's tier of KV blocks on a page: its transfers, the same load without it, and the length from which a load pays.

use ridgepoint::units::GIB;
use ridgepoint_lab::simulate::{Comparison, OffloadReport, ServedLoad};
use ridgepoint_replay::TransferCounters;

use super::disk;
use crate::text::{Page, Rows, count, number, percent, plural, shown};

/// Puts the tier on a page.
pub fn lay_out(of: &OffloadReport, page: &mut Page) {
    let counted = &of.counted;
    let blocks = f64::from(of.tier.num_cpu_blocks);
    let size = number(Some(blocks * of.tier.block_bytes as f64 / GIB));
    let peak = percent(f64::from(counted.max_blocks_in_use) / blocks);
    let hits = shown(of.hit_share, percent);
    let tier = format!(
        "{} on the host, {size} GiB of each GPU, at most {peak} in use; {hits} of the tokens that the GPU did not hold were loaded; {} \
         evicted",
        plural(u64::from(of.tier.num_cpu_blocks), "block"),
        plural(counted.evicted_blocks, "block"),
    );
    page.paragraph("host tier  ", &tier);
    let wait = number(of.mean_load_wait_ms);
    let both = format!(
        "{}, {}; a request that loads waits {wait} ms on average",
        copies("loads", &counted.loads),
        copies("stores", &counted.stores)
    );
    page.paragraph("transfers  ", &both);
    page.paragraph("pays       ", &pays("load", of.break_even.as_ref(), &of.longest));
    let mut without_disk = None;
    if let Some(disk) = &of.disk {
        disk::lay_out(disk, page);
        without_disk = disk.without_disk.as_ref();
    }
    let without = of.without_tier.as_ref();
    let servers = [("with", Some(&of.with_tier)), ("without disk", without_disk), ("without", without)];
    let servers: Vec<(&str, &ServedLoad)> = servers.into_iter().filter_map(|(name, of)| Some((name, of?))).collect();
    if servers.len() > 1 {
        page.blank();
        let rows = Rows::of(servers)
            .left("host tier", |(name, _)| (*name).to_owned())
            .right("TTFT mean ms", |(_, of)| number(of.ttft_mean_ms))
            .right("TTFT p90 ms", |(_, of)| number(of.ttft_p90_ms))
            .right("E2E mean ms", |(_, of)| number(of.e2e_mean_ms))
            .right("prompt tokens computed", |(_, of)| count(of.prefill_tokens))
            .right("preemptions", |(_, of)| count(of.preemptions));
        page.rows(&rows, &["preemptions", "TTFT p90 ms"]);
    }
}

/// Copies of a direction in words.
pub(super) fn copies(name: &str, of: &TransferCounters) -> String {
    format!("{} {name} of {} GiB", count(of.count), number(Some(of.bytes as f64 / GIB)))
}

/// The lengths from which a load or a read pays, in words.
pub(super) fn pays(name: &str, break_even: Option<&Comparison>, longest: &Comparison) -> String {
    let both = |of: &Comparison| {
        format!("{} ms to {name}, {} ms to compute", number(Some(of.load_ms)), number(Some(of.saved_ms)))
    };
    let at_most = format!("{} tokens: {}", count(u64::from(longest.tokens)), both(longest));
    match break_even {
        Some(of) => format!("a {name} pays from {} tokens on ({}); {at_most}", count(u64::from(of.tokens)), both(of)),
        None => format!("a {name} never pays: computing a prefix is faster at every length; {at_most}"),
    }
}
