//! Whether a deployment fits a model: divisible heads and widths, enough layers and experts.

use crate::deployment::{AttentionBackend, CudagraphMode, Deployment, name_of};
use crate::dtype::WeightFormat;
use crate::error::{Error, Result, each_once};
use crate::model::{Attention, Model, Recurrence, Window};

use super::MAX_WINDOWS;
use super::layer;
use super::pipeline::{bubble_fraction, layers_per_stage};
use super::projection::padded_vocab;
use super::ranks::Ranks;

/// Tensor-parallel sizes that the remedy of an error tries.
const LARGEST_SUGGESTED_TP: u64 = 64;

/// Checks that the model can be split as the deployment asks.
///
/// Returns remarks on unusual but possible settings.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind) with every relation that does not hold.
pub(super) fn check(model: &Model, deployment: &Deployment) -> Result<Vec<String>> {
    let mut problems = deployment.validate().err().map_or_else(Vec::new, |error| error.problems().to_vec());
    let ranks = Ranks::new(deployment);
    let uneven = splits(model, ranks);
    let is_uneven = !uneven.is_empty();
    problems.extend(uneven);
    if is_uneven && ranks.tensor > 1 {
        let fitting: Vec<String> = (1..=LARGEST_SUGGESTED_TP)
            .filter(|tensor| splits(model, Ranks { tensor: *tensor, ..ranks }).is_empty())
            .map(|tensor| tensor.to_string())
            .collect();
        if !fitting.is_empty() {
            problems.push(format!("tensor_parallel_size can be {}", fitting.join(", ")));
        }
    }
    let num_layers = model.num_layers();
    if ranks.pipeline > num_layers {
        problems.push(format!(
            "pipeline_parallel_size = {} is more than the {num_layers} layers; it can be 1 to {num_layers}",
            ranks.pipeline
        ));
    }
    let windows = distinct_windows(model);
    if deployment.cudagraph_mode == Some(CudagraphMode::Full) && has_chunked_attention(&windows) {
        problems.push(
            "cudagraph_mode = FULL needs attention that a graph can hold, which chunked attention is not: vLLM refuses to start; \
             PIECEWISE would do"
                .to_owned(),
        );
    }
    let windows = windows.len();
    if windows > MAX_WINDOWS {
        problems.push(format!("{windows} kinds of attention window; at most {MAX_WINDOWS} are supported"));
    }
    if problems.is_empty() {
        Ok(remarks(model, deployment, ranks))
    } else {
        Err(Error::invalid(format!("{} as deployed", model.name), problems))
    }
}

/// The kinds of window in a model, in order of first appearance.
pub(super) fn distinct_windows(model: &Model) -> Vec<Window> {
    each_once(
        model.layers.iter().flat_map(|group| layer::window(group).into_iter().chain(layer::indexer_window(group))),
    )
}

/// Whether a layer uses chunked local attention, which vLLM never captures in a CUDA graph.
///
/// # Source
/// vLLM, `ChunkedLocalAttention` (`vllm/model_executor/layers/attention/chunked_local_attention.py`).
pub(super) fn has_chunked_attention(windows: &[Window]) -> bool {
    windows.iter().any(|window| matches!(window, Window::Chunked(_)))
}

/// Sizes that the ranks can't share evenly, each problem once.
fn splits(model: &Model, ranks: Ranks) -> Vec<String> {
    let uneven = |by: &str, parts: u64, what: &str, size: u64| {
        (!size.is_multiple_of(parts)).then(|| format!("{by} = {parts} does not divide {what} = {size}"))
    };
    let by_tensor = |what: &str, size: u64| uneven("tensor_parallel_size", ranks.tensor, what, size);
    let mut problems = vec![by_tensor("the padded vocabulary", padded_vocab(model.vocab_size))];
    for group in &model.layers {
        match &group.attention {
            Attention::Gqa(gqa) => {
                problems.push(by_tensor("num_attention_heads", gqa.num_heads));
                let is_replicated = ranks.tensor.is_multiple_of(gqa.num_kv_heads);
                let kv_heads = by_tensor("num_key_value_heads", gqa.num_kv_heads);
                problems.push(kv_heads.filter(|_| !is_replicated));
            }
            Attention::Mla(mla) => problems.push(by_tensor("num_attention_heads", mla.num_heads)),
            Attention::State(mixer) => {
                let (heads, key_heads) = match mixer.recurrence {
                    Recurrence::GatedDeltaNet => ("linear_num_value_heads", "linear_num_key_heads"),
                    Recurrence::Mamba2 => ("mamba_num_heads", "n_groups"),
                };
                problems.push(by_tensor(heads, mixer.num_heads));
                // vLLM, `MambaMixer2`: a single group is replicated.
                let is_replicated = mixer.recurrence == Recurrence::Mamba2 && mixer.num_key_heads == 1;
                problems.push(by_tensor(key_heads, mixer.num_key_heads).filter(|_| !is_replicated));
            }
            Attention::None => {}
        }
        problems.extend(group.dense.iter().map(|dense| by_tensor("intermediate_size", dense.intermediate_size)));
        if let Some(moe) = &group.moe {
            let shared = moe.shared.iter();
            problems.extend(shared.map(|shared| by_tensor("the shared experts' width", shared.intermediate_size)));
            let by = if ranks.data > 1 { "tensor_parallel_size × data_parallel_size" } else { "tensor_parallel_size" };
            problems.push(uneven(by, ranks.expert_slices(), "the experts' width", moe.intermediate_size));
            let (experts, over) = (moe.num_experts, ranks.expert_ranks());
            problems.push(
                (ranks.expert_parallel && over > experts)
                    .then(|| format!("{experts} experts can't be spread over {over} ranks: some would have none")),
            );
        }
    }
    each_once(problems.into_iter().flatten())
}

fn remarks(model: &Model, deployment: &Deployment, ranks: Ranks) -> Vec<String> {
    let mut remarks = Vec::new();
    let limit = model.max_position_embeddings;
    if let Some(asked) = deployment.max_model_len.filter(|asked| u64::from(*asked) > limit) {
        remarks.push(format!("max_model_len = {asked} is beyond the model's max_position_embeddings = {limit}"));
    }
    if let Some(backend) = deployment.attention_backend.filter(|backend| *backend != AttentionBackend::FlashAttn) {
        remarks.push(format!(
            "attention_backend = {}: no kernels of it were measured; fallback: those of the tables",
            name_of(&backend)
        ));
    }
    let has_experts = model.layers.iter().any(|group| group.moe.is_some());
    if deployment.enable_expert_parallel && !has_experts {
        remarks.push("enable_expert_parallel has no effect: the model has no routed experts".into());
    }
    if ranks.data > 1 {
        remarks.push(format!(
            "data_parallel_size = {}: requests are those of one replica, the others are assumed to run the same batch",
            ranks.data
        ));
    }
    if ranks.pipeline > 1 {
        let stages = layers_per_stage(model.num_layers(), ranks.pipeline);
        let slowest_share = stages.iter().copied().max().unwrap_or(0) as f64 / model.num_layers() as f64;
        remarks.push(format!(
            "pipeline_parallel_size = {}: the time is one step's way through all stages; with one batch in flight each \
             stage idles {:.0} % of it (the bubble), a full pipeline finishes a step every {:.0} % of it",
            ranks.pipeline,
            100.0 * bubble_fraction(ranks.pipeline),
            100.0 * slowest_share
        ));
    }
    for group in &model.layers {
        if let Some(moe) = &group.moe {
            let over = ranks.expert_ranks();
            if ranks.expert_parallel && !moe.num_experts.is_multiple_of(over) {
                remarks.push(format!(
                    "{} experts over {over} ranks: the fullest rank, which the step waits for, has {}",
                    moe.num_experts,
                    ranks.local_experts(moe.num_experts)
                ));
            }
            let width = moe.intermediate_size / ranks.expert_slices();
            remarks.extend(uneven_blocks("the experts' width", width, moe.weights));
        }
        if let Some(dense) = &group.dense {
            let width = dense.intermediate_size / ranks.tensor;
            remarks.extend(uneven_blocks("intermediate_size", width, dense.weights));
        }
    }
    each_once(remarks)
}

fn uneven_blocks(what: &str, width: u64, weights: WeightFormat) -> Option<String> {
    let WeightFormat::Fp8Block { rows, .. } = weights else { return None };
    (!width.is_multiple_of(u64::from(rows.max(1)))).then(|| {
        format!("{what} is {width} per rank, no multiple of the fp8 block of {rows}: vLLM may refuse this deployment")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_alternate_are_remarked_on_once() {
        let mut model = Model::find("deepseek-v3").expect("a built-in model");
        model.layers.extend(model.layers.clone());
        let deployment = Deployment { tensor_parallel_size: 32, ..Deployment::default() };
        let remarks = check(&model, &deployment).expect("a possible deployment");
        let of_blocks: Vec<_> = remarks.iter().filter(|remark| remark.contains("fp8 block")).collect();
        assert_eq!(of_blocks.len(), 2, "of dense layers and of experts: {of_blocks:?}");
    }
}
