//! Reads which earlier tokens each layer's attention sees.

use super::family::WindowRule;
use super::shape::Window;
use super::sizes::{check_length, length, optional_count, optional_length, optional_size};
use crate::input::Keys;

/// Rotary layers between two without rotary embedding in Llama-4 (`no_rope_layer_interval`, its class default).
const LLAMA4_GLOBAL_INTERVAL: u64 = 4;

/// Returns the window of every layer, in order.
pub(super) fn layers(text: &Keys<'_>, rule: WindowRule, num_layers: u64) -> Vec<Window> {
    if text.has("layer_types") {
        return listed(text, num_layers);
    }
    let each = |window: &dyn Fn(u64) -> Window| (0..num_layers).map(window).collect();
    match rule {
        WindowRule::All if text.has("sliding_window") => {
            let window = sliding(text);
            each(&|_| window)
        }
        WindowRule::FromMaxWindowLayers if text.flag("use_sliding_window").unwrap_or(false) => {
            let first = optional_count(text, "max_window_layers").unwrap_or(0);
            let window = sliding(text);
            each(&|layer| if layer >= first { window } else { Window::Full })
        }
        WindowRule::AllButEveryIfSet { n } if text.has("sliding_window") => {
            let letters = text.get("sliding_window_pattern").and_then(|pattern| pattern.as_str()).map(str::len);
            let every = match letters.filter(|letters| *letters > 0) {
                Some(letters) => letters as u64,
                None => optional_size(text, "sliding_window_pattern").unwrap_or(n),
            };
            let window = sliding(text);
            each(&|layer| if (layer + 1).is_multiple_of(every) { Window::Full } else { window })
        }
        WindowRule::Full | WindowRule::All | WindowRule::FromMaxWindowLayers | WindowRule::AllButEveryIfSet { .. } => {
            each(&|_| Window::Full)
        }
        WindowRule::AllButEvery { n, and_last } => {
            let every = optional_size(text, "sliding_window_pattern").unwrap_or(n);
            let window = sliding(text);
            let is_global = |layer: u64| (layer + 1).is_multiple_of(every) || (and_last && layer + 1 == num_layers);
            each(&|layer| if is_global(layer) { Window::Full } else { window })
        }
        WindowRule::ChunkedWhereRotary => chunked(text, num_layers),
    }
}

fn chunked(text: &Keys<'_>, num_layers: u64) -> Vec<Window> {
    let chunk =
        optional_length(text, "attention_chunk_size").map_or(Window::Full, |n| clip(text, n, Window::Chunked(n)));
    let interval = optional_size(text, "no_rope_layer_interval").unwrap_or(LLAMA4_GLOBAL_INTERVAL);
    let rotary: Vec<bool> = match text.wholes("no_rope_layers").filter(|layers| !layers.is_empty()) {
        None => (0..num_layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect(),
        Some(list) => {
            check_length(text, "no_rope_layers", list.len(), num_layers);
            list.into_iter().map(|uses_rope| uses_rope != 0).collect()
        }
    };
    rotary.into_iter().map(|rotary| if rotary { chunk } else { Window::Full }).collect()
}

fn listed(text: &Keys<'_>, num_layers: u64) -> Vec<Window> {
    let types = text.texts("layer_types").unwrap_or_default();
    check_length(text, "layer_types", types.len(), num_layers);
    let slides = if types.contains(&"sliding_attention") { sliding(text) } else { Window::Full };
    let chunk = if types.contains(&"chunked_attention") {
        let n = length(text, "attention_chunk_size");
        clip(text, n, Window::Chunked(n))
    } else {
        Window::Full
    };
    let window = |kind: &str| match kind {
        "sliding_attention" => slides,
        "chunked_attention" => chunk,
        _ => Window::Full,
    };
    types.into_iter().map(window).collect()
}

fn sliding(text: &Keys<'_>) -> Window {
    let n = length(text, "sliding_window");
    clip(text, n, Window::Sliding(n))
}

/// A window as long as the longest context hides nothing.
fn clip(text: &Keys<'_>, length: u64, window: Window) -> Window {
    match optional_length(text, "max_position_embeddings") {
        Some(longest) if length >= longest => Window::Full,
        _ => window,
    }
}
