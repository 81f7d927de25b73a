//! Launch arguments of the servers of closed loops: a file that names the configuration of each row, and one with the launch command of
//! each configuration.

use std::collections::BTreeMap;

use ridgepoint::Result;
use ridgepoint_replay::input::{Columns, Row, RowReader};
use ridgepoint_replay::server_config::launch_words;
use serde_json::{Map, Value};

/// A file that names the configuration and the image of rows.
const OF_ROWS: Columns = Columns::exactly("id,config_key,image");
/// A file with the launch command of each configuration and image.
const OF_CONFIGURATIONS: Columns = Columns::exactly("config_key,image,framework,launch,config_files").among_others();

/// Arguments that are read from a command. The row itself has the parallel sizes and lengths, and no other argument of these commands has an
/// influence on times here.
const READ: [&str; 25] = [
    "async_scheduling",
    "block_size",
    "cudagraph_mode",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "max_cudagraph_capture_size",
    "max_num_batched_tokens",
    "max_num_seqs",
    "no_async_scheduling",
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "disable_cuda_graph",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "enable_mixed_chunk",
    "max_prefill_tokens",
    "max_running_requests",
    "mem_fraction_static",
    "page_size",
    "schedule_conservativeness",
    "scheduler_recv_interval",
    "enable_chunked_prefill",
    "max_batch_size",
    "max_num_tokens",
];
/// Objects of TensorRT-LLM's file, and their keys that are read.
const OBJECTS: [(&str, &[&str]); 3] = [
    ("kv_cache_config", &["dtype", "free_gpu_memory_fraction", "enable_block_reuse", "tokens_per_block", "max_tokens"]),
    ("cuda_graph_config", &["enable_padding", "max_batch_size", "batch_sizes"]),
    ("scheduler_config", &["capacity_scheduler_policy", "context_chunking_policy"]),
];
/// The shell variable of the requests in flight, the one whose value a row has.
const IN_FLIGHT: &str = "$CONC";
/// SGLang's interval of receiving in InferenceX's scripts, for few and for more requests in flight, and how many are few.
///
/// # Source
/// InferenceX at 843c6254, `benchmarks/dsr1_fp8_b200.sh`: 10, and 30 from 16 in flight. Other scripts with the variable are taken to be alike.
const RECV_INTERVALS: [u32; 2] = [10, 30];
const FEW_IN_FLIGHT: u32 = 16;

/// The arguments of a launch command.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Launch {
    /// Those whose values are known.
    pub arguments: Map<String, Value>,
    /// Those whose values are shell variables, with the variables.
    pub unknown: Vec<String>,
}

/// The engine of a framework.
fn engine_of(framework: &str) -> Option<&'static str> {
    match framework {
        "vllm" => Some("vllm"),
        "sglang" => Some("sglang"),
        "trt" | "trtllm" => Some("trtllm"),
        _ => None,
    }
}

/// A configuration in one image: its two names.
type ImageConfiguration = (String, String);

/// The launch commands of rows, from any number of files.
#[derive(Debug, Default)]
pub(super) struct Launches {
    configurations: BTreeMap<String, ImageConfiguration>,
    commands: BTreeMap<(ImageConfiguration, &'static str), Map<String, Value>>,
}

impl Launches {
    /// The columns of a file that belongs here, by the names of its columns; `None` for a file of rows.
    pub(super) fn columns_of(names: &[String]) -> Option<Columns> {
        let has = |column: &str| names.iter().any(|name| name.trim() == column);
        match (has("config_key"), has("launch")) {
            (false, _) => None,
            (true, true) => Some(OF_CONFIGURATIONS),
            (true, false) => Some(OF_ROWS),
        }
    }

    /// Adds the rows of a file.
    ///
    /// # Errors
    /// Those of [`RowReader::next_row`], and `ErrorKind::BadRow` for an empty cell.
    pub(super) fn add(&mut self, reader: &mut RowReader<'_>, columns: Columns) -> Result<()> {
        let is_of_rows = columns.required == OF_ROWS.required;
        while let Some(row) = reader.next_row()? {
            let filled = |column: &str| row.read(column, "a name", |text| Some(text.to_owned()));
            let configuration = (filled("config_key")?, filled("image")?);
            if is_of_rows {
                self.configurations.insert(filled("id")?, configuration);
            } else if let Some(engine) = engine_of(&filled("framework")?) {
                // Some commands start another engine than their row names.
                if let Some(found) = arguments(&row, engine) {
                    self.commands.insert((configuration, engine), found);
                }
            }
        }
        Ok(())
    }

    /// Returns the launch arguments of a row's server; `None` if no file has its command.
    pub(super) fn of(&self, id: &str, backend: &str, concurrency: u32) -> Option<Launch> {
        let of_row = (self.configurations.get(id)?.clone(), engine_of(backend)?);
        let mut launch = Launch::default();
        for (name, value) in self.commands.get(&of_row)? {
            let value = match value.as_str() {
                Some(IN_FLIGHT) => concurrency.into(),
                Some(variable) if variable.contains('$') && name == "scheduler_recv_interval" => {
                    launch.unknown.push(format!("{name} = {variable}, taken as InferenceX's 10, 30 from 16 in flight"));
                    let [few, many] = RECV_INTERVALS;
                    if concurrency < FEW_IN_FLIGHT { few } else { many }.into()
                }
                Some(variable) if variable.contains('$') => {
                    launch.unknown.push(format!("{name} = {variable}"));
                    continue;
                }
                _ => value.clone(),
            };
            launch.arguments.insert(name.clone(), value);
        }
        Some(launch)
    }
}

/// The arguments of a row's command and of its config files, the command's first; `None` of a command that does not start the engine.
fn arguments(row: &Row<'_>, engine: &str) -> Option<Map<String, Value>> {
    let start = match engine {
        "sglang" => "sglang.launch_server",
        "trtllm" => "trtllm-serve",
        _ => "vllm serve",
    };
    let mut found = Map::new();
    let text = |column: &str| row.text(column).unwrap_or_default().into_owned();
    // Lines of files come without their indents: keys that an object has follow its line.
    let mut object: Option<&(&str, &[&str])> = None;
    for line in text("config_files").split(';') {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim().trim_matches('\''));
        match object.filter(|(_, keys)| keys.contains(&key)) {
            _ if value.is_empty() => object = OBJECTS.iter().find(|(name, _)| *name == key),
            Some((object, _)) => add(&mut found, &format!("{object}.{key}"), value),
            None => add(&mut found, key, value),
        }
    }
    let command = text("launch");
    let words = launch_words(command.rsplit_once(start)?.1);
    for (at, word) in words.iter().enumerate() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let next = words.get(at + 1).filter(|next| !next.starts_with("--"));
        match flag.split_once('=') {
            Some((key, value)) => add(&mut found, key, value),
            None => add(&mut found, flag, next.map_or("true", String::as_str)),
        }
    }
    Some(found)
}

/// Adds an argument that is read.
fn add(found: &mut Map<String, Value>, key: &str, value: &str) {
    let name = key.replace('-', "_");
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    if let ("compilation_config", Value::Object(nested)) = (name.as_str(), &value) {
        found
            .extend(nested.iter().filter(|(key, _)| READ.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())));
    } else if READ.contains(&name.as_str()) || OBJECTS.iter().any(|(object, _)| name.split('.').next() == Some(object))
    {
        found.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::closed_loop_row::read_closed_loop;
    use super::super::fixtures::HEADER;
    use serde_json::json;

    /// The launch arguments of a row with 16 requests in flight.
    fn launched_with(launch: &str, config_files: &str) -> serde_json::Value {
        let dir = tempfile::tempdir().expect("a folder");
        let row = "a,vllm,0.12.0,Qwen/Qwen3-8B,h100_sxm,,1024,128,,,16,1,1,,1,1,84.5,16.25\n";
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let files = [
            (
                "configurations.csv",
                format!(
                    "config_key,image,framework,precision,launch,config_files\nqwen,v0.12,vllm,bf16,{},{}\nqwen,v0.13,vllm,bf16,vllm serve $MODEL,\n",
                    quoted(launch),
                    quoted(config_files)
                ),
            ),
            ("of_rows.csv", "id,config_key,image\na,qwen,v0.12\n".to_owned()),
            ("rows.csv", format!("{HEADER}{row}{}", row.replacen("a,", "b,", 1))),
        ];
        let paths = files.map(|(name, text)| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        });
        let rows = read_closed_loop(&paths).expect("rows");
        assert_eq!(rows[1].launch, None);
        rows[0].launch.clone().expect("a command").arguments.into()
    }

    #[test]
    fn arguments_are_those_of_the_last_command() {
        let launch = "vllm server...\"\n# eats 32% of memory\nexport A=1\nvllm serve $MODEL --port $PORT --tensor-parallel-size=$TP $EP \
                      --gpu-memory-utilization=0.95 --kv-cache-dtype fp8 --max-num-seqs $CONC --max-model-len $LONGEST --enforce-eager";
        let expected =
            json!({"gpu_memory_utilization": 0.95, "kv_cache_dtype": "fp8", "max_num_seqs": 16, "enforce_eager": true});
        assert_eq!(launched_with(launch, ""), expected);
    }

    #[test]
    fn compilation_is_read_as_json_and_config_files_come_second() {
        let launch = "vllm serve $MODEL --block-size=32 --compilation-config '{\"cudagraph_mode\": \"PIECEWISE\", \"pass_config\": {}}'";
        let files = "kv-cache-dtype: fp8; block-size: 16; async-scheduling: true; max-model-len: $LONGEST";
        let expected = json!({
            "block_size": 32, "cudagraph_mode": "PIECEWISE", "kv_cache_dtype": "fp8", "async_scheduling": true
        });
        assert_eq!(launched_with(launch, files), expected);
    }
}
