//! A planned deployment as files that start it: a shell script, a Kubernetes Deployment and values of llm-d's Helm chart.

use std::path::{Path, PathBuf};

use ridgepoint_lab::sweep::plan::PlannedDeployment;
use ridgepoint_replay::server_config::launch_words;

use crate::output::{Kind, MANIFEST};

/// Port on which the servers listen.
const PORT: u32 = 8000;

/// The files of a deployment in a folder.
pub fn files(of: &PlannedDeployment, folder: &Path) -> Vec<(PathBuf, Kind, String)> {
    let file = |name: &str, text: String| (folder.join(name), Kind::Manifest, text);
    vec![file("serve.sh", script(of)), file("deployment.yaml", kubernetes(of)), file("llm-d-values.yaml", llm_d(of))]
}

fn about(of: &PlannedDeployment) -> String {
    let replicas = of.replicas;
    let router = of.router.and_then(|kind| serde_json::to_value(kind).ok());
    let behind = router
        .as_ref()
        .and_then(|kind| kind.as_str())
        .map_or_else(String::new, |kind| format!(" behind a router by {kind}"));
    format!(
        "{MANIFEST}{replicas} x {} on {} GPUs of {}{behind}.\n",
        of.engine,
        of.num_gpus / u64::from(replicas),
        of.hardware
    )
}

fn script(of: &PlannedDeployment) -> String {
    format!("#!/bin/sh\n{}exec {} --port {PORT}\n", about(of), of.serve_command)
}

/// The container image of an engine, without its registry.
fn image(of: &PlannedDeployment) -> &'static str {
    match of.engine.split('-').next() {
        Some("sglang") => "lmsysorg/sglang",
        Some("trtllm") => "tensorrt-llm/release",
        _ => "vllm/vllm-openai",
    }
}

/// The words of the command as a YAML list.
fn command(of: &PlannedDeployment, indent: &str) -> String {
    let words = launch_words(&format!("{} --port {PORT}", of.serve_command));
    words.iter().map(|word| format!("{indent}- {}\n", serde_json::Value::from(word.as_str()))).collect()
}

fn kubernetes(of: &PlannedDeployment) -> String {
    let (replicas, gpus) = (of.replicas, of.num_gpus / u64::from(of.replicas));
    format!(
        "{}apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: llm\nspec:\n  replicas: {replicas}\n  selector:\n    matchLabels:\n      \
         app: llm\n  template:\n    metadata:\n      labels:\n        app: llm\n    spec:\n      containers:\n        - name: server\n          \
         image: {} # pin the tag of {}\n          command:\n{}          ports:\n            - containerPort: {PORT}\n          resources:\n            \
         limits:\n              nvidia.com/gpu: {gpus}\n",
        about(of),
        image(of),
        of.engine,
        command(of, "            "),
    )
}

fn llm_d(of: &PlannedDeployment) -> String {
    let row = &of.metrics;
    let words = launch_words(&of.serve_command);
    // The chart starts the server itself, and takes the arguments after the model.
    let arguments: String =
        words.iter().skip(3).map(|word| format!("      - {}\n", serde_json::Value::from(word.as_str()))).collect();
    let arguments = if arguments.is_empty() { " []\n".to_owned() } else { format!("\n{arguments}") };
    format!(
        "{}modelArtifacts:\n  uri: \"hf://{}\"\n  name: \"{}\"\ndecode:\n  create: true\n  replicas: {}\n  parallelism:\n    tensor: {}\n    data: {}\n  \
         containers:\n    - name: vllm\n      image: {} # pin the tag of {}\n      modelCommand: vllmServe\n      args:{arguments}prefill:\n  create: false\n",
        about(of),
        words.get(2).cloned().unwrap_or_default(),
        row.model,
        of.replicas,
        row.tensor_parallel_size,
        row.data_parallel_size,
        image(of),
        of.engine,
    )
}
