//! Finding built-in things by the many names people give them: case, separators and near misses.
//! Shared by the model and hardware catalogues; uses nothing else of the crate.

/// A name reduced to lower-case letters, digits and dots, so that `H100_SXM`, `h100-sxm` and `h100 sxm` are one.
pub fn normalise(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || *c == '.').flat_map(char::to_lowercase).collect()
}

/// Longer names have no near matches: comparing costs the product of both lengths.
const MAX_COMPARED_BYTES: usize = 256;

/// The up to three candidates closest to `name`, best first; none that are far from it.
pub fn near_matches<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    if name.len() > MAX_COMPARED_BYTES {
        return Vec::new();
    }
    let wanted = normalise(name);
    let mut scored: Vec<(f64, &str)> = candidates
        .map(|c| (strsim::jaro_winkler(&wanted, &normalise(c)), c))
        .filter(|(score, _)| *score > 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(3).map(|(_, c)| c.to_owned()).collect()
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
        let near = near_matches("h10_sxm", names.into_iter());
        assert_eq!(near.first().map(String::as_str), Some("h100_sxm"));
        assert!(near_matches("zzzzzz", names.into_iter()).is_empty());
        assert!(near_matches(&"h100_sxm".repeat(1 << 20), names.into_iter()).is_empty());
    }
}
