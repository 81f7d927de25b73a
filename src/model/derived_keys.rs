//! Adds sizes that the configuration classes of older families derive from other keys.

use serde_json::{Map, Value};

use crate::input::Log;

/// A width is so many hidden sizes where the file states none.
const WIDTH_FACTOR: u64 = 4;

/// Families whose files leave the width of their blocks out.
const WITHOUT_WIDTH: [&str; 6] = ["gpt2", "gpt_bigcode", "gptj", "bloom", "falcon", "mpt"];

/// Adds the sizes that the class of a `model_type` derives to the keys of its file, which have the names that are read.
///
/// # Source
/// vLLM 0.24, `vllm/model_executor/models`: gpt2, gpt_bigcode, gpt_j, bloom, falcon, mpt, hunyuan_v1 and exaone_moe.
pub(super) fn add(model_type: &str, map: &mut Map<String, Value>, log: &Log) {
    if WITHOUT_WIDTH.contains(&model_type) {
        let factor = number(map, "expansion_ratio").unwrap_or(WIDTH_FACTOR);
        let width = number(map, "hidden_size").and_then(|hidden| hidden.checked_mul(factor));
        put_absent(map, "intermediate_size", width.map(Value::from));
    }
    match model_type {
        "opt" => {
            let width = number(map, "word_embed_proj_dim").filter(|width| Some(*width) != number(map, "hidden_size"));
            if let Some(width) = width {
                log.note(format!(
                    "word_embed_proj_dim = {width} is not used: embeddings are taken as hidden_size wide"
                ));
            }
        }
        "gpt_bigcode" => {
            let shares = flag(map, "multi_query").unwrap_or(true);
            put_absent(map, "num_key_value_heads", shares.then(|| Value::from(1)));
        }
        "falcon" => falcon_heads(map),
        "mpt" => {
            let attention = map.get("attn_config").and_then(Value::as_object).cloned().unwrap_or_default();
            let has_one = attention.get("attn_type").and_then(Value::as_str) == Some("multiquery_attention");
            let heads = attention.get("kv_n_heads").cloned().or_else(|| has_one.then(|| Value::from(1)));
            put_absent(map, "num_key_value_heads", heads);
            let has_biases = flag(map, "no_bias") == Some(false);
            for key in ["attention_bias", "mlp_bias"] {
                put_absent(map, key, Some(Value::Bool(has_biases)));
            }
        }
        "hunyuan_v1_moe" => hunyuan_experts(map),
        "exaone_moe" => {
            let layers = map.get("is_moe_layer").and_then(Value::as_array).cloned();
            let numbers = |layers: Vec<Value>| {
                layers.iter().map(|is_sparse| Value::from(u64::from(is_sparse.as_bool() == Some(true)))).collect()
            };
            put_absent(map, "moe_layer_freq", layers.map(numbers).map(Value::Array));
        }
        _ => {}
    }
}

/// `num_kv_heads` counts in Falcon's newer layers alone; the older ones have one KV head, or one for each query head.
fn falcon_heads(map: &mut Map<String, Value>) {
    let heads = if flag(map, "new_decoder_architecture") == Some(true) {
        map.get("num_kv_heads").or_else(|| map.get("n_head_kv")).filter(|heads| !heads.is_null()).cloned()
    } else {
        flag(map, "multi_query").unwrap_or(true).then(|| Value::from(1))
    };
    put_absent(map, "num_key_value_heads", heads);
}

/// Every layer of HunYuan's experts has its number in a list. The blocks that every token visits are `intermediate_size` wide.
fn hunyuan_experts(map: &mut Map<String, Value>) {
    for key in ["moe_topk", "num_shared_expert", "moe_intermediate_size", "num_experts"] {
        let first = map.get(key).and_then(Value::as_array).and_then(|each| {
            let first = each.first()?;
            each.iter().all(|one| one == first).then(|| first.clone())
        });
        if let Some(first) = first {
            map.insert(key.to_owned(), first);
        }
    }
    let shares = map.get("use_mixed_mlp_moe").is_some_and(super::unsupported::is_set);
    let (width, shared) = (number(map, "intermediate_size"), number(map, "num_shared_expert").filter(|_| shares));
    let all = width.zip(shared).and_then(|(width, shared)| width.checked_mul(shared));
    put_absent(map, "shared_intermediate_size", all.map(Value::from));
    if let Some(width) = number(map, "moe_intermediate_size") {
        map.insert("intermediate_size".to_owned(), Value::from(width));
    }
}

fn number(map: &Map<String, Value>, key: &str) -> Option<u64> {
    map.get(key)?.as_u64()
}

fn flag(map: &Map<String, Value>, key: &str) -> Option<bool> {
    map.get(key)?.as_bool()
}

/// Adds a value under a key that is absent or null.
fn put_absent(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value.filter(|_| map.get(key).is_none_or(Value::is_null)) {
        map.insert(key.to_owned(), value);
    }
}
