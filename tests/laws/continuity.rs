//! Laws of neighbouring steps over all built-in models, GPUs and tensor-parallel sizes: a request or a token more makes a step
//! neither much longer nor shorter.

use std::sync::Mutex;

use ridgepoint::physics::CudaGraphs;
use ridgepoint::{Deployment, Hardware, Model, Options, Request, StepModel};

/// Most that a step may grow by, but where its tokens, or the rows of its graph, grow by more.
const JUMP: f64 = 1.3;
/// The same one row beyond a multiple of 128, where rows were measured and the next tile of every projection begins.
const JUMP_TO_TILE: f64 = 1.35;
/// Least share of a step's time that a larger one takes.
const FALL: f64 = 0.97;
/// The same from a token to two after cached ones: the first is a decode, which shares its call with other decodes at their mean context.
const FALL_TO_CHUNK: f64 = 0.95;

/// Steps that measured rows make an exception of.
fn is_measured_so(model: &str, what: &str, tokens: u32) -> bool {
    // fp8 kernels were measured at multiples of 128 rows and one row beyond, which takes up to 1.6 times as long.
    let is_fp8_tile = model.contains("fp8") && [1, 65].contains(&(tokens % 128));
    // Without groups of query heads, decodes of long contexts were measured to leave most of an Ampere GPU idle.
    let is_unsplit = model.starts_with("llama-2-") && what == "64 decodes and a chunk after 30000" && tokens == 2;
    // Chunks of latent attention run other kernels than its decodes.
    let is_latent = model.starts_with("deepseek") || model.starts_with("kimi");
    is_fp8_tile || is_unsplit || (is_latent && what.contains("after") && tokens == 2)
}

/// Compares neighbours from 1 to `most`, and says what jumps or falls.
fn scan(
    model: &str,
    place: &str,
    what: &str,
    most: u32,
    graphs: &CudaGraphs,
    mut us: impl FnMut(u32) -> f64,
) -> Vec<String> {
    let rows = |n: u32| f64::from(n).max(graphs.padded_tokens(u64::from(n)).unwrap_or(0) as f64);
    let mut before = us(1);
    let mut found = Vec::new();
    for n in 2..=most {
        let now = us(n);
        let tile = if n % 128 == 1 { JUMP_TO_TILE } else { JUMP };
        let jump = tile.max(rows(n) / rows(n - 1)).max(f64::from(n) / f64::from(n - 1));
        let fall = if n == 2 && what.contains("after") { FALL_TO_CHUNK } else { FALL };
        if !(fall * before..=jump * before).contains(&now) && !is_measured_so(model, what, n) {
            found.push(format!("{model} on {place}, {what}: {} to {n} take {before:.0} and {now:.0} µs", n - 1));
        }
        before = now;
    }
    found
}

#[test]
fn neighbours_take_similar_times() {
    let found = Mutex::new(Vec::new());
    let gpus = Mutex::new(ridgepoint::hardware::builtin_names());
    let next = || gpus.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(gpu) = next() {
                    found.lock().unwrap().extend(on(gpu));
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{} neighbours:\n{}", found.len(), found[..found.len().min(40)].join("\n"));
}

fn on(gpu: &str) -> Vec<String> {
    let hardware = Hardware::find(gpu).unwrap();
    let mut found = Vec::new();
    for name in ridgepoint::model::builtin_names() {
        let model = Model::builtin(name).unwrap();
        for tp in [1, 2, 4, 8] {
            let deployment = Deployment::tensor_parallel(tp);
            let options = Options::uncorrected();
            // Not every model has heads for every size.
            let Ok(steps) = StepModel::with_options(&model, &hardware, &deployment, &options) else { continue };
            let (graphs, place) = (CudaGraphs::new(&deployment), format!("{gpu} × {tp}"));
            for context in [100, 30_000] {
                let decodes = vec![Request::decode(context); 520];
                found.extend(scan(name, &place, &format!("decodes of {context}"), 520, &graphs, |n| {
                    steps.step_time_us(&decodes[..n as usize])
                }));
            }
            for context in [0, 8000, 30_000] {
                let what = if context == 0 { "a prompt".to_owned() } else { format!("a chunk after {context}") };
                let chunk = |n| [Request::prefill(n, context)];
                found.extend(scan(name, &place, &what, 1100, &graphs, |n| steps.step_time_us(&chunk(n))));
            }
            for context in [500, 30_000] {
                let mut batch = vec![Request::decode(700); 65];
                found.extend(scan(
                    name,
                    &place,
                    &format!("64 decodes and a chunk after {context}"),
                    700,
                    &graphs,
                    |n| {
                        batch[64] = Request::prefill(n, context);
                        steps.step_time_us(&batch)
                    },
                ));
            }
        }
    }
    found
}
