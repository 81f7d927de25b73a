//! The surroundings of a request: the server by its own documents, and this machine where the server is on it.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::host::{Host, system};
use crate::lane::Lane;
use crate::prometheus::ServerMetrics;

/// Limit of a document of the server.
const DOCUMENT_LIMIT: Duration = Duration::from_secs(10);

/// The server, by its own documents.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Server {
    /// Its version, by `/version`.
    pub version: Option<String>,
    /// Its models, by `/v1/models`.
    pub models: Vec<ServedModel>,
    /// Kernel of this machine, where the server is on it.
    pub system: Option<String>,
    /// Documents that it does not have, with the reasons.
    pub missing: Vec<String>,
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedModel {
    /// Its name.
    pub id: String,
    /// Longest sequence, tokens; `None` also where the server states no count.
    #[serde(default, deserialize_with = "count")]
    pub max_model_len: Option<u64>,
}

/// Reads a count. Any other value, such as -1, counts as absent, so that the model stays in the list.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Value::deserialize(deserializer).map(|value| value.as_u64())
}

#[derive(Deserialize)]
struct Models {
    data: Vec<ServedModel>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

impl Server {
    /// Asks the server. Returns why its models are not known, if they are not.
    pub(crate) async fn ask(lane: &mut Lane, is_local: bool) -> (Self, Option<Fault>) {
        let mut server = Server { system: if is_local { system() } else { None }, ..Server::default() };
        let mut fault = None;
        match lane.get("/v1/models", DOCUMENT_LIMIT).await {
            Ok(text) => match serde_json::from_slice::<Models>(&text) {
                Ok(models) => server.models = models.data,
                Err(error) => server.missing.push(format!("/v1/models: is no list of models: {error}")),
            },
            Err(of) => {
                server.missing.push(format!("/v1/models: {of}"));
                fault = Some(of);
            }
        }
        // Where nothing listens, nothing else answers.
        if fault.as_ref().is_some_and(|fault| fault.kind.is_of_connection()) {
            return (server, fault);
        }
        match lane.get("/version", DOCUMENT_LIMIT).await {
            Ok(text) => match serde_json::from_slice::<Version>(&text) {
                Ok(of) => server.version = Some(of.version),
                Err(_) => server.missing.push("/version: is no version".to_owned()),
            },
            Err(fault) => server.missing.push(format!("/version: {fault}")),
        }
        (server, fault)
    }

    /// The longest sequence of a model, tokens.
    pub fn max_model_len(&self, model: &str) -> Option<u64> {
        self.models.iter().find(|of| of.id == model)?.max_model_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_no_count_does_not_hide_the_model() {
        for (length, expected) in [("4096", Some(4096)), ("-1", None), ("1e308", None), ("null", None), ("\"x\"", None)]
        {
            let text = format!(r#"{{"data": [{{"id": "m", "max_model_len": {length}}}, {{"id": "n"}}]}}"#);
            let models = serde_json::from_str::<Models>(&text).unwrap().data;
            assert_eq!((models.len(), models[0].max_model_len, models[1].max_model_len), (2, expected, None));
        }
    }
}

/// One moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Snapshot {
    /// The server's figures.
    pub metrics: Option<ServerMetrics>,
    /// This machine's, where the server is on it.
    pub host: Option<Host>,
    /// Figures that are not at hand, with the reasons.
    pub missing: Vec<String>,
}

impl Snapshot {
    /// A moment at which nothing was looked at.
    pub(crate) fn not_taken(reason: &str) -> Self {
        Snapshot { missing: vec![reason.to_owned()], ..Snapshot::default() }
    }

    /// Looks at server and machine.
    pub(crate) async fn now(lane: &mut Lane, is_local: bool) -> Self {
        let mut snapshot = Snapshot::default();
        match lane.get("/metrics", DOCUMENT_LIMIT).await {
            Ok(text) => {
                snapshot.metrics = ServerMetrics::parse(&String::from_utf8_lossy(&text));
                if snapshot.metrics.is_none() {
                    snapshot.missing.push("/metrics: has none of vLLM's figures".to_owned());
                }
            }
            Err(fault) => snapshot.missing.push(format!("/metrics: {fault}")),
        }
        if is_local {
            // Files of the kernel and nvidia-smi block.
            snapshot.host = tokio::task::spawn_blocking(Host::now).await.ok();
        } else {
            snapshot.missing.push("page cache, disks and GPUs: the server is on another machine".to_owned());
        }
        let host = snapshot.host.as_ref();
        let missing = [
            ("/proc/meminfo", host.is_some_and(|host| host.cached_bytes.is_none())),
            ("/proc/diskstats", host.is_some_and(|host| host.disk_read_bytes.is_none())),
            ("nvidia-smi", host.is_some_and(|host| host.gpus.is_none())),
        ];
        snapshot.missing.extend(missing.iter().filter(|(_, is)| *is).map(|(name, _)| format!("{name}: not at hand")));
        snapshot
    }
}
