//! The table at the end: best and median of many short runs that take turns, and ratios of the best ones.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ridgepoint::latency::LatencyModel;
use ridgepoint::{Deployment, Hardware, Model, Step, StepModel};

use crate::against::{Against, Batch, batches, decodes};
use crate::{HYBRID_DECODES, HYBRIDS, MODELS};

/// Short runs of each that the best and the median are taken from.
const RUNS: usize = 60;
/// About as long as a short run takes.
const RUN: Duration = Duration::from_micros(500);
/// More than the largest last-level caches hold.
const FLUSH_BYTES: usize = 256 << 20;
const COLD_CALLS: usize = 41;
/// Batches that are gone through in turn for the varied figures.
const VARIED_BATCHES: u32 = 2048;

type Call<'a> = Box<dyn Fn() -> f64 + 'a>;

fn ns_per_call(call: &mut dyn FnMut(u64), calls: u64) -> f64 {
    let started = Instant::now();
    call(calls);
    started.elapsed().as_nanos() as f64 / calls as f64
}

/// Runs `call` as often as asked; compiled once for each closure, so that calls are inlined as in a caller's loop.
fn repeated<'a>(call: impl Fn() -> f64 + 'a) -> Box<dyn FnMut(u64) + 'a> {
    Box::new(move |calls| {
        for _ in 0..calls {
            black_box(call());
        }
    })
}

/// Best and median nanoseconds of each, which take turns.
fn in_turns(loops: &mut [Box<dyn FnMut(u64) + '_>]) -> Vec<(f64, f64)> {
    let calls: Vec<u64> = loops
        .iter_mut()
        .map(|one| {
            let ns = ns_per_call(one, 20).min(ns_per_call(one, 20)).max(1.0);
            (RUN.as_nanos() as f64 / ns).clamp(1.0, 1e6) as u64
        })
        .collect();
    let mut found = vec![Vec::with_capacity(RUNS); loops.len()];
    for _ in 0..RUNS {
        for ((one, calls), found) in loops.iter_mut().zip(&calls).zip(&mut found) {
            found.push(ns_per_call(one, *calls));
        }
    }
    found.into_iter().map(best_and_median).collect()
}

fn best_and_median(mut ns: Vec<f64>) -> (f64, f64) {
    ns.sort_by(f64::total_cmp);
    (ns[0], ns[ns.len() / 2])
}

fn hot(against: &Against) {
    println!("\nhot: the same batch again and again; llama-3.1-8b on an H100; ns, best of {RUNS} runs that take turns");
    println!(
        "{:36}{:>9}{:>9}{:>9}{:>9}{:>11}{:>10}{:>10} | operators, black box, peer-shaped over slice",
        "batch", "slice", "median", "columns", "state", "operators", "black box", "peer¹"
    );
    for batch in batches() {
        let (columns, state) = (batch.columns(), against.state(&batch.requests));
        let requests = &batch.requests[..];
        let mut loops = [
            repeated(|| against.steps.step_time_us(black_box(requests))),
            repeated(|| against.steps.step_time_us(black_box(&columns))),
            repeated(|| against.steps.step_time_us(black_box(&state))),
            repeated(|| against.steps.estimate_unchecked(black_box(requests)).step_time_us),
            repeated(|| against.line.step_time_us(&Step::from(black_box(requests)))),
            repeated(|| against.peer.step_time_us(black_box(requests))),
        ];
        let [slice, columns, state, operators, line, peer] = in_turns(&mut loops)[..] else { return };
        println!(
            "{:36}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>11.0}{:>10.1}{:>10.1} | {:>8.0}x {:>9.2}x {:>11.2}x",
            batch.name,
            slice.0,
            slice.1,
            columns.0,
            state.0,
            operators.0,
            line.0,
            peer.0,
            operators.0 / slice.0,
            line.0 / slice.0,
            peer.0 / slice.0,
        );
    }
    println!("¹ peer-shaped, not the peer: eleven multiply-adds on the sums of one pass, compiled from Rust");
}

/// The same batch again and again, of models with two kinds of token mixers.
fn hybrids() {
    println!("\nhybrids: {HYBRID_DECODES} decodes again and again on an H100; ns, best of {RUNS} runs that take turns");
    println!("{:36}{:>9}{:>9}{:>9}{:>9}{:>11}", "model", "slice", "median", "columns", "state", "operators");
    let batch = Batch::new("", decodes(HYBRID_DECODES));
    let (columns, requests) = (batch.columns(), &batch.requests[..]);
    for (name, gpus) in HYBRIDS {
        let against = Against::new(name, gpus);
        let state = against.state(requests);
        let mut loops = [
            repeated(|| against.steps.step_time_us(black_box(requests))),
            repeated(|| against.steps.step_time_us(black_box(&columns))),
            repeated(|| against.steps.step_time_us(black_box(&state))),
            repeated(|| against.steps.estimate_unchecked(black_box(requests)).step_time_us),
        ];
        let [slice, columns, state, operators] = in_turns(&mut loops)[..] else { return };
        println!(
            "{:36}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>11.0}",
            format!("{name}, TP {gpus}"),
            slice.0,
            slice.1,
            columns.0,
            state.0,
            operators.0
        );
    }
}

/// Many batches in turn, over all models: nothing that branch predictors could learn by heart, nor the nearest cache hold.
fn varied() {
    let all: Vec<Against> = MODELS.iter().map(|(name, gpus)| Against::new(name, *gpus)).collect();
    println!(
        "\nvaried: {VARIED_BATCHES} batches of other sizes and lengths in turn over {} models; ns, best of {RUNS}",
        all.len()
    );
    println!("{:36}{:>9}{:>10}{:>10} | black box, peer-shaped over slice", "batch", "slice", "black box", "peer¹");
    let kinds: [(&str, u32, bool); 3] = [
        ("1 to 127 decodes", 128, false),
        ("1 to 255 decodes", 256, false),
        ("1 to 127 decodes and a chunk", 128, true),
    ];
    for (name, most, with_chunk) in kinds {
        let batches: Vec<Batch> = (0..VARIED_BATCHES)
            .map(|i| {
                // Steps by a number without common factors: sizes come in no order.
                let mut requests = decodes(1 + i * 89 % (most - 1));
                requests.iter_mut().for_each(|r| r.num_computed_tokens += i * 7919 % 4001);
                if with_chunk {
                    requests.push(ridgepoint::Request::prefill(16 + i * 613 % 2033, 0));
                }
                Batch::new(name, requests)
            })
            .collect();
        let turn = |call: &dyn Fn(&Against, &Batch) -> f64| {
            let pairs = all.iter().cycle().zip(&batches);
            pairs.map(|(against, batch)| call(against, batch)).sum::<f64>()
        };
        let mut loops = [
            repeated(|| turn(&|against, batch| against.steps.step_time_us(black_box(&batch.requests)))),
            repeated(|| turn(&|against, batch| against.line.step_time_us(&Step::from(black_box(&batch.requests))))),
            repeated(|| turn(&|against, batch| against.peer.step_time_us(black_box(&batch.requests)))),
        ];
        let [slice, line, peer] = in_turns(&mut loops)[..] else { return };
        let each = f64::from(VARIED_BATCHES);
        println!(
            "{name:36}{:>9.1}{:>10.1}{:>10.1} | {:>8.2}x {:>11.2}x",
            slice.0 / each,
            line.0 / each,
            peer.0 / each,
            line.0 / slice.0,
            peer.0 / slice.0
        );
    }
}

/// Nanoseconds of single calls, each after a walk through more memory than caches hold, less those of reading the clock.
fn cold(against: &Against) {
    println!(
        "\ncold: {} MiB are written before each call, so that neither tables nor batch are in any cache; ns, median of {COLD_CALLS} calls",
        FLUSH_BYTES >> 20
    );
    println!("{:36}{:>9}{:>9}{:>11}{:>10}{:>10}", "batch", "slice", "state", "operators", "black box", "peer¹");
    let mut flushed = vec![0u8; FLUSH_BYTES];
    let mut once = |call: &Call<'_>| {
        let mut ns: Vec<f64> = (0..COLD_CALLS)
            .map(|_| {
                flushed.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
                black_box(&mut flushed);
                black_box(Instant::now().elapsed());
                let started = Instant::now();
                black_box(call());
                started.elapsed().as_nanos() as f64
            })
            .collect();
        ns.sort_by(f64::total_cmp);
        ns[ns.len() / 2]
    };
    let nothing: Call<'_> = Box::new(|| 0.0);
    let clock_ns = once(&nothing);
    for batch in batches()
        .into_iter()
        .filter(|b| ["8 decodes", "128 decodes", "1,024 decodes"].contains(&b.name) || b.requests.len() == 65)
    {
        let (requests, state) = (&batch.requests, against.state(&batch.requests));
        let calls: [Call<'_>; 5] = [
            Box::new(|| against.steps.step_time_us(black_box(requests))),
            Box::new(|| against.steps.step_time_us(black_box(&state))),
            Box::new(|| against.steps.estimate_unchecked(black_box(requests)).step_time_us),
            Box::new(|| against.line.step_time_us(&Step::from(black_box(requests)))),
            Box::new(|| against.peer.step_time_us(black_box(requests))),
        ];
        let ns = calls.each_ref().map(|call| (once(call) - clock_ns).max(0.0));
        println!("{:36}{:>9.0}{:>9.0}{:>11.0}{:>10.0}{:>10.0}", batch.name, ns[0], ns[1], ns[2], ns[3], ns[4]);
    }
}

fn building() {
    println!("\nStepModel::new on an H100; ms, best and median of 15");
    let hardware = Hardware::find("h100").unwrap();
    for (name, gpus) in MODELS {
        let (model, deployment) = (Model::find(name).unwrap(), Deployment::tensor_parallel(gpus));
        let mut call = |calls| {
            for _ in 0..calls {
                black_box(StepModel::new(black_box(&model), &hardware, &deployment).unwrap());
            }
        };
        let (best, median) = best_and_median((0..15).map(|_| ns_per_call(&mut call, 1) / 1e6).collect());
        println!("{name:36}{best:>9.2}{median:>9.2}");
    }
}

pub fn print() {
    let against = Against::new("llama-3.1-8b", 1);
    hot(&against);
    hybrids();
    varied();
    cold(&against);
    building();
}
