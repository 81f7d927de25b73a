//! Laws over every built-in model and GPU: compiled steps agree with their operators, and more work is not faster. The tests take a
//! sample; `RIDGEPOINT_LAW_STEP_MODELS=8000` takes nearly all step models, with some 110,000 batches each.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of tokens are small")]

use ridgepoint::{Deployment, Hardware, Model, Options, Request, StepModel, hardware, model};

/// Largest relative difference that compiling may make.
const COMPILED: f64 = 1e-3;

/// Share by which a step with more work may be faster: what interpolation between noisy rows leaves.
const FALL: f64 = 0.02;

/// Batches of each step model.
const BATCHES: usize = 14;

/// Step models of a sample.
const SAMPLE: usize = 60;

/// Longest context of a batch, tokens.
const MOST_TOKENS: u64 = 200_000;

/// Random numbers that are the same in every run (Knuth's MMIX constants).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }

    /// A number up to `most` whose digits are as often few as many.
    fn up_to(&mut self, most: u64) -> u32 {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        ((most.max(1) as f64).ln() * share).exp().round() as u32
    }
}

/// Decodes of like lengths, chunks, or both.
fn batch(random: &mut Random, longest: u64) -> Vec<Request> {
    let kind = random.below(10);
    let mut batch = Vec::new();
    if kind < 7 {
        let (count, length) = (random.up_to(512), u64::from(random.up_to(longest.min(60_000))));
        batch.extend((0..count).map(|_| Request::decode((length / 2 + random.below(length + 1)).max(1) as u32)));
    }
    if kind > 3 {
        let count = if random.below(3) > 0 { 1 } else { 1 + random.below(5) };
        batch.extend((0..count).map(|_| {
            let computed = if random.below(2) == 0 { 0 } else { random.up_to(longest / 2) };
            Request::new(computed, random.up_to((longest / 2).min(8192)), random.below(2) == 0)
        }));
    }
    batch
}

/// The batch with one decode, some tokens of its chunk, one prompt or more cached tokens on top.
fn grown(random: &mut Random, batch: &[Request], longest: u64) -> Vec<Request> {
    let mut more = batch.to_vec();
    match random.below(4) {
        0 => {
            let alike = batch.iter().rev().find(|request| request.num_scheduled_tokens == 1);
            more.push(Request::decode(alike.map_or(1000, |request| request.num_computed_tokens)));
        }
        1 => {
            let added = if random.below(2) == 0 { 1 } else { random.up_to(512) };
            if let Some(chunk) = more.iter_mut().find(|request| request.num_scheduled_tokens > 1) {
                chunk.num_scheduled_tokens += added;
            }
        }
        2 => more.push(Request::prefill(random.up_to(2048), 0)),
        _ => {
            let factor = 1.0 + random.below(1000) as f64 / 1000.0;
            for request in &mut more {
                let tokens = (f64::from(request.num_computed_tokens) * factor) as u32;
                if u64::from(tokens + request.num_scheduled_tokens) <= longest {
                    request.num_computed_tokens = tokens;
                }
            }
        }
    }
    more
}

/// Calls `law` for random batches of step models, evenly spread over all models, GPUs and tensor-parallel sizes that are possible.
/// It returns a fault; the test fails if there is one.
fn each_step_model(mut law: impl FnMut(&StepModel, &mut Random, u64) -> Option<String>) {
    let sample =
        std::env::var("RIDGEPOINT_LAW_STEP_MODELS").ok().and_then(|count| count.parse().ok()).unwrap_or(SAMPLE);
    let models = model::builtin_names().into_iter().flat_map(|name| [1, 2, 4, 8].map(|gpus| (name, gpus)));
    let all: Vec<_> = models.flat_map(|of| hardware::builtin_names().into_iter().map(move |gpu| (of, gpu))).collect();
    let (mut random, mut faults, mut cases) = (Random(17), Vec::new(), 0);
    for index in 0..sample.min(all.len()) {
        let ((name, gpus), gpu) = all[if sample < all.len() { random.below(all.len() as u64) as usize } else { index }];
        let (model, hardware) = (Model::builtin(name).unwrap(), Hardware::find(gpu).unwrap());
        let deployment = Deployment::tensor_parallel(gpus);
        let Ok(steps) = StepModel::with_options(&model, &hardware, &deployment, &Options::default()) else { continue };
        let longest = model.max_position_embeddings.min(MOST_TOKENS);
        for _ in 0..BATCHES {
            cases += 1;
            faults.extend(law(&steps, &mut random, longest).map(|fault| format!("{name} on {gpus} × {gpu}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{} of {cases} batches:\n{}", faults.len(), faults.join("\n"));
    assert!(cases > sample * BATCHES / 2, "most step models are possible: {cases}");
}

/// Decodes by number and mean length, and chunks.
fn described(batch: &[Request]) -> String {
    let is_decode = |request: &&Request| request.num_scheduled_tokens == 1;
    let tokens: u64 = batch.iter().filter(is_decode).map(|of| u64::from(of.num_computed_tokens)).sum();
    let chunks = batch.iter().filter(|of| !is_decode(of));
    let chunks: Vec<String> =
        chunks.map(|of| format!("{}@{}", of.num_scheduled_tokens, of.num_computed_tokens)).collect();
    let decodes = batch.iter().filter(is_decode).count();
    format!("{decodes} decodes of {} tokens, chunks {chunks:?}", tokens / (decodes as u64).max(1))
}

#[test]
fn compiled_steps_of_every_model_and_gpu_agree_with_their_operators() {
    each_step_model(|steps, random, longest| {
        let batch = batch(random, longest);
        let (compiled, by_operator) = (steps.step_time_us(&batch), steps.estimate_unchecked(&batch).step_time_us);
        let difference = compiled / by_operator - 1.0;
        (difference.abs() > COMPILED)
            .then(|| format!("{compiled} for {by_operator} µs ({:+.3} %), {}", 100.0 * difference, described(&batch)))
    });
}

#[test]
fn more_work_is_not_faster_unless_a_note_says_so() {
    each_step_model(|steps, random, longest| {
        let batch = batch(random, longest);
        let more = grown(random, &batch, longest);
        let [less_us, more_us] = [&batch, &more].map(|batch| steps.step_time_us(batch));
        let is_noted = |batch: &Vec<Request>| {
            steps.estimate_unchecked(batch).warnings.iter().any(|warning| warning.contains("may be faster"))
        };
        (more_us < less_us * (1.0 - FALL) && !is_noted(&batch) && !is_noted(&more)).then(|| {
            let fall = 100.0 * (more_us / less_us - 1.0);
            format!("{fall:+.1} % from {less_us} µs, {} to {}", described(&batch), described(&more))
        })
    });
}

/// One decode more than the slowest rows of per-tensor fp8 on Blackwell, and rows whose kernels change.
#[test]
fn single_slow_rows_make_no_step_of_less_work_slower() {
    for (name, gpu, gpus) in [("qwen3-32b-fp8-static-pertensor", "b200_sxm", 8), ("qwen3.6-27b-nvfp4", "b300_sxm", 2)] {
        let (model, hardware) = (Model::builtin(name).unwrap(), Hardware::find(gpu).unwrap());
        let steps = StepModel::new(&model, &hardware, &Deployment::tensor_parallel(gpus)).unwrap();
        let us = |decodes: usize| steps.step_time_us(&vec![Request::decode(100); decodes]);
        let mut before = us(1);
        for decodes in 2..=300 {
            let now = us(decodes);
            assert!(now > before * (1.0 - FALL), "{name} on {gpu}: {before} and {now} µs of {decodes} decodes");
            before = now.max(before);
        }
    }
}
