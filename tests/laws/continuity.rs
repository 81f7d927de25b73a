//! A law of neighbouring steps over all built-in models, GPUs and tensor-parallel sizes: a chunk of a few tokens after cached ones takes
//! about as long as the decode that it exceeds.

use ridgepoint::dtype::WeightFormat;
use ridgepoint::hardware::Architecture;
use ridgepoint::model::Attention;
use ridgepoint::{Deployment, Hardware, Model, Options, Request, StepModel};

/// Most that a step may grow by from one token to two: twice the experts, and twice the rows. vLLM 0.24's experts of Mixtral were measured
/// to take 2.2 times as long for two tokens as for one on H100.
const JUMP: f64 = 2.1;
/// The same on an H20, whose capped peaks are a seventh of those of the H100 whose tables it borrows: attention over 30,000 tokens and experts
/// take up to 2.45 times as long, as rows that pad a tile cost seven times as much there. No kernel of it was measured.
const CAPPED_JUMP: f64 = 2.5;
/// Least share of a step's time that one with more tokens takes: measured projections of a few rows fall by up to 7 %.
const FALL: f64 = 0.9;

/// vLLM 0.24's fp8 projections of one row take 2.2 to 2.6 times those of two on B200, GB200 and B300 (medians over 390
/// matrices), which others borrow.
fn one_row_is_measured_slow(model: &Model, hardware: &Hardware) -> bool {
    // Some checkpoints have the projections of attention and states alone in fp8.
    let has_fp8_projections = model.layers.iter().any(|layer| match &layer.attention {
        Attention::Gqa(gqa) => gqa.qkv_weights == WeightFormat::Fp8,
        Attention::State(mixer) => mixer.in_weights == WeightFormat::Fp8,
        Attention::Mla(_) | Attention::None => false,
    });
    matches!(hardware.architecture, Architecture::Blackwell | Architecture::BlackwellConsumer)
        && (has_fp8_projections || model.main_weight_format() == Some(WeightFormat::Fp8))
}

#[test]
fn a_chunk_of_two_tokens_takes_about_as_long_as_a_decode() {
    let mut found = Vec::new();
    let mut compared = 0;
    for gpu in ridgepoint::hardware::builtin_names() {
        let jump = if gpu == "h20" { CAPPED_JUMP } else { JUMP };
        let hardware = Hardware::find(gpu).unwrap();
        for name in ridgepoint::model::builtin_names() {
            let model = Model::builtin(name).unwrap();
            // Chunks of latent attention run other kernels than its decodes.
            if model.layers.iter().any(|layer| matches!(layer.attention, Attention::Mla(_))) {
                continue;
            }
            for tp in [1, 8] {
                let deployment = Deployment::tensor_parallel(tp);
                // A dozen steps are summed sooner than compiled tables are built. `compiled_laws` tests that both agree.
                let options = Options { operators_only: true, ..Options::uncorrected() };
                // Not every model has heads for every size.
                let Ok(steps) = StepModel::with_options(&model, &hardware, &deployment, &options) else { continue };
                for context in [500, 30_000] {
                    let us = |tokens| steps.step_time_us(&[Request::prefill(tokens, context)]);
                    let (one, two, eight) = (us(1), us(2), us(8));
                    compared += 1;
                    let falls = two < FALL * one && !one_row_is_measured_slow(&model, &hardware);
                    if falls || two > jump * one || eight < FALL * two {
                        found
                            .push(format!("{name} on {gpu} × {tp} after {context}: {one:.0}, {two:.0}, {eight:.0} µs"));
                    }
                }
            }
        }
    }
    assert!(compared > 1500, "{compared}");
    assert!(found.is_empty(), "{} neighbours:\n{}", found.len(), found[..found.len().min(40)].join("\n"));
}
