//! A made-up `kv_events.jsonl` with planted rates: queues, contention, scatter, and ends that only the end of a step notices.

use rand::RngExt;
use rand_distr::{Distribution, LogNormal};
use rand_pcg::Pcg64;
use serde_json::{Value, json};

/// What is planted.
#[derive(Debug, Clone, Copy)]
pub struct Planted {
    pub latency_us: [f64; 2],
    pub block_us: [f64; 2],
    pub contention: f64,
    pub scatter: f64,
    /// Steps.
    pub steps: usize,
    /// Shortest and longest step, µs.
    pub step_us: (f64, f64),
    /// Share of steps that begin a transfer, by direction.
    pub share: [f64; 2],
    /// Most blocks of a transfer.
    pub most_blocks: u64,
}

/// A queue of the simulation.
#[derive(Default)]
struct Lane {
    /// Begin, blocks, work left.
    waiting: std::collections::VecDeque<(f64, u64, f64)>,
}

/// The media of a store and of a load.
const MEDIA: [[&str; 2]; 2] = [["GPU", "CPU"], ["CPU", "GPU"]];

/// Transfers in small time steps, which share no code with the fit, as a line for each step that begins or ends one.
pub fn kv_events(planted: &Planted, seed: u64) -> String {
    let mut random = Pcg64::new(u128::from(seed), 7);
    let noise = LogNormal::new(-0.5 * planted.scatter.powi(2), planted.scatter).unwrap();
    let mut lanes = [Lane::default(), Lane::default()];
    let mut ends: Vec<(usize, f64, f64, u64)> = Vec::new();
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
            for (of, lane) in lanes.iter_mut().enumerate() {
                if let Some((begun, blocks, left)) = lane.waiting.front_mut() {
                    *left -= span * speed;
                    if *left <= 1e-9 {
                        ends.push((of, *begun, now, *blocks));
                        lane.waiting.pop_front();
                    }
                }
            }
        }
        now = next;
    }
    noticing.push(now);
    let mut events: Vec<Vec<Value>> = vec![Vec::new(); noticing.len()];
    for (id, (of, begun, end, blocks)) in ends.iter().enumerate() {
        let step = |us: f64| noticing.partition_point(|at| *at < us).min(noticing.len() - 1);
        let (begun, end, [from, to]) = (step(*begun), step(*end), MEDIA[*of]);
        events[begun].push(json!(["TransferInitiated", id, "r", from, to, blocks, begun]));
        events[end].push(json!(["TransferCompleted", id, "r", from, to, blocks, true, end]));
    }
    let line = |(step, events): (usize, &Vec<Value>)| {
        json!([1_700_000_000.0 + noticing[step] / 1e6, events, null, step]).to_string() + "\n"
    };
    events.iter().enumerate().filter(|(_, events)| !events.is_empty()).map(line).collect()
}
