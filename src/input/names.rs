//! Compares names as people write them, and suggests known names for unknown ones.

/// Longer names get no suggestions: a comparison costs the product of both lengths.
const MAX_COMPARED_BYTES: usize = 256;
/// Most suggestions for one name.
const MAX_SUGGESTIONS: usize = 3;
/// Least Jaro–Winkler similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.8;
/// Similarity that a candidate gains if it has all numbers of the name.
const SAME_NUMBERS: f64 = 0.2;

/// Reduces a name to lower-case letters, digits and dots, so that `H100_SXM`, `h100-sxm` and `h100 sxm` are equal.
pub fn normalise(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || *c == '.').flat_map(char::to_lowercase).collect()
}

/// Returns up to three candidates similar to `name`, the most similar first. A candidate with the same numbers, such as
/// the size of a model, outranks one that is merely spelled alike.
pub fn near_matches<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    if name.len() > MAX_COMPARED_BYTES {
        return Vec::new();
    }
    let wanted = normalise(name);
    let numbers = numbers(name);
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&wanted, &normalise(candidate)), candidate))
        .filter(|(similarity, _)| *similarity > MIN_SIMILARITY)
        .map(|(similarity, candidate)| (similarity + SAME_NUMBERS * share_in(&numbers, candidate), candidate))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, candidate)| candidate.to_owned()).collect()
}

/// Returns `did you mean a, b?` with the near matches of `name`; `None` without any.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = near_matches(name, candidates);
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(", ")))
}

/// The numbers in a name: `3.1` and `8` in `llama-3.1-8b`.
fn numbers(name: &str) -> Vec<&str> {
    name.split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|part| part.trim_matches('.'))
        .filter(|part| !part.is_empty())
        .collect()
}

/// The share of `wanted` numbers that a candidate has.
fn share_in(wanted: &[&str], candidate: &str) -> f64 {
    let own = numbers(candidate);
    let shared = wanted.iter().filter(|number| own.contains(number)).count();
    shared as f64 / wanted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_case_do_not_matter() {
        assert_eq!(normalise("H100_SXM"), normalise("h100 sxm"));
        assert_ne!(normalise("llama-3.1-8b"), normalise("llama-31-8b"));
    }

    #[test]
    fn near_matches_are_close_and_few() {
        let names = ["h100_sxm", "h200_sxm", "a100_sxm", "l40s"];
        assert_eq!(near_matches("h10_sxm", names).first().map(String::as_str), Some("h100_sxm"));
        assert!(near_matches("zzzzzz", names).is_empty());
        assert!(near_matches(&"h100_sxm".repeat(1 << 20), names).is_empty());
    }

    #[test]
    fn the_size_of_a_model_outranks_its_spelling() {
        let names = ["qwen3-0.6b", "qwen3-4b", "qwen3-8b", "qwen3-30b-a3b", "qwen3-32b"];
        assert_eq!(near_matches("qwen-30b", names).first().map(String::as_str), Some("qwen3-30b-a3b"));
        assert_eq!(did_you_mean("zzzzzz", names), None);
    }
}
