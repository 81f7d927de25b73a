//! Instructions per call, as valgrind's callgrind counts them: the same on a busy machine as on an idle one.
//!
//! `cargo bench -p ridgepoint-benches --bench instructions`, with valgrind installed. The bench runs itself under callgrind
//! with two numbers of calls; the difference divided by the calls between them is free of start-up and of building models.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::hint::black_box;
use std::process::Command;

use ridgepoint::latency::{BlackBox, LatencyModel};
use ridgepoint::{Deployment, Hardware, Model, Request, RequestColumns, Step, StepModel};

const FEW_CALLS: u64 = 100;
const MANY_CALLS: u64 = 1100;

/// Decodes of a batch, and whether a chunk of 2,048 tokens comes first.
const BATCHES: [(u32, bool); 8] =
    [(1, false), (8, false), (64, false), (128, false), (256, false), (1024, false), (4096, false), (64, true)];

const KINDS: [&str; 6] = ["loop", "slice", "columns", "state", "operators", "black-box"];

fn batch(num_decodes: u32, with_chunk: bool) -> Vec<Request> {
    let chunk = with_chunk.then(|| Request::prefill(2048, 1024));
    chunk.into_iter().chain((0..num_decodes).map(|i| Request::decode(1000 + 8 * i))).collect()
}

/// Makes `calls` of a kind: what callgrind counts.
fn make_calls(kind: &str, requests: &[Request], calls: u64) -> f64 {
    // The widest batch here is one that the deployment allows.
    let deployment = Deployment { max_num_seqs: 4096, ..Deployment::default() };
    let (model, hardware) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let steps = StepModel::new(&model, &hardware, &deployment).unwrap();
    let line = BlackBox { beta0_us: 6000.0, beta1_us: 20.0, beta2_us: 60.0, ..BlackBox::default() };
    let computed: Vec<u32> = requests.iter().map(|r| r.num_computed_tokens).collect();
    let scheduled: Vec<u32> = requests.iter().map(|r| r.num_scheduled_tokens).collect();
    let columns = RequestColumns::new(&computed, &scheduled).unwrap();
    let mut state = steps.state();
    requests.iter().for_each(|request| state.add(request));
    let mut sum = 0.0;
    for _ in 0..calls {
        sum += match kind {
            "slice" => steps.step_time_us(black_box(requests)),
            "columns" => steps.step_time_us(black_box(&columns)),
            "state" => steps.step_time_us(black_box(&state)),
            "operators" => steps.estimate_unchecked(black_box(requests)).step_time_us,
            "black-box" => line.step_time_us(&Step::from(black_box(requests))),
            _ => black_box(requests).len() as f64,
        };
    }
    black_box(sum)
}

/// Instructions of a run of this program under callgrind; `None` without valgrind.
fn instructions(kind: &str, which: usize, calls: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([kind, &which.to_string(), &calls.to_string()])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

fn per_call(kind: &str, which: usize) -> Option<f64> {
    let (few, many) = (instructions(kind, which, FEW_CALLS)?, instructions(kind, which, MANY_CALLS)?);
    Some(many.checked_sub(few)? as f64 / (MANY_CALLS - FEW_CALLS) as f64)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, which, calls] = &arguments[..] {
        let (num_decodes, with_chunk) = BATCHES[which.parse::<usize>().unwrap()];
        make_calls(kind, &batch(num_decodes, with_chunk), calls.parse().unwrap());
        return;
    }
    println!("instructions per call, llama-3.1-8b on an H100; \"loop\" is the loop around the call, and part of each");
    print!("{:24}", "batch");
    KINDS.iter().for_each(|kind| print!("{kind:>11}"));
    println!();
    for (which, (num_decodes, with_chunk)) in BATCHES.into_iter().enumerate() {
        let name = format!("{}{num_decodes} decodes", if with_chunk { "2048-chunk, " } else { "" });
        print!("{name:24}");
        for kind in KINDS {
            let Some(count) = per_call(kind, which) else {
                println!("\nvalgrind is not installed, or does not run here: nothing was counted");
                return;
            };
            print!("{count:>11.1}");
        }
        println!();
    }
}
