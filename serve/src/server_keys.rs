//! The server of a request: a model and a GPU by name or described in place, vLLM's engine arguments, and how steps are predicted.

use std::path::Path;

use ridgepoint::input::{Log, did_you_mean};
use ridgepoint::{Error, Hardware, Model, Options, Result};
use ridgepoint_replay::server_config::{Beside, ServerConfig};
use serde_json::{Map, Value};

use crate::body::ORIGIN;
use crate::problem::Problem;
use ridgepoint_lab::prediction::{Prediction, prediction_arguments};
use ridgepoint_lab::served::both;

/// Name of a model that a request describes, as the command's is the path of its file.
const OWN_MODEL: &str = "config.json";
/// Name of a GPU that a request describes. No table has it.
const OWN_HARDWARE: &str = "own_hardware";

/// The keys of a server and of its prediction.
#[derive(Debug, Clone)]
pub struct ServerKeys(Map<String, Value>);

/// A server that was found.
pub struct ResolvedServer {
    pub server: ServerConfig,
    pub model: Model,
    pub hardware: Hardware,
    pub options: Options,
    /// Remarks on keys without influence, and on the precision.
    pub notes: Vec<String>,
}

impl ServerKeys {
    /// The keys of a body that are left after those of its route were taken.
    pub fn new(rest: Map<String, Value>) -> Self {
        ServerKeys(rest)
    }

    /// A text that is equal for equal servers.
    pub fn canonical(&self) -> String {
        // Keys are sorted, and text keys always make JSON.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Reads the keys, and finds the model and the GPU. `of_route` are other keys that the route knows.
    ///
    /// # Errors
    /// All problems of the keys; a model or GPU that is unknown or at fault.
    pub fn find(&self, data_dir: Option<&Path>, of_route: &[&str]) -> std::result::Result<ResolvedServer, Problem> {
        let mut map = self.0.clone();
        let prediction = prediction_arguments().taken(&mut map);
        let described = Described::taken(&mut map);
        let options = options(&prediction, data_dir);
        let engine = options.as_ref().map(|options| options.engine.clone()).unwrap_or_default();
        let server = ServerConfig::from_values_with(ORIGIN, &map, &Beside { engine, ..Beside::default() });
        let read = both(options, server);
        let (options, mut server) =
            read.map_err(|errors| Problem::from(errors).reworded(|problem| misspelt(problem, of_route)))?;
        server.names_only = true;
        let model = match described.model(server.as_family.as_deref()) {
            Some(model) => model.map(|model| (model, Vec::new())),
            None => server.find_model(data_dir),
        };
        let hardware = described.hardware(data_dir).unwrap_or_else(|| server.find_hardware(data_dir));
        let ((model, precision_notes), hardware) = both(model, hardware)?;
        let mut notes = std::mem::take(&mut server.notes);
        notes.extend(precision_notes);
        Ok(ResolvedServer { server, model, hardware, options, notes })
    }
}

/// What a server's keys describe in place of a name.
#[derive(Debug, Default)]
pub struct Described {
    model: Option<Value>,
    hardware: Option<Value>,
    has_precision: bool,
}

impl Described {
    /// Moves the objects out of the keys `model` and `hardware`, which then hold names.
    pub fn taken(map: &mut Map<String, Value>) -> Self {
        Described {
            model: named_in_place(map, "model", OWN_MODEL),
            hardware: named_in_place(map, "hardware", OWN_HARDWARE),
            has_precision: map.get("precision").is_some_and(|value| !value.is_null()),
        }
    }

    /// The model, if it is described.
    pub fn model(&self, as_family: Option<&str>) -> Option<Result<Model>> {
        let config = self.model.as_ref()?;
        if self.has_precision {
            let problem = "precision chooses a variant of a model that is named; the config.json in `model` has its own \
                           quantization_config";
            return Some(Err(Error::invalid(ORIGIN, vec![problem.to_owned()])));
        }
        Some(Model::from_config_as(OWN_MODEL, "model", &config.to_string(), None, as_family))
    }

    /// The GPU, if it is described.
    pub fn hardware(&self, data_dir: Option<&Path>) -> Option<Result<Hardware>> {
        self.hardware.as_ref().map(|figures| own_hardware(figures, data_dir))
    }
}

/// Bytes of the texts that are kept with a server.
pub fn text_bytes(notes: &[String]) -> usize {
    notes.iter().map(|note| size_of::<String>() + note.len()).sum()
}

/// Moves an object out of a key that usually holds a name, and puts `name` there.
fn named_in_place(map: &mut Map<String, Value>, key: &str, name: &str) -> Option<Value> {
    let value = map.get_mut(key).filter(|value| value.is_object())?;
    Some(std::mem::replace(value, name.into()))
}

/// A better text for the problem of a key that is close to one of the route's own.
fn misspelt(problem: &str, of_route: &[&str]) -> Option<String> {
    let (key, _) = problem.split_once(" is not a known key: `ridgepoint arguments`")?;
    let hint = did_you_mean(key, of_route.iter().copied().chain(prediction_arguments().modelled_names()))?;
    Some(format!("{key} is not a known key: {hint}"))
}

/// The keys of a hardware file, or figures over those of a known GPU, as in `{"h100": {"memory_gb": 64}}`.
fn own_hardware(figures: &Value, data_dir: Option<&Path>) -> Result<Hardware> {
    let is_by_name = figures
        .as_object()
        .is_some_and(|map| map.len() == 1 && map.values().all(Value::is_object) && !map.contains_key("datasheet"));
    if is_by_name {
        let figures = figures.to_string();
        let known = figures.as_str();
        return ridgepoint_replay::hardware_from_json(data_dir, "hardware", known, None);
    }
    Hardware::from_keys(OWN_HARDWARE, "hardware", figures)
}

/// Reads how steps are predicted. Corrections are those that are built in: names are never paths.
pub fn options(prediction: &Map<String, Value>, data_dir: Option<&Path>) -> Result<Options> {
    let log = Log::default();
    let given = prediction_arguments().read("", prediction, &log);
    let keys = given.keys(&log);
    keys.read("correction", "auto, global or none", |value| {
        matches!(value.as_str()?, "auto" | "global" | "none").then_some(())
    });
    drop(keys);
    log.finish(ORIGIN, Some(()))?;
    Ok(Prediction::options(&given, data_dir))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(value: Value) -> std::result::Result<ResolvedServer, Problem> {
        let Value::Object(map) = value else { panic!() };
        ServerKeys::new(map).find(None, &["requests", "prefill", "decode"])
    }

    fn fault(value: Value) -> String {
        match find(value) {
            Ok(_) => panic!("there is no fault"),
            Err(problem) => format!("{problem:?}"),
        }
    }

    #[test]
    fn names_are_never_paths() {
        for name in ["models/llama-3.1-8b.json", "../models/llama-3.1-8b.json", "/etc/passwd", ".", "models"] {
            assert!(fault(json!({"model": name, "hardware": "h100"})).contains("unknown_model"), "{name}");
        }
        for name in ["hardware/l4.toml", "/etc/passwd", "gpus.json#H100", "."] {
            assert!(fault(json!({"model": "llama-3.1-8b", "hardware": name})).contains("unknown_hardware"), "{name}");
        }
        let correction = json!({"model": "llama-3.1-8b", "hardware": "h100", "correction": "corrections/global.toml"});
        assert!(fault(correction).contains("must be auto, global or none"));
    }

    #[test]
    fn a_model_and_a_gpu_may_be_described_in_place() {
        let config: Value = serde_json::from_str(include_str!("../../models/llama-3.1-8b.json")).unwrap();
        let found = find(json!({"model": config, "hardware": {"h100": {"memory_gb": 64}}})).unwrap();
        assert_eq!((found.model.name.as_str(), found.model.num_layers()), ("config.json", 32));
        assert_eq!(
            (found.hardware.name.as_str(), found.hardware.hbm_capacity_bytes),
            ("h100_sxm", 64.0 * 1_073_741_824.0)
        );
        let both =
            fault(json!({"model": {"hidden_size": 1}, "hardware": {"datasheet": {}}, "tensor_parallel_size": 2}));
        assert!(both.contains("model: ") && both.contains("hardware: "), "{both}");
    }

    #[test]
    fn a_misspelt_key_is_named_with_the_one_that_was_meant() {
        for (key, meant) in [
            ("tensor_paralel_size", "did you mean tensor_parallel_size?"),
            ("decod", "did you mean decode?"),
            ("corection", "did you mean correction?"),
            ("zzz", "lists the known ones"),
        ] {
            let mut body = json!({"model": "llama-3.1-8b", "hardware": "h100"});
            body[key] = 1.into();
            let fault = fault(body);
            assert!(fault.contains(&format!("{key} is not a known key: ")) && fault.contains(meant), "{fault}");
        }
    }

    #[test]
    fn equal_servers_have_one_text() {
        let of = |text: &str| ServerKeys::new(serde_json::from_str(text).unwrap()).canonical();
        assert_eq!(of(r#"{"model": "a", "hardware": "b"}"#), of(r#"{"hardware":"b","model":"a"}"#));
        assert_ne!(of(r#"{"model": "a"}"#), of(r#"{"model": "b"}"#));
    }
}
