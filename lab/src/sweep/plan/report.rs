//! The answer of a plan. Keys of its JSON are stable: keys are added, never renamed.

use ridgepoint_replay::{Resource, RouterKind};
use serde::Serialize;

use super::super::row::Row;

/// The answer of a plan.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanReport {
    /// Deployments that hold, the cheapest first; of equal costs the fewest GPUs.
    pub deployments: Vec<PlannedDeployment>,
    /// The best that does not hold, where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest_miss: Option<NearestMiss>,
    /// Servers that no deployment of the list is made of, with the reason.
    pub left_out: Vec<NotPlanned>,
    /// Servers on the edge of what is possible: none of the others has both more tokens per second and GPU and more per user.
    pub front: Vec<FrontPoint>,
    /// The load that must hold, in requests (sessions) per second, or users; growth included.
    pub load: f64,
    /// Whether `load` counts users.
    pub load_is_users: bool,
    /// The limits.
    pub slo: String,
    /// Number of servers and of deployments that were judged.
    pub servers: usize,
    /// Deployments that were replayed whole.
    pub judged: usize,
    /// Remarks on the whole plan.
    pub warnings: Vec<String>,
}

/// A deployment that holds the load.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedDeployment {
    /// The command that starts each server that answers.
    pub serve_command: String,
    /// The command that starts each server that computes prompts for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_command: Option<String>,
    /// The engine, with the version that is predicted.
    pub engine: String,
    /// GPU, by its own name.
    pub hardware: String,
    /// GPUs of all replicas.
    pub num_gpus: u64,
    /// Servers that answer.
    pub replicas: u32,
    /// Servers that compute prompts for them; 0 where each computes its own.
    pub prefill_replicas: u32,
    /// How requests are spread over them; `None` of one.
    pub router: Option<RouterKind>,
    /// Whether it holds.
    pub holds: bool,
    /// The limit that is nearest to breaking.
    pub binding_limit: Option<String>,
    /// The resource behind it.
    pub binding_resource: Option<Resource>,
    /// How far the figure of that limit is below it, % of the limit.
    pub margin_pct: Option<f64>,
    /// The same of all limits.
    pub margins: String,
    /// The highest load that holds, of the first deployment alone: requests per second, or users.
    pub highest_load: Option<f64>,
    /// Whether no higher load was tried.
    pub highest_load_is_open: bool,
    /// Cost of all GPUs for an hour, in the currency of the prices.
    pub cost_per_hour: Option<f64>,
    /// Cost of a million output tokens at this load.
    pub cost_per_million_output_tokens: Option<f64>,
    /// Requests in each replay that it was judged by.
    pub num_requests: u64,
    /// What clients see, and the server with its defaults: means over the seeds.
    pub metrics: Row,
}

/// A deployment that does not hold.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NearestMiss {
    /// The command that starts each server.
    pub serve_command: String,
    /// GPU, by its own name.
    pub hardware: String,
    /// GPUs of all replicas.
    pub num_gpus: u64,
    /// Servers that answer.
    pub replicas: u32,
    /// Servers that compute prompts for them; 0 where each computes its own.
    pub prefill_replicas: u32,
    /// The limits that it breaks, with its figures.
    pub limits_broken: String,
    /// How far the worst is above its limit, %.
    pub miss_pct: f64,
    /// What would help.
    pub help: Vec<String>,
    /// What clients see.
    pub metrics: Row,
}

/// A server that is in no deployment.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotPlanned {
    /// Model, GPU and the keys in which it differs from the others.
    pub server: String,
    /// Why.
    pub reason: String,
}

/// A server under one load.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrontPoint {
    /// Model, GPU and the keys in which it differs from the others.
    pub server: String,
    /// The engine, with the version that is predicted.
    pub engine: String,
    /// Load of the server, in the unit of the plan's load.
    pub load: f64,
    /// Output tokens per second and GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Output tokens per second of a user: 1 over the mean TPOT.
    pub tokens_per_s_per_user: f64,
}
