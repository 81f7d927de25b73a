//! The disk behind the host's tier of KV blocks on a page: its copies, its hits, and the length from which a read pays.

use ridgepoint::units::GIB;
use ridgepoint_lab::simulate::DiskReport;

use super::offload::{copies, pays};
use crate::text::{Page, count, number, percent, plural, shown};

/// Puts the disk on a page.
pub fn lay_out(of: &DiskReport, page: &mut Page) {
    let counted = &of.counted;
    let size = number(Some(counted.max_blocks_in_use as f64 * of.tier.block_bytes as f64 / GIB));
    let limit = match of.tier.num_disk_blocks {
        None => "no limit".to_owned(),
        Some(most) => {
            format!("a limit of {}, {} evicted", plural(u64::from(most), "block"), count(counted.evicted_blocks))
        }
    };
    let refused = match counted.refused_reads {
        0 => String::new(),
        refused => format!("; {} found no room on the host", plural(refused, "look-up")),
    };
    let tier = format!(
        "{} on the disk at most, {size} GiB, with {limit}; {} of the tokens that the GPU did not hold were read from it{refused}",
        plural(counted.max_blocks_in_use, "block"),
        shown(of.hit_share, percent),
    );
    page.paragraph("disk tier  ", &tier);
    let copies = format!(
        "{}, {}; a request that asks the disk waits {} ms on average",
        copies("reads", &counted.reads),
        copies("writes", &counted.writes),
        number(of.mean_wait_ms)
    );
    page.paragraph("transfers  ", &copies);
    page.paragraph("pays       ", &pays("read", of.break_even.as_ref(), &of.longest));
}
