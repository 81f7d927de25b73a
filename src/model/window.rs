//! Which earlier tokens each layer's attention sees. Uses this module's `fields`, `family` and `shape`.

use super::family::WindowRule;
use super::fields::Section;
use super::shape::Window;

/// Rotary layers between two without rotary embedding in Llama-4 (`no_rope_layer_interval`, its class default).
const LLAMA4_GLOBAL_INTERVAL: u64 = 4;

/// The window of every layer, in order; `None` after a fault.
pub(super) fn layers(text: &Section<'_>, rule: WindowRule, num_layers: u64) -> Option<Vec<Window>> {
    if text.get("layer_types").is_some() {
        return listed(text, num_layers);
    }
    let each = |window: &dyn Fn(u64) -> Window| (0..num_layers).map(window).collect::<Vec<_>>();
    match rule {
        WindowRule::Full => Some(each(&|_| Window::Full)),
        WindowRule::All => {
            let faulty = text.get("sliding_window").is_some() && text.optional_size("sliding_window").is_none();
            let window = sliding(text);
            (!faulty).then(|| each(&|_| window.unwrap_or(Window::Full)))
        }
        WindowRule::FromMaxWindowLayers => {
            if !text.flag("use_sliding_window", false) {
                return Some(each(&|_| Window::Full));
            }
            let first = text.optional_count("max_window_layers").unwrap_or(0);
            let window = required_sliding(text)?;
            Some(each(&|layer| if layer >= first { window } else { Window::Full }))
        }
        WindowRule::AllButEvery(every) => {
            let every = pattern(text).unwrap_or(every);
            let window = required_sliding(text)?;
            Some(each(&|layer| if (layer + 1).is_multiple_of(every) { Window::Full } else { window }))
        }
        WindowRule::AllButEveryAndLast(every) => {
            let every = pattern(text).unwrap_or(every);
            let window = required_sliding(text)?;
            let is_global = |layer: u64| (layer + 1).is_multiple_of(every) || layer + 1 == num_layers;
            Some(each(&|layer| if is_global(layer) { Window::Full } else { window }))
        }
        WindowRule::ChunkedWhereRotary => chunked(text, num_layers),
    }
}

fn chunked(text: &Section<'_>, num_layers: u64) -> Option<Vec<Window>> {
    let chunk = text.optional_size("attention_chunk_size").map_or(Window::Full, |n| clip(text, n, Window::Chunked(n)));
    let interval = text.optional_size("no_rope_layer_interval").unwrap_or(LLAMA4_GLOBAL_INTERVAL);
    let rotary = match text.counts("no_rope_layers") {
        None => (0..num_layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect(),
        Some(list) => {
            if !has_length(text, "no_rope_layers", list.len(), num_layers) {
                return None;
            }
            list.into_iter().map(|uses_rope| uses_rope != 0).collect::<Vec<_>>()
        }
    };
    Some(rotary.into_iter().map(|rotary| if rotary { chunk } else { Window::Full }).collect())
}

fn listed(text: &Section<'_>, num_layers: u64) -> Option<Vec<Window>> {
    let types = text.texts("layer_types");
    if !has_length(text, "layer_types", types.len(), num_layers) {
        return None;
    }
    let slides = if types.contains(&"sliding_attention") { required_sliding(text)? } else { Window::Full };
    let chunk = if types.contains(&"chunked_attention") {
        let n = text.size("attention_chunk_size")?;
        clip(text, n, Window::Chunked(n))
    } else {
        Window::Full
    };
    let window = |kind: &str| match kind {
        "sliding_attention" => slides,
        "chunked_attention" => chunk,
        _ => Window::Full,
    };
    Some(types.into_iter().map(window).collect())
}

fn pattern(text: &Section<'_>) -> Option<u64> {
    text.optional_size("sliding_window_pattern").or_else(|| text.optional_size("_sliding_window_pattern"))
}

fn sliding(text: &Section<'_>) -> Option<Window> {
    text.optional_size("sliding_window").map(|n| clip(text, n, Window::Sliding(n)))
}

fn required_sliding(text: &Section<'_>) -> Option<Window> {
    text.size("sliding_window").map(|n| clip(text, n, Window::Sliding(n)))
}

/// A window as long as the longest context hides nothing.
fn clip(text: &Section<'_>, length: u64, window: Window) -> Window {
    match text.optional_size("max_position_embeddings") {
        Some(longest) if length >= longest => Window::Full,
        _ => window,
    }
}

/// Records a list whose length is not the number of layers.
pub(super) fn has_length(text: &Section<'_>, key: &str, length: usize, num_layers: u64) -> bool {
    let fits = u64::try_from(length).is_ok_and(|n| n == num_layers);
    if !fits {
        text.problem(key, &format!("has {length} entries but num_hidden_layers is {num_layers}"));
    }
    fits
}
