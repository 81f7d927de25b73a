//! The command that starts a server: the keys of a grid as the flags of its engine.

use ridgepoint::Engine;
use ridgepoint::arguments::{Argument, Engines};
use ridgepoint_replay::server_config::{Beside, ServerConfig, arguments_of};
use serde_json::{Map, Value};

use super::super::point::engine_of;
use super::super::replica_keys::Sharing;
use super::Plan;

/// Keys of a server that are no flags of its engine.
const NO_FLAGS: [&str; 6] = ["model", "hardware", "engine", "precision", "kv_transfers", "as_family"];

impl Plan {
    /// What starts a replica of a server, what starts one that computes prompts for others, and what is wrong with these lines.
    pub(super) fn commands(&self, server: usize, sharing: Sharing) -> (String, Option<String>, Option<String>) {
        let Some(of) = self.sweep.grid.servers.get(server) else { return Default::default() };
        let engine = engine_of(&of.value, &self.sweep.options().engine);
        let line = serve_command(&engine, &self.sweep.served_name(&of.value), &of.keys);
        let problem = differs(&line, &of.value.hardware, &of.value);
        if sharing.prefill == 0 {
            return (line, None, problem);
        }
        let (prefill, decode) = of_pools(&engine, &line);
        (decode, Some(prefill), problem)
    }
}

/// The launch line of a server with these keys.
fn serve_command(engine: &Engine, model: &str, keys: &Map<String, Value>) -> String {
    let rows = arguments_of(engine);
    let (start, joint) = match engine.name() {
        "sglang" => ("python -m sglang.launch_server --model-path", "-"),
        "trtllm" => ("trtllm-serve", "_"),
        _ => ("vllm serve", "-"),
    };
    let mut line = format!("{start} {model}");
    for (key, value) in keys {
        let Some(row) = rows.name_of(key).and_then(|name| rows.iter().find(|row| row.name == name)) else { continue };
        if NO_FLAGS.contains(&row.sets) {
            continue;
        }
        // The engine's own name comes before vLLM's of the same setting.
        let is_own = |own: &&'static Argument| own.sets == row.sets && own.engines == Engines::of(engine);
        let flag = rows.iter().find(is_own).unwrap_or(row).name.replace('_', joint);
        let text = match value {
            Value::Bool(true) => format!("--{flag}"),
            Value::Bool(false) => format!("--no-{flag}"),
            Value::String(text) => format!("--{flag} {text}"),
            Value::Object(_) => format!("--{flag} '{value}'"),
            other => format!("--{flag} {other}"),
        };
        line = format!("{line} {text}");
    }
    if let Some(precision) = keys.get("precision").and_then(Value::as_str).filter(|_| engine.name() != "trtllm") {
        line = format!("{line} --quantization {precision}");
    }
    line
}

/// The launch lines of a prefill replica and of a decode replica of a server. TensorRT-LLM's way of KV is in its config file.
fn of_pools(engine: &Engine, line: &str) -> (String, String) {
    match engine.name() {
        "sglang" => (format!("{line} --disaggregation-mode prefill"), format!("{line} --disaggregation-mode decode")),
        "trtllm" => (line.to_owned(), line.to_owned()),
        _ => {
            let both =
                format!(r#"{line} --kv-transfer-config '{{"kv_connector":"NixlConnector","kv_role":"kv_both"}}'"#);
            (both.clone(), both)
        }
    }
}

/// Why the engine would not start the same server by this line; `None` if it would.
fn differs(line: &str, hardware: &str, of: &ServerConfig) -> Option<String> {
    let over = Map::from_iter([("hardware".to_owned(), Value::String(hardware.to_owned()))]);
    match ServerConfig::parse_with("the launch line", line, &Beside { over, ..Beside::default() }) {
        Err(error) => Some(error.to_string()),
        Ok(read) if read.deployment != of.deployment => {
            Some("the engine would read the launch line as another deployment".to_owned())
        }
        Ok(_) => None,
    }
}
