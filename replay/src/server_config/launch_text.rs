//! The arguments of a server in the text that starts it: a line of `vllm serve`, `sglang.launch_server` or `trtllm-serve`, a script, a compose file, a Kubernetes manifest or Helm values.

use ridgepoint::Engine;
use serde_json::{Map, Value};

use super::helm::in_values;
use super::shell_variables::ShellVariables;

/// What starts a server, with the engine.
const STARTS: [(&str, &str); 7] = [
    ("vllm serve", "vllm"),
    ("vllm.entrypoints.openai.api_server", "vllm"),
    ("vllm.entrypoints.api_server", "vllm"),
    ("sglang.launch_server", "sglang"),
    ("sglang serve", "sglang"),
    ("trtllm-serve serve", "trtllm"),
    ("trtllm-serve", "trtllm"),
];

/// The place behind what starts a server in a text, and the engine.
fn start_in(text: &str) -> Option<(usize, Engine)> {
    STARTS.iter().find_map(|(start, engine)| Some((text.find(start)? + start.len(), Engine::parse(engine, None)?)))
}

/// A server that a text starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Launched {
    /// Its arguments under the names that the text has for them.
    pub arguments: Map<String, Value>,
    /// Remarks.
    pub notes: Vec<String>,
    /// The engine.
    pub engine: Engine,
}

/// Returns the first server that a script or a line starts; `None` of a text that starts none.
pub(super) fn in_script(text: &str) -> Option<Launched> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let mut variables = ShellVariables::default();
    let line = joined.lines().map(without_comment).find(|line| {
        variables.take(line);
        start_in(line).is_some()
    })?;
    let line = variables.put_into(line);
    let (start, engine) = start_in(&line)?;
    let command = line.get(start..)?;
    // A shell ends the command here.
    let end = [" &", " |", "; ", " > ", " >> ", " 2>"].iter().filter_map(|end| command.find(end)).min();
    Some(Launched {
        arguments: arguments(words(command.get(..end.unwrap_or(command.len()))?)),
        notes: Vec::new(),
        engine,
    })
}

/// Returns the first server whose command a manifest holds: a map with `command` or `args` of flags, or Helm values of a model, at whatever
/// depth.
pub(super) fn in_manifest(manifest: &Map<String, Value>) -> Option<Launched> {
    if let Some(server) = in_values(manifest) {
        return Some(server);
    }
    const PARTS: [&str; 3] = ["entrypoint", "command", "args"];
    let parts = PARTS.iter().filter_map(|key| manifest.get(*key));
    let all: Vec<String> = parts.flat_map(words_of).collect();
    if let Some(server) = of_command(&all) {
        let image = manifest.get("image").and_then(Value::as_str);
        let version = image.and_then(|image| image.rsplit_once(":v")).map(|(_, version)| version);
        let notes =
            version.map(|version| format!("image {}: give --engine-version {version}", image.unwrap_or_default()));
        return Some(Launched { notes: notes.into_iter().collect(), ..server });
    }
    let children = |value: &Value| match value {
        Value::Object(map) => in_manifest(map),
        Value::Array(list) => list.iter().find_map(|one| in_manifest(one.as_object()?)),
        _ => None,
    };
    manifest.values().find_map(children)
}

/// The server of a container's command: one with the words that start vLLM, or with flags alone where the image starts it.
fn of_command(words: &[String]) -> Option<Launched> {
    if words.is_empty() {
        return None;
    }
    if let Some((_, engine)) = start_in(&words.join(" ")) {
        // A shell's script is one word.
        let script = words.iter().find(|word| word.contains(' ') && start_in(word).is_some());
        return match script {
            Some(script) => in_script(script),
            None => {
                let at = words.iter().position(|word| word == "serve" || start_in(word).is_some())?;
                let at = if words.get(at + 1).is_some_and(|next| next == "serve") { at + 1 } else { at };
                Some(Launched { arguments: arguments(words.get(at + 1..)?.to_vec()), notes: Vec::new(), engine })
            }
        };
    }
    let is_model = |word: &String| word == "--model" || word.starts_with("--model=");
    words.iter().any(is_model).then(|| Launched {
        arguments: arguments(words.to_vec()),
        notes: Vec::new(),
        engine: Engine::default(),
    })
}

pub(super) fn words_of(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => words(text),
        Value::Array(list) => {
            list.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// The words of a command, as a shell splits them. A quote that does not end is a part of its word. JSON without quotes around it, as lists
/// of arguments have it, is a word as it stands, though a shell would take its quotes away.
pub fn words(command: &str) -> Vec<String> {
    let quoted = with_quoted_json(command);
    shlex::split(&quoted).unwrap_or_else(|| command.split_whitespace().map(str::to_owned).collect())
}

/// Puts quotes around the JSON objects of a command that have none.
fn with_quoted_json(command: &str) -> String {
    let mut text = String::with_capacity(command.len());
    let mut rest = command;
    let mut quote = None;
    while let Some(first) = rest.chars().next() {
        let object = match quote {
            None if first == '{' => json_object(rest),
            _ => None,
        };
        let taken = object.map_or(first.len_utf8(), str::len);
        match object {
            Some(object) => text.extend(["'", object, "'"]),
            None => text.push(first),
        }
        quote = match quote {
            Some(open) if open == first => None,
            None if matches!(first, '\'' | '"') => Some(first),
            same => same,
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    text
}

/// The JSON object that a text begins with, unless a shell's quote is in it.
fn json_object(text: &str) -> Option<&str> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    let found = values.next()?.ok()?;
    let object = text.get(..values.byte_offset())?;
    (!found.is_empty() && !object.contains('\'')).then_some(object)
}

/// The arguments of a command: the word before the flags is the model. A flag without a value is on.
pub(super) fn arguments(words: Vec<String>) -> Map<String, Value> {
    let mut found = Map::new();
    let mut words = words.into_iter().take_while(|word| word != "&").peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| short_flag(&word)) else {
            if found.is_empty() {
                found.insert("model".to_owned(), word.into());
            }
            continue;
        };
        if let Some((key, value)) = flag.split_once('=') {
            found.insert(key.to_owned(), value.into());
            continue;
        }
        let mut values = Vec::new();
        while let Some(value) = words.next_if(|next| !next.starts_with("--") && short_flag(next).is_none()) {
            values.push(value);
        }
        let value = match values.len() {
            0 => Value::Bool(true),
            _ => values.join(" ").into(),
        };
        found.insert(flag.to_owned(), value);
    }
    found
}

/// The name of a short flag, such as `-tp`; a negative number is none.
fn short_flag(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') { "" } else { line.split(" # ").next().unwrap_or(line) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::parse_yaml;

    fn of_manifest(text: &str) -> Option<Launched> {
        in_manifest(parse_yaml("file", text).unwrap().as_object().unwrap())
    }

    #[test]
    fn a_script_is_read_from_the_command_to_its_end() {
        let script = "#!/bin/bash\n# vllm serve other\nexport A=1\npython3 -m x; CUDA=0 vllm serve org/name \\\n  -tp 2 --dtype=half \\\n  --enforce-eager \
                      --compilation-config '{\"cudagraph_mode\": \"NONE\"}' > log.txt\necho done\n";
        let expected = json!({"model": "org/name", "tp": "2", "dtype": "half", "enforce-eager": true,
                              "compilation-config": "{\"cudagraph_mode\": \"NONE\"}"});
        assert_eq!(Value::Object(in_script(script).unwrap().arguments), expected);
        assert_eq!(in_script("vllm chat"), None);
        let module =
            in_script("python -m vllm.entrypoints.openai.api_server --model m --no-enable-prefix-caching").unwrap();
        assert_eq!(Value::Object(module.arguments), json!({"model": "m", "no-enable-prefix-caching": true}));
    }

    #[test]
    fn json_without_quotes_is_a_word() {
        let json = "--speculative-config={\"method\":\"mtp\",\"num_speculative_tokens\":1}";
        assert_eq!(words(&format!("vllm serve m {json} -tp 2")), ["vllm", "serve", "m", json, "-tp", "2"]);
        let spaced = words("serve --x {\"a\": {\"b\": [1, 2]}} --y");
        assert_eq!(spaced, ["serve", "--x", "{\"a\": {\"b\": [1, 2]}}", "--y"]);
        // Quotes that are there count as a shell's.
        assert_eq!(words("a '{\"b\": 1}' \"{'c': 2}\" {d} ${e}"), ["a", "{\"b\": 1}", "{'c': 2}", "{d}", "${e}"]);
    }

    #[test]
    fn commands_of_containers_are_found_at_any_depth() {
        let flags = json!({"model": "m", "max-num-seqs": "8"});
        for manifest in [
            "services: {web: {image: nginx, command: [a]}, vllm: {image: x, command: --model m --max-num-seqs 8}}",
            "spec: {template: {spec: {containers: [{name: a}, {args: [--model, m, --max-num-seqs, '8']}]}}}",
            "spec: {containers: [{command: [/bin/sh, -c, 'exec vllm serve m --max-num-seqs 8']}]}",
            "spec: {containers: [{command: [vllm, serve], args: [m, --max-num-seqs=8]}]}",
            "items: [{entrypoint: [python3, -m, vllm.entrypoints.openai.api_server], args: [--model, m, --max-num-seqs, 8]}]",
        ] {
            assert_eq!(of_manifest(manifest).map(|of| Value::Object(of.arguments)), Some(flags.clone()), "{manifest}");
        }
        assert_eq!(of_manifest("services: {web: {image: nginx, command: [a, --b]}}"), None);
        let image = of_manifest("s: {image: 'vllm/vllm-openai:v0.19.0', command: --model m}").unwrap();
        assert_eq!(image.notes, ["image vllm/vllm-openai:v0.19.0: give --engine-version 0.19.0"]);
    }
}
