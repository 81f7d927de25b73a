//! Counts the parameters of vision and audio towers, which take memory beside the language model. Their work is not predicted.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a ratio times a size, both limited")]

use serde_json::{Map, Value};

use super::shape::Model;
use crate::input::Keys;

/// Sections with the sizes of a tower.
const SECTIONS: [&str; 9] = [
    "vision_config",
    "audio_config",
    "vision_tower_config",
    "vision_encoder_config",
    "audio_encoder_config",
    "vit_config",
    "visual",
    "img_processor",
    "speech_config",
];
/// Keys that name a tower by its checkpoint, without sizes.
const NAMED: [&str; 3] = ["mm_vision_tower", "vision_tower", "audio_model_id"];
/// No tower has more layers, wider ones, larger patches or more of them per token, so that no count overflows.
const MAX_LAYERS: u64 = 1 << 12;
const MAX_WIDTH: u64 = 1 << 17;
const MAX_PATCH: u64 = 1 << 10;
const MAX_MERGE: u64 = 8;

/// Names of the number of layers; of several, the first in this list counts.
const LAYERS: [&str; 6] =
    ["num_hidden_layers", "depth", "vt_num_hidden_layers", "num_layers", "layers", "encoder_layers"];
/// Names of the hidden size. `embed_dim` goes first: `hidden_size` of Qwen2-VL is that of its output.
const HIDDEN: [&str; 5] = ["embed_dim", "vt_hidden_size", "hidden_size", "width", "d_model"];
const WIDTH: [&str; 4] = ["intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "mlp_dim"];
const CHANNELS: [&str; 3] = ["num_channels", "in_channels", "in_chans"];
const OUTPUT: [&str; 2] = ["out_hidden_size", "text_hidden_size"];

/// Beginnings of the names of towers whose blocks have a gate.
const GATED: [&str; 6] = ["pixtral", "mistral3", "qwen2_5_vl", "qwen2_5_omni_vision", "gemma4", "glm4v"];
/// Those of towers whose projector multiplies merged patches twice, by a square matrix first.
const MERGING: [&str; 6] = ["qwen2_vl", "qwen2_5", "qwen3", "kimi", "moonvit", "paddleocr"];
/// Those of towers without a table of positions.
const ROTARY: [&str; 6] = ["pixtral", "mistral3", "qwen2_vl", "qwen2_5", "glm4v", "dots"];

/// End of the note on a tower whose parameters are counted.
pub(super) const TAKES_MEMORY: &str = "takes memory and no time";

impl Model {
    /// Returns the notes on the model for a server with `language_model_only`.
    pub(crate) fn notes_without_towers(&self) -> Vec<String> {
        let said = |note: &String| match note.ends_with(TAKES_MEMORY) {
            true => note.replace(TAKES_MEMORY, "is left out by language_model_only"),
            false => note.clone(),
        };
        self.notes.iter().map(said).collect()
    }
}

/// The towers of a configuration.
#[derive(Debug, Default)]
pub(super) struct Towers {
    /// Parameters of those whose sizes are stated, projectors to the language model included.
    pub(super) params: u64,
    /// Keys of those whose sizes are not.
    pub(super) uncounted: Vec<String>,
}

/// Counts the towers beside a language model whose hidden size is `text_hidden`.
pub(super) fn count(whole: &Keys<'_>, text_hidden: u64) -> Towers {
    let whole = &whole.entries().map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut towers = Towers::default();
    let kind = text(whole, "model_type").unwrap_or_default();
    let parts = [("", Some(whole)), ("thinker_config.", whole.get("thinker_config").and_then(Value::as_object))];
    for (path, of) in parts.into_iter().filter_map(|(path, of)| Some((path, of?))) {
        for key in SECTIONS {
            let Some(section) = of.get(key).and_then(Value::as_object) else { continue };
            let own = text(section, "model_type").filter(|own| !own.is_empty());
            let is_audio = key.contains("audio") || key.contains("speech");
            match (Tower { section, whole: of, kind: own.unwrap_or(kind), text_hidden, is_audio }).params() {
                Some(params) => towers.params = towers.params.saturating_add(params),
                None => towers.uncounted.push(format!("{path}{key}")),
            }
        }
        let named = NAMED.iter().filter(|key| text(of, key).is_some());
        towers.uncounted.extend(named.map(|key| format!("{path}{key}")));
    }
    towers
}

fn text<'a>(of: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    of.get(key)?.as_str()
}

/// A size from 1 to `max`. Anything else is no size, and no fault: the language model is read without its tower.
fn size(of: &Map<String, Value>, key: &str, max: u64) -> Option<u64> {
    of.get(key)?.as_u64().filter(|size| (1..=max).contains(size))
}

/// A factor.
fn ratio(of: &Map<String, Value>, key: &str) -> Option<f64> {
    of.get(key)?.as_f64().filter(|ratio| *ratio > 0.01 && *ratio < 64.0)
}

/// A tower that is being counted.
struct Tower<'a> {
    section: &'a Map<String, Value>,
    whole: &'a Map<String, Value>,
    kind: &'a str,
    text_hidden: u64,
    is_audio: bool,
}

impl Tower<'_> {
    fn first(&self, keys: &[&str], max: u64) -> Option<u64> {
        keys.iter().find_map(|key| size(self.section, key, max))
    }

    fn is_any(&self, beginnings: &[&str]) -> bool {
        beginnings.iter().any(|beginning| self.kind.starts_with(beginning))
    }

    /// Matrices of the layers, of the patches, of the positions and of the projector; norms and biases, about a thousandth, are left out.
    ///
    /// # Formula
    /// `layers · (4 · hidden² + m · hidden · width) + channels · patch² · frames · hidden + positions · hidden + projector`, with `m` = 3 for
    /// blocks with a gate, else 2.
    ///
    /// # Source
    /// The towers of `vllm/model_executor/models`: pixtral, qwen2_5_vl, qwen3_vl, siglip, clip, moonvit, glm4_1v, gemma3_mm.
    fn params(&self) -> Option<u64> {
        let (layers, hidden) = (self.first(&LAYERS, MAX_LAYERS)?, self.first(&HIDDEN, MAX_WIDTH)?);
        let by_ratio = || Some((hidden as f64 * ratio(self.section, "mlp_ratio")?) as u64);
        let stated = self.first(&WIDTH, MAX_WIDTH).or_else(by_ratio)?;
        // GLM's blocks are as wide as the output, and its projector is what `intermediate_size` says.
        let is_glm = self.is_any(&["glm4v"]);
        let width = if is_glm { self.first(&OUTPUT, MAX_WIDTH).unwrap_or(stated) } else { stated };
        let matrices = if self.is_any(&GATED) { 3 } else { 2 };
        let blocks = layers * (4 * hidden * hidden + matrices * hidden * width);
        let patch = size(self.section, "patch_size", MAX_PATCH);
        let frames = size(self.section, "temporal_patch_size", MAX_MERGE).unwrap_or(1);
        let patches =
            patch.map_or(0, |patch| self.first(&CHANNELS, MAX_PATCH).unwrap_or(3) * patch * patch * frames * hidden);
        let projector = if is_glm { self.glm_projector(hidden, width, stated) } else { self.projector(hidden) };
        Some(blocks + patches + self.positions(patch) * hidden + projector)
    }

    /// Rows of the table of positions.
    fn positions(&self, patch: Option<u64>) -> u64 {
        let size = |key: &str| size(self.section, key, MAX_WIDTH);
        if let Some(rows) = size("num_position_embeddings") {
            return rows;
        }
        if let (Some(height), Some(width)) = (size("init_pos_emb_height"), size("init_pos_emb_width")) {
            return height * width;
        }
        // One table for rows and one for columns.
        if let Some(rows) = size("position_embedding_size") {
            return 2 * rows;
        }
        match (size("image_size"), patch) {
            (Some(image), Some(patch)) if !self.is_any(&ROTARY) => (image / patch) * (image / patch),
            _ => 0,
        }
    }

    /// Parameters between the tower and the language model.
    fn projector(&self, hidden: u64) -> u64 {
        let output = self.first(&OUTPUT, MAX_WIDTH).unwrap_or(self.text_hidden);
        if self.is_audio {
            return hidden * output;
        }
        let merge = self.merge();
        let merged = hidden * merge * merge;
        if self.is_any(&MERGING) {
            let deep =
                self.section.get("deepstack_visual_indexes").and_then(|list| Some(list.as_array()?.len() as u64));
            return (1 + deep.unwrap_or(0).min(MAX_PATCH)) * (merged * merged + merged * output);
        }
        if self.is_any(&["pixtral", "mistral3"]) {
            return merged * hidden + hidden * output + output * output;
        }
        if self.is_any(&["gemma", "siglip"]) {
            return hidden * output;
        }
        merged * output + output * output
    }

    /// Patches along one side that become one token.
    fn merge(&self) -> u64 {
        let stated = [self.section, self.whole].into_iter().find_map(|of| size(of, "spatial_merge_size", MAX_MERGE));
        let kernel = || self.section.get("merge_kernel_size")?.get(0)?.as_u64();
        let shrunk = || ratio(self.whole, "downsample_ratio").or_else(|| ratio(self.section, "pixel_shuffle_ratio"));
        let halved = || Some((1.0 / shrunk()?).round() as u64);
        let default = if self.is_any(&MERGING) || self.is_any(&["pixtral", "mistral3"]) { 2 } else { 1 };
        stated.or_else(kernel).or_else(halved).unwrap_or(default).clamp(1, MAX_MERGE)
    }

    /// A convolution that merges patches, a square matrix and a gated block.
    fn glm_projector(&self, hidden: u64, output: u64, width: u64) -> u64 {
        let merge = self.merge();
        hidden * merge * merge * output + output * output + 3 * output * width
    }
}
