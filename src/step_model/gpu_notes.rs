//! What a user should know of a GPU's features: formats and kernels that it lacks, what is assumed of its links, and weights beyond its memory.

use crate::deployment::Deployment;
use crate::dtype::DType;
use crate::efficiency::{EfficiencyMode, Timer};
use crate::error::Error;
use crate::hardware::{Architecture, Hardware};
use crate::kv_capacity::device_memory_bytes;
use crate::physics::{Operator, OperatorGroup, StepPlan};
use crate::units::GIB;

/// Remarks on a GPU that computes in fp16 what a model has in bf16, on one that is too old for FlashAttention, and on peer access that is
/// assumed.
pub(super) fn gpu_notes(timers: &[(Operator, Timer)], hardware: &Hardware, mode: EfficiencyMode) -> Vec<String> {
    let mut notes = Vec::new();
    let name = &hardware.display_name;
    let lacks_bf16 = hardware.peak_dense_flop_per_s(DType::Bfloat16).is_err();
    let is_bf16 = |operator: &Operator| operator.compute_dtype == DType::Bfloat16 && operator.flops > 0.0;
    if lacks_bf16 && timers.iter().any(|(operator, _)| is_bf16(operator)) {
        notes.push(format!(
            "{name} has no bf16 unit: predicted in float16, which vLLM takes there for models in bfloat16 (dtype = half)"
        ));
    }
    if mode == EfficiencyMode::Tables && matches!(hardware.architecture, Architecture::Volta | Architecture::Turing) {
        notes.push(format!(
            "FlashAttention and Marlin kernels as measured need compute capability 8.0: those that engines run on {name} instead were not \
             measured and may be much slower"
        ));
    }
    let has_collectives = timers.iter().any(|(operator, _)| operator.group == OperatorGroup::Communication);
    if let Some(peers) = hardware.peer_access().filter(|peers| peers.is_assumed && has_collectives) {
        let (access, other) = if peers.is_there { ("to have", "without") } else { ("to lack", "with") };
        notes.push(format!(
            "GPUs over PCIe are assumed {access} peer access, which the card and its host decide; the interval reaches the time {other} it. \
             peer_access = true or false says which"
        ));
    }
    notes
}

/// A warning if the weights alone exceed the memory that the engine may use: the time is that of a GPU with room for them.
pub(super) fn weights_that_do_not_fit(plan: &StepPlan, hardware: &Hardware, deployment: &Deployment) -> Option<String> {
    let weights_bytes = plan.most_gpu_weight_bytes;
    let device_bytes = device_memory_bytes(hardware);
    let usable_bytes = device_bytes * deployment.gpu_memory_utilization;
    (weights_bytes > usable_bytes).then(|| {
        format!(
            "the weights take {:.1} GiB of each GPU, {:.1} GiB more than gpu_memory_utilization = {} of {:.0} GiB leaves: \
             the engine would not start; a larger tensor_parallel_size or a quantised checkpoint would fit",
            weights_bytes / GIB,
            (weights_bytes - usable_bytes) / GIB,
            deployment.gpu_memory_utilization,
            device_bytes / GIB
        )
    })
}

/// A deployment over several chips that are not linked.
pub(super) fn no_link(hardware: &Hardware, deployment: &Deployment) -> Error {
    let sizes = [
        ("tensor_parallel_size", deployment.tensor_parallel_size),
        ("pipeline_parallel_size", deployment.pipeline_parallel_size),
        ("data_parallel_size", deployment.data_parallel_size),
    ];
    let asked = sizes.iter().filter(|(_, size)| *size > 1).map(|(key, size)| format!("{key} = {size}"));
    let problem = format!(
        "has no interconnect, which {} needs: add [interconnect] with kind, unidirectional_bytes_per_s, source and retrieved to its file",
        asked.collect::<Vec<_>>().join(" with ")
    );
    Error::invalid(hardware.name.as_str(), vec![problem])
}
