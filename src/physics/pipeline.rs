//! How pipeline stages share the layers. Uses nothing else of the crate.

/// Layers of each pipeline stage.
///
/// # Formula
/// `⌊L/p⌋` each; the remainder, one layer each, goes to the stages before the last, the last but one first, since the
/// last stage also has the final norm and the LM head.
///
/// # Source
/// vLLM, `get_pp_indices` (`vllm/distributed/utils.py`).
///
/// ```
/// use ridgepoint::physics::pipeline::layers_per_stage;
/// assert_eq!(layers_per_stage(61, 4), [15, 15, 16, 15]);
/// assert_eq!(layers_per_stage(80, 4), [20; 4]);
/// ```
pub fn layers_per_stage(num_layers: u64, stages: u64) -> Vec<u64> {
    let stages = stages.max(1);
    let (each, remainder) = (num_layers / stages, num_layers % stages);
    (0..stages)
        .map(|stage| {
            let from_the_end = stages - 1 - stage;
            each + u64::from(from_the_end >= 1 && from_the_end <= remainder)
        })
        .collect()
}

/// Share of its time that a stage idles while a single batch is in flight.
///
/// # Formula
/// `(p − 1)/p`: with stages of equal length a stage works for one of `p` slots.
///
/// ```
/// assert_eq!(ridgepoint::physics::pipeline::bubble_fraction(4), 0.75);
/// ```
pub fn bubble_fraction(stages: u64) -> f64 {
    let stages = stages.max(1) as f64;
    (stages - 1.0) / stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_one_stage_and_the_last_stage_is_never_the_longest() {
        for layers in 1..90 {
            for stages in 1..=layers.min(16) {
                let split = layers_per_stage(layers, stages);
                assert_eq!(split.iter().sum::<u64>(), layers, "{layers} layers, {stages} stages");
                assert_eq!(split.last(), split.iter().min(), "{layers} layers, {stages} stages");
            }
        }
    }

    #[test]
    fn the_remainder_goes_before_the_last_stage() {
        assert_eq!(layers_per_stage(61, 4), [15, 15, 16, 15]);
        assert_eq!(layers_per_stage(63, 4), [16, 16, 16, 15]);
    }
}
