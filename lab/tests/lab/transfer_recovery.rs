//! Rates planted in `kv_events.jsonl` are recovered within their 90 % intervals by what reads and fits such files.

use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::transfers::{Estimate, LinkFit, PairedTransfer, fit_link};

use crate::planted_transfers::{Planted, kv_events};

/// Transfers of 0.3 to 20 ms between steps of 6 to 24 ms: a bit of everything.
const MIXED: Planted = Planted {
    latency_us: [150.0, 400.0],
    block_us: [100.0, 140.0],
    contention: 0.7,
    scatter: 0.04,
    steps: 1500,
    step_us: (6_000.0, 24_000.0),
    share: [0.5, 0.4],
    most_blocks: 150,
};

const NAMES: [&str; 5] = ["latency 0", "block time 0", "latency 1", "block time 1", "contention"];

/// The transfers that a file of these events reports.
fn read(planted: &Planted, seed: u64) -> Vec<PairedTransfer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv_events.jsonl");
    std::fs::write(&path, kv_events(planted, seed)).unwrap();
    let format = Format::named("kv-events").unwrap();
    format.read(&path).unwrap().transfers.map_or_else(Vec::new, |log| log.transfers)
}

fn fitted(planted: &Planted, seed: u64) -> LinkFit {
    fit_link(&read(planted, seed)).unwrap()
}

/// For each parameter, in how many of the seeds it is covered, with the mean of value and half width.
fn covered(planted: &Planted, seeds: std::ops::Range<u64>) -> [(usize, f64, f64); 5] {
    let mut counts = [(0, 0.0, 0.0); 5];
    let number = (seeds.end - seeds.start) as f64;
    for seed in seeds {
        let found = fitted(planted, seed);
        let mut of = Vec::new();
        for (at, direction) in found.directions.iter().enumerate() {
            let direction = direction.unwrap();
            of.push((direction.latency_us, planted.latency_us[at]));
            of.push((direction.blocks_per_s, 1e6 / planted.block_us[at]));
        }
        of.push((found.contention.unwrap(), planted.contention));
        for ((count, value, width), (estimate, truth)) in counts.iter_mut().zip(of) {
            let Estimate { value: found, lower, upper } = estimate;
            *count += usize::from((lower..=upper).contains(&truth));
            *value += found / truth / number;
            *width += 0.5 * (upper - lower) / truth / number;
        }
    }
    counts
}

#[test]
fn planted_rates_lie_within_their_intervals() {
    let found = covered(&Planted { steps: 500, ..MIXED }, 0..20);
    assert!(found.iter().all(|(count, ..)| *count >= 16), "{NAMES:?} {found:?}");
    // The block times are known to a tenth, and right.
    assert!([1, 3].iter().all(|at| (found[*at].1 - 1.0).abs() < 0.03 && found[*at].2 < 0.12), "{found:?}");
}

#[test]
fn transfers_that_end_within_a_step_determine_no_rates() {
    let short = Planted { latency_us: [40.0, 60.0], block_us: [2.0, 3.0], steps: 400, ..MIXED };
    assert_eq!(fitted(&short, 1).directions, [None, None]);
    assert_eq!(fit_link(&[]).unwrap().directions, [None, None]);
    let one_size = Planted { most_blocks: 0, steps: 400, ..MIXED };
    let found = fitted(&one_size, 1);
    assert_eq!((found.directions, found.contention), ([None, None], None));
}

#[test]
#[ignore = "takes minutes: cargo test --release -p ridgepoint-lab --test lab -- --ignored --nocapture planted_rates"]
#[expect(clippy::print_stdout, reason = "the table of a test that is run for it")]
fn planted_rates_lie_within_their_intervals_in_85_of_100_seeds() {
    let quick = Planted { step_us: (1_000.0, 4_000.0), share: [0.1, 0.08], steps: 4000, ..MIXED };
    let scenes = [
        ("mixed", MIXED),
        ("quick steps", quick),
        ("busy", Planted { share: [0.9, 0.7], steps: 800, ..MIXED }),
        ("no contention", Planted { contention: 1.0, ..MIXED }),
    ];
    let found = scenes.map(|(_, planted)| covered(&planted, 0..100));
    println!("{:14}{}", "covered of 100", scenes.map(|(scene, _)| format!("{scene:>15}")).concat());
    for (at, name) in NAMES.iter().enumerate() {
        println!("{name:14}{}", found.map(|of| format!("{:>15}", of[at].0)).concat());
    }
    for (at, name) in NAMES.iter().enumerate() {
        let widths = found.map(|of| format!("   {:.3} ± {:.3}", of[at].1, of[at].2));
        println!("{name:14}{}", widths.concat());
    }
    let counts: Vec<usize> = found.iter().flatten().map(|(count, ..)| *count).collect();
    assert!(counts.iter().all(|count| *count >= 85), "{NAMES:?} {counts:?}");
    // A single count of a 90 % interval may well be 98. The mean of all would not be if intervals were merely wide.
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    assert!((88.0..97.0).contains(&mean), "{mean}");
}
