//! Made-up transfers with planted rates: queues, contention, scatter, and ends that only the end of a step notices.

use rand::RngExt;
use rand_distr::{Distribution, LogNormal};
use rand_pcg::Pcg64;

use super::notice::{Notice, Notices};
use super::paired::{Direction, PairedTransfer};

/// What is planted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planted {
    pub(super) latency_us: [f64; 2],
    pub(super) block_us: [f64; 2],
    pub(super) contention: f64,
    pub(super) scatter: f64,
    /// Steps.
    pub(super) steps: usize,
    /// Shortest and longest step, µs.
    pub(super) step_us: (f64, f64),
    /// Share of steps that begin a transfer, by direction.
    pub(super) share: [f64; 2],
    /// Most blocks of a transfer.
    pub(super) most_blocks: u64,
}

/// A queue of the simulation.
#[derive(Default)]
struct Lane {
    /// Begin, blocks, work left.
    waiting: std::collections::VecDeque<(f64, u64, f64)>,
}

/// Transfers in small time steps, which share no code with the fit.
pub(super) fn generate(planted: &Planted, seed: u64) -> Vec<PairedTransfer> {
    let mut random = Pcg64::new(u128::from(seed), 7);
    let noise = LogNormal::new(-0.5 * planted.scatter.powi(2), planted.scatter).unwrap();
    let mut lanes = [Lane::default(), Lane::default()];
    let mut ends: Vec<(Direction, f64, f64, u64)> = Vec::new();
    let mut noticing = Vec::new();
    let mut now = 0.0;
    for _ in 0..planted.steps {
        noticing.push(now);
        for (of, lane) in lanes.iter_mut().enumerate() {
            if random.random::<f64>() < planted.share[of] {
                // Most transfers are small.
                let share: f64 = random.random::<f64>().powi(2);
                let blocks = 1 + (share * planted.most_blocks as f64) as u64;
                let work = planted.latency_us[of] + planted.block_us[of] * blocks as f64;
                lane.waiting.push_back((now, blocks, work * noise.sample(&mut random)));
            }
        }
        let next = now + random.random_range(planted.step_us.0..planted.step_us.1);
        while now < next {
            let busy = lanes.iter().all(|lane| !lane.waiting.is_empty());
            let speed = if busy { planted.contention } else { 1.0 };
            let left = lanes.iter().filter_map(|lane| lane.waiting.front()).map(|(.., left)| left / speed);
            let span = left.fold(next - now, f64::min);
            now += span;
            for (lane, direction) in lanes.iter_mut().zip(Direction::BOTH) {
                if let Some((begun, blocks, left)) = lane.waiting.front_mut() {
                    *left -= span * speed;
                    if *left <= 1e-9 {
                        ends.push((direction, *begun, now, *blocks));
                        lane.waiting.pop_front();
                    }
                }
            }
        }
        now = next;
    }
    noticing.push(now);
    // Steps without an event leave no batch.
    let notice = |end: f64| {
        let step = noticing.partition_point(|at| *at < end).min(noticing.len() - 1);
        Notice { at_us: noticing[step], step: Some(step as u64) }
    };
    let known = Notices::new(ends.iter().flat_map(|(_, begun, end, _)| [notice(*begun), notice(*end)]).collect());
    let transfer = |(direction, begun_us, end, blocks): &(Direction, f64, f64, u64)| {
        let noticed = notice(*end);
        let (unfinished_us, unfinished_sd_us) = known.before(noticed);
        PairedTransfer {
            direction: *direction,
            begun_us: *begun_us,
            unfinished_us,
            unfinished_sd_us,
            noticed_us: noticed.at_us,
            blocks: *blocks,
            is_fitted: true,
        }
    };
    ends.iter().map(transfer).collect()
}
