//! Launch arguments of the servers of closed loops: a file that names the configuration of each row, and one with the launch command
//! of each configuration.

use std::collections::BTreeMap;

use ridgepoint::Result;
use ridgepoint_replay::input::{Columns, Row, RowReader};
use ridgepoint_replay::server_config::launch_words;
use serde_json::{Map, Value};

/// A file that names the configuration and the image of rows.
const OF_ROWS: Columns = Columns::exactly("id,config_key,image");
/// A file with the launch command of each configuration and image.
const OF_CONFIGURATIONS: Columns = Columns::exactly("config_key,image,framework,launch,config_files").among_others();

/// Arguments of vLLM that are read from a command. The row itself has the parallel sizes, and no other argument of these commands has
/// an influence on times here.
const READ: [&str; 10] = [
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
];
/// The shell variable of the requests in flight, the one whose value a row has.
const IN_FLIGHT: &str = "$CONC";

/// A configuration in one image: its two names.
type ImageConfiguration = (String, String);

/// The launch commands of rows, from any number of files.
#[derive(Debug, Default)]
pub(super) struct Launches {
    configurations: BTreeMap<String, ImageConfiguration>,
    commands: BTreeMap<ImageConfiguration, Map<String, Value>>,
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
            } else if filled("framework")? == "vllm" {
                self.commands.insert(configuration, arguments(&row));
            }
        }
        Ok(())
    }

    /// The arguments of vLLM that the server of a row was launched with; `None` if no file has its command.
    pub(super) fn of(&self, id: &str, concurrency: u32) -> Option<Map<String, Value>> {
        let mut found = self.commands.get(self.configurations.get(id)?)?.clone();
        for value in found.values_mut().filter(|value| value.as_str() == Some(IN_FLIGHT)) {
            *value = concurrency.into();
        }
        Some(found)
    }
}

/// The arguments of a row's command and of its config files, the command's first.
fn arguments(row: &Row<'_>) -> Map<String, Value> {
    let mut found = Map::new();
    let text = |column: &str| row.text(column).unwrap_or_default().into_owned();
    for line in text("config_files").split(';') {
        if let Some((key, value)) = line.split_once(':') {
            add(&mut found, key.trim(), value.trim().trim_matches('\''));
        }
    }
    let command = text("launch");
    let words = launch_words(command.rsplit("vllm serve").next().unwrap_or_default());
    for (at, word) in words.iter().enumerate() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let next = words.get(at + 1).filter(|next| !next.starts_with("--"));
        match flag.split_once('=') {
            Some((key, value)) => add(&mut found, key, value),
            None => add(&mut found, flag, next.map_or("true", String::as_str)),
        }
    }
    found
}

/// Adds an argument that is read. Shell variables of unknown value are left out.
fn add(found: &mut Map<String, Value>, key: &str, value: &str) {
    let name = key.replace('-', "_");
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    if let ("compilation_config", Value::Object(nested)) = (name.as_str(), &value) {
        found
            .extend(nested.iter().filter(|(key, _)| READ.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())));
    } else if READ.contains(&name.as_str())
        && value.as_str().is_none_or(|text| !text.contains('$') || text == IN_FLIGHT)
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
        rows[0].launch.clone().expect("a command").into()
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
