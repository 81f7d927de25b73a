//! The table of `predict-step`: what was predicted, the prediction beside its bound, operators, groups, where the times
//! come from, and what deserves a second look.

use ridgepoint::internals::correction::Used;
use ridgepoint::internals::efficiency::{EfficiencyMode, Provenance};
use ridgepoint::internals::units::{duration, si};
use ridgepoint::physics::{GraphMode, OperatorGroup};
use ridgepoint::{Deployment, Hardware, Model, StepEstimate};

use super::text::{count, percent, plural, quantity, rendered, table, width, wrap};
use crate::Prediction;

/// The whole report.
pub fn render(prediction: &Prediction) -> String {
    let step = &prediction.step;
    let width = width();
    let mut out = wrap("", &title(prediction), width);
    out.push_str(&wrap("batch      ", &batch(prediction), width));
    out.push_str(&wrap("launch     ", &launch(step), width));
    if prediction.efficiency != EfficiencyMode::Ideal {
        out.push_str(&wrap("correction ", &correction(prediction), width));
    }
    out.push('\n');
    out.push_str(&format!("step time  {}{}\n", duration(step.step_time_us), interval(prediction)));
    out.push_str(&format!(
        "roofline   {}, {} of the step time\n",
        duration(step.bound_us),
        percent(step.bound_us / step.step_time_us)
    ));
    out.push_str(&format!(
        "work       {} and {} per GPU; MFU {}, MBU {}\n\n",
        quantity(step.total_flops, "FLOP"),
        quantity(step.total_bytes, "B"),
        percent(step.mfu),
        percent(step.mbu)
    ));
    out.push_str(&operators(step));
    out.push('\n');
    out.push_str(&group_table(step));
    out.push('\n');
    let provenance: Vec<String> =
        step.provenance.iter().map(|(kind, share)| format!("{} {}", percent(*share), kind.name())).collect();
    out.push_str(&wrap("times: ", &provenance.join(", "), width));
    for sentence in &prediction.explanation {
        out.push('\n');
        out.push_str(&wrap("- ", sentence, width));
    }
    let warnings = merged(&step.warnings, |name| step.operators.iter().any(|operator| operator.name == name));
    if !warnings.is_empty() {
        out.push('\n');
    }
    for warning in &warnings {
        out.push_str(&wrap("warning: ", warning, width));
    }
    out
}

/// Warnings that say the same of several operators, as one each.
fn merged(warnings: &[String], is_operator: impl Fn(&str) -> bool) -> Vec<String> {
    let mut merged: Vec<(Vec<&str>, &str)> = Vec::new();
    for warning in warnings {
        let (names, text) = match warning.split_once(": ") {
            Some((name, text)) if is_operator(name) => (vec![name], text),
            _ => (Vec::new(), warning.as_str()),
        };
        match merged.iter_mut().find(|(known, said)| !known.is_empty() && !names.is_empty() && *said == text) {
            Some((known, _)) => known.extend(names),
            None => merged.push((names, text)),
        }
    }
    let join = |(names, text): (Vec<&str>, &str)| {
        if names.is_empty() { text.to_owned() } else { format!("{}: {text}", names.join(", ")) }
    };
    merged.into_iter().map(join).collect()
}

fn title(prediction: &Prediction) -> String {
    let mut text = served(&prediction.model, &prediction.hardware, &prediction.deployment);
    if prediction.efficiency == EfficiencyMode::Ideal {
        text.push_str("; textbook roofline, no measured efficiency");
    }
    text
}

/// `llama-3.1-70b on 4 NVIDIA H100 SXM5, tensor_parallel_size 4`: what is served on what, and what of the deployment is not
/// vLLM's default.
pub fn served(model: &Model, hardware: &Hardware, deployment: &Deployment) -> String {
    let gpus = u64::from(deployment.tensor_parallel_size)
        * u64::from(deployment.pipeline_parallel_size)
        * u64::from(deployment.data_parallel_size);
    let number = if gpus == 1 { "one".to_owned() } else { count(gpus) };
    let mut text = format!("{} on {number} {}", model.name(), hardware.display_name());
    for part in deployment_parts(deployment, hardware) {
        text.push_str(", ");
        text.push_str(&part);
    }
    text
}

/// What of the deployment is not vLLM's default, as its flags are called.
fn deployment_parts(deployment: &Deployment, hardware: &Hardware) -> Vec<String> {
    let default = Deployment::default();
    let mut parts = Vec::new();
    let mut differs = |key: &str, value: u32, usual: u32| {
        if value != usual {
            parts.push(format!("{key} {value}"));
        }
    };
    differs("tensor_parallel_size", deployment.tensor_parallel_size, 1);
    differs("pipeline_parallel_size", deployment.pipeline_parallel_size, 1);
    differs("data_parallel_size", deployment.data_parallel_size, 1);
    differs("max_num_seqs", deployment.max_num_seqs, default.max_num_seqs);
    differs("max_num_batched_tokens", deployment.max_num_batched_tokens, default.max_num_batched_tokens);
    if deployment.enable_expert_parallel {
        parts.push("experts in parallel".to_owned());
    }
    if let Some(dtype) = deployment.kv_cache_dtype {
        parts.push(format!("{dtype} KV cache"));
    }
    if let Some(tokens) = deployment.max_model_len {
        parts.push(format!("max_model_len {tokens}"));
    }
    if deployment.tensor_parallel_size > 1 {
        let link = super::hardware::link_name(hardware);
        parts.push(format!("over {link}"));
    }
    parts
}

fn batch(prediction: &Prediction) -> String {
    let shape = &prediction.batch;
    let mut parts = Vec::new();
    if shape.num_decodes > 0 {
        let longest = shape.windows().iter().max_by_key(|w| w.decode_kv_tokens);
        let read = longest.map_or(0, |w| w.decode_kv_tokens);
        parts.push(format!("{} ({} visible KV tokens)", plural(shape.num_decodes, "decode"), count(read)));
    }
    if shape.num_prefills > 0 {
        let context = match shape.prefill_context_tokens {
            0 => String::new(),
            tokens => format!(" after {} computed ones", count(tokens)),
        };
        let chunks = plural(shape.num_prefills, "prompt chunk");
        parts.push(format!("{chunks} ({}{context})", plural(shape.prefill_tokens, "token")));
    }
    format!(
        "{}; {} scheduled, {} sampled",
        parts.join(" and "),
        plural(shape.num_tokens, "token"),
        count(shape.num_sampled)
    )
}

fn launch(step: &StepEstimate) -> String {
    let padded = count(step.padded_tokens);
    match step.graph_mode {
        GraphMode::Full => format!("one CUDA graph, padded to {padded} tokens"),
        GraphMode::Piecewise => format!("piecewise CUDA graphs, padded to {padded} tokens"),
        GraphMode::None => {
            "compiled kernels outside CUDA graphs: more tokens than the largest captured size".to_owned()
        }
        GraphMode::Eager => "every kernel from the host (enforce_eager)".to_owned(),
    }
}

fn correction(prediction: &Prediction) -> String {
    let used = Used::of(prediction.correction.as_ref()).to_string();
    match &prediction.correction {
        None => format!("{used}: operators alone"),
        Some(correction) => {
            let source = &correction.source;
            let models = plural(source.models.len() as u64, "model");
            format!("{used}, fitted on {} of {models} on {}", plural(source.rows, "row"), source.hardware.join(", "))
        }
    }
}

fn interval(prediction: &Prediction) -> String {
    if prediction.efficiency == EfficiencyMode::Ideal {
        return String::new();
    }
    let step = &prediction.step;
    format!("  (90 % interval {} to {})", duration(step.lower_us), duration(step.upper_us))
}

fn operators(step: &StepEstimate) -> String {
    let mut rows = table(&[
        "operator",
        ">count",
        ">FLOPs",
        ">bytes",
        "bound by",
        ">roofline",
        ">time",
        ">efficiency",
        ">share",
        "from",
    ]);
    for operator in &step.operators {
        let is_learned = operator.provenance == Provenance::Learned;
        let physical = |text: String| if is_learned { "-".to_owned() } else { text };
        rows.add_row([
            operator.name.to_owned(),
            physical(count(operator.count)),
            physical(si(operator.flops)),
            physical(si(operator.bytes)),
            physical(operator.bound.name().to_owned()),
            physical(duration(operator.bound_us)),
            duration(operator.time_us),
            physical(percent(operator.efficiency)),
            percent(operator.share),
            operator.provenance.name().to_owned(),
        ]);
    }
    rendered(rows, &["FLOPs", "bytes", "from", "count"])
}

const GROUPS: [(Option<OperatorGroup>, &str); 7] = [
    (Some(OperatorGroup::Projections), "projections"),
    (Some(OperatorGroup::AttentionPrefill), "attention of prompt chunks"),
    (Some(OperatorGroup::AttentionDecode), "attention of decodes"),
    (Some(OperatorGroup::Experts), "experts"),
    (Some(OperatorGroup::Communication), "communication"),
    (Some(OperatorGroup::SmallKernels), "small kernels"),
    (None, "learned beside operators"),
];

fn group_table(step: &StepEstimate) -> String {
    let mut rows = table(&["group", ">roofline", ">time", ">share"]);
    for group in step.groups() {
        let name = GROUPS.iter().find(|(known, _)| *known == group.group).map_or("", |(_, name)| name);
        rows.add_row([name.to_owned(), duration(group.bound_us), duration(group.time_us), percent(group.share)]);
    }
    rows.add_row(["whole step".to_owned(), duration(step.bound_us), duration(step.step_time_us), percent(1.0)]);
    rendered(rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_several_operators_is_said_once() {
        let warnings = ["a: borrowed", "note: borrowed", "b: borrowed", "a: other", "plain", "plain"];
        let warnings: Vec<String> = warnings.into_iter().map(str::to_owned).collect();
        let merged = merged(&warnings, |name| name == "a" || name == "b");
        assert_eq!(merged, ["a, b: borrowed", "note: borrowed", "a: other", "plain", "plain"]);
    }
}
