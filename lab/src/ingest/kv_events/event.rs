//! A batch of KV events, as maps of vLLM or as lists of instrumented builds.

use serde_json::Value;

use crate::ingest::kv_transfers::TransferEvent;
use crate::ingest::token_jsonl::hash;
use crate::ingest::unknown_names::UnknownNames;

/// Latest time, s: thousands of years from 1970.
const MAX_SECONDS: f64 = 1e11;

/// Keys that only events written as maps have.
const OTHER_KEYS: [&str; 5] = ["extra_keys", "group_idx", "kv_cache_spec_kind", "lora_name", "type"];

/// The fields of the events that are lists, behind the name, by name.
const LISTS: [(&str, &[&str]); 7] = [
    ("TransferInitiated", &["transfer_id", "request_id", "src", "dst", "num_blocks", "scheduler_step"]),
    ("TransferCompleted", &["transfer_id", "request_id", "src", "dst", "num_blocks", "success", "scheduler_step"]),
    ("CacheStoreCommitted", &["request_id", "medium", "num_blocks", "scheduler_step"]),
    ("CacheLoadCommitted", &["request_id", "medium", "num_blocks", "scheduler_step"]),
    ("BlockStored", &["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"]),
    ("BlockRemoved", &["block_hashes", "medium"]),
    ("AllBlocksCleared", &[]),
];

/// A batch: its time and its events.
pub(in crate::ingest) struct EventBatch<'v> {
    /// Seconds since 1970; `None` where the batch has no time.
    pub(in crate::ingest) seconds: Option<f64>,
    /// Number of the scheduler step, if the event has one.
    pub(in crate::ingest) step: Option<u64>,
    pub(in crate::ingest) events: Vec<Event<'v>>,
}

/// An event.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Event<'v> {
    pub(in crate::ingest) name: &'v str,
    /// Where its blocks are.
    pub(in crate::ingest) medium: Option<&'v str>,
    pub(in crate::ingest) hashes: Vec<u64>,
    pub(in crate::ingest) parent: Option<u64>,
    pub(in crate::ingest) num_blocks: u64,
    /// Tokens of a block.
    pub(in crate::ingest) block_size: Option<u64>,
    pub(in crate::ingest) num_tokens: u64,
    /// What the events of transfers report.
    pub(in crate::ingest) transfer: Option<TransferEvent<'v>>,
}

/// Whether an event of the KV cache has this name.
pub(in crate::ingest) fn is_kv_event(name: &str) -> bool {
    LISTS.iter().any(|(known, _)| *known == name)
}

/// Reads `[time, [event, …], rank, step]`, of which the last two may be absent.
///
/// # Errors
/// What is wrong with it.
pub(super) fn batch<'v>(value: &'v Value, unknown: &mut UnknownNames) -> Result<EventBatch<'v>, String> {
    let expected = || "expected a batch of KV events: a list of its time and of its events".to_owned();
    let (Some(seconds), Some(events)) = (value.get(0).and_then(Value::as_f64), value.get(1).and_then(Value::as_array))
    else {
        return Err(expected());
    };
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(format!("its time is {seconds}, expected seconds from 0 to {MAX_SECONDS:e}"));
    }
    let step = match value.get(3) {
        None | Some(Value::Null) => None,
        Some(step) => Some(step.as_u64().ok_or_else(|| format!("its step is {}, expected a whole number", cut(step)))?),
    };
    let events: Result<Vec<Event<'v>>, String> = events.iter().map(|value| event(value, unknown)).collect();
    Ok(EventBatch { seconds: Some(seconds), step, events: events? })
}

fn event<'v>(value: &'v Value, unknown: &mut UnknownNames) -> Result<Event<'v>, String> {
    let name = value.get("type").or_else(|| value.get(0)).and_then(Value::as_str);
    let name = name.ok_or_else(|| format!("an event has no name: {}", cut(value)))?;
    let fields = LISTS.iter().find(|(known, _)| *known == name).map(|(_, fields)| *fields);
    if let Some(map) = value.as_object() {
        let is_known =
            |key: &str| LISTS.iter().flat_map(|(_, fields)| *fields).chain(&OTHER_KEYS).any(|known| *known == key);
        map.keys().filter(|key| !is_known(key)).for_each(|key| unknown.add(key));
    }
    if fields.is_none() {
        unknown.add(name);
    }
    let get = |key: &str| match value {
        Value::Object(map) => map.get(key),
        list => list.get(1 + fields?.iter().position(|field| *field == key)?),
    };
    let text = |key: &str| get(key).and_then(Value::as_str);
    let count = |key: &str| match get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| format!("{name}: {key} is {}, expected a whole number", cut(value)))
        }
    };
    let length = |key: &str| get(key).and_then(Value::as_array).map(|list| list.len() as u64);
    let hashes: Vec<u64> = get("block_hashes").and_then(Value::as_array).into_iter().flatten().map(hash).collect();
    let (id, blocks, step) =
        (get("transfer_id").filter(|id| !id.is_null()), count("num_blocks")?, count("scheduler_step")?);
    let has_failed = get("success").and_then(Value::as_bool) == Some(false);
    let transfer = TransferEvent::new(id.map(hash), text("src"), text("dst"));
    Ok(Event {
        name,
        medium: text("medium"),
        parent: get("parent_block_hash").filter(|parent| !parent.is_null()).map(hash),
        num_blocks: blocks.unwrap_or(hashes.len() as u64),
        block_size: count("block_size")?.filter(|size| *size > 0),
        num_tokens: length("token_ids").unwrap_or(0),
        hashes,
        transfer: transfer.map(|of| TransferEvent { blocks, step, has_failed, ..of }),
    })
}

fn cut(value: &Value) -> String {
    ridgepoint::unstable::error::cut(&value.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_and_lists_say_the_same() {
        let map = json!([1.5, [{"type": "BlockStored", "block_hashes": [7, 8], "parent_block_hash": 6, "token_ids": [1, 2, 3, 4],
            "block_size": 2, "lora_id": null, "medium": "GPU", "colour": 1}], 0]);
        let list = json!([1.5, [["BlockStored", [7, 8], 6, [1, 2, 3, 4], 2, null, "GPU"]], null, 12]);
        let mut unknown = UnknownNames::default();
        for value in [&map, &list] {
            let found = batch(value, &mut unknown).unwrap();
            let stored = &found.events[0];
            assert_eq!((found.seconds, stored.name, stored.medium), (Some(1.5), "BlockStored", Some("GPU")));
            assert_eq!((&stored.hashes[..], stored.parent), (&[7, 8][..], Some(6)));
            assert_eq!((stored.num_blocks, stored.num_tokens), (2, 4));
        }
        assert_eq!(unknown.note("keys").unwrap(), "keys that are not read: colour (1)");
    }

    #[test]
    fn what_is_no_batch_says_why() {
        let mut unknown = UnknownNames::default();
        for (value, said) in [
            (json!({"a": 1}), "expected a batch of KV events"),
            (json!([1.0]), "expected a batch of KV events"),
            (json!([-1.0, []]), "its time is -1, expected seconds from 0 to 1e11"),
            (json!([1e308, []]), "expected seconds from 0 to 1e11"),
            (json!([1.0, [[5]]]), "an event has no name: [5]"),
            (
                json!([1.0, [["CacheStoreCommitted", "r", "CPU", "many", 3]]]),
                "num_blocks is \"many\", expected a whole",
            ),
        ] {
            let error = batch(&value, &mut unknown).map(|_| ()).unwrap_err();
            assert!(error.contains(said), "{value}: {error}");
        }
    }
}
