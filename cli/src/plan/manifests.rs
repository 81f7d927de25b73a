//! A planned deployment as files that start it: a shell script, a Kubernetes Deployment and values of llm-d's Helm chart.

use std::path::{Path, PathBuf};

use ridgepoint_lab::sweep::plan::PlannedDeployment;
use ridgepoint_replay::server_config::launch_words;

use crate::output::{Kind, MANIFEST};
use crate::text::json_name;

/// Port on which the servers listen.
const PORT: u32 = 8000;

/// The files of a deployment in a folder; values of llm-d's chart for vLLM alone, which is what that starts.
pub fn files(of: &PlannedDeployment, folder: &Path) -> Vec<(PathBuf, Kind, String)> {
    let chart = of.engine.starts_with("vllm").then(|| ("llm-d-values.yaml", llm_d(of)));
    let files = [("serve.sh", script(of)), ("deployment.yaml", kubernetes(of))].into_iter().chain(chart);
    files.map(|(name, text)| (folder.join(name), Kind::Manifest, text)).collect()
}

fn about(of: &PlannedDeployment) -> String {
    let PlannedDeployment { engine, hardware, replicas, metrics, .. } = of;
    let behind = of.router.as_ref().map_or_else(String::new, |kind| format!(" behind a router by {}", json_name(kind)));
    format!("{MANIFEST}{replicas} x {engine} on {} GPUs of {hardware}{behind}.\n", metrics.gpus_per_server())
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

/// Words as a YAML list.
fn listed(words: &[String], indent: &str) -> String {
    words.iter().map(|word| format!("{indent}- {}\n", serde_json::Value::from(word.as_str()))).collect()
}

fn kubernetes(of: &PlannedDeployment) -> String {
    let (replicas, gpus) = (of.replicas, of.metrics.gpus_per_server());
    format!(
        "{}apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: llm\nspec:\n  replicas: {replicas}\n  selector:\n    matchLabels:\n      \
         app: llm\n  template:\n    metadata:\n      labels:\n        app: llm\n    spec:\n      containers:\n        - name: server\n          \
         image: {} # pin the tag of {}\n          command:\n{}          ports:\n            - containerPort: {PORT}\n          resources:\n            \
         limits:\n              nvidia.com/gpu: {gpus}\n",
        about(of),
        image(of),
        of.engine,
        listed(&launch_words(&format!("{} --port {PORT}", of.serve_command)), "            "),
    )
}

fn llm_d(of: &PlannedDeployment) -> String {
    let row = &of.metrics;
    let words = launch_words(&of.serve_command);
    // The chart starts the server itself, and takes the arguments after the model.
    let arguments = listed(words.get(3..).unwrap_or_default(), "      ");
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
