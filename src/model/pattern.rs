//! Module names, and the patterns by which checkpoints leave modules out of quantisation: literal names or parts of them,
//! globs with `*`, and `re:` regular expressions.

use std::collections::HashSet;

use regex_lite::{Regex, RegexBuilder};

use crate::input::Keys;

/// Components in front of `layers` that name the language model and nothing else.
const LANGUAGE_PREFIXES: [&str; 4] = ["model", "language_model", "text_model", "backbone"];

/// A module of the language model, under every full name that checkpoints use for it.
#[derive(Debug)]
pub(super) struct ModuleName {
    canonical: String,
    full: Vec<String>,
}

impl ModuleName {
    /// `path` is the name without prefix: `layers.3.self_attn.q_proj`, `lm_head`.
    pub(super) fn new(path: &str) -> Self {
        let prefixes = ["backbone.", "model.", "language_model.model.", "model.language_model.", "language_model.", ""];
        ModuleName { canonical: path.to_owned(), full: prefixes.iter().map(|p| format!("{p}{path}")).collect() }
    }
}

/// A set of patterns.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    literals: HashSet<String>,
    regexes: Vec<Regex>,
    regex_bytes: usize,
}

/// Largest program of a pattern, bytes; a name of a few hundred characters fits.
const MAX_PROGRAM_BYTES: usize = 64 << 10;
/// Bytes of a pattern that counted repetitions may stand for.
const REPETITION_BYTES: usize = 1000;

impl Matcher {
    /// Adds a pattern; a bad one is a problem of `key`.
    pub(super) fn add(&mut self, section: &Keys<'_>, key: &str, pattern: &str) {
        let expression = match pattern.strip_prefix("re:") {
            Some(expression) => format!("^(?:{expression})"),
            // A glob matches the whole name or the name of a module around it.
            None if pattern.contains('*') => {
                let parts: Vec<String> = pattern.split('*').map(regex_lite::escape).collect();
                format!(r"^{}(?:\.|$)", parts.join(".*"))
            }
            None => {
                self.literals.insert(canonical(pattern));
                return;
            }
        };
        let regex = RegexBuilder::new(&expression).size_limit(MAX_PROGRAM_BYTES).build();
        match regex {
            Ok(regex) => {
                self.regexes.push(regex);
                self.regex_bytes += expression.len() + if expression.contains('{') { REPETITION_BYTES } else { 0 };
            }
            Err(error) => {
                section.problem(key, format!("has a bad pattern, '{pattern}' ({error}): list the modules by name"));
            }
        }
    }

    /// Work of comparing one name: about the bytes of the expressions, and a few for the literals.
    pub(super) fn work(&self) -> usize {
        self.regex_bytes + if self.literals.is_empty() { 0 } else { 16 }
    }

    /// True where a pattern names the module, a module around it or one of its components.
    pub(super) fn matches(&self, module: &ModuleName) -> bool {
        self.has_literal(module) || module.full.iter().any(|name| self.regexes.iter().any(|r| r.is_match(name)))
    }

    fn has_literal(&self, module: &ModuleName) -> bool {
        if self.literals.is_empty() {
            return false;
        }
        let parts: Vec<&str> = module.canonical.split('.').collect();
        (0..parts.len()).any(|from| {
            (from + 1..=parts.len()).any(|to| parts.get(from..to).is_some_and(|p| self.literals.contains(&p.join("."))))
        })
    }
}

fn canonical(name: &str) -> String {
    let mut parts: &[&str] = &name.split('.').collect::<Vec<_>>();
    while let [first, rest @ ..] = parts {
        if rest.is_empty() || !LANGUAGE_PREFIXES.contains(first) {
            break;
        }
        parts = rest;
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Log;

    fn matches(pattern: &str, module: &str) -> bool {
        let log = Log::default();
        let config = serde_json::json!({});
        let mut matcher = Matcher::default();
        matcher.add(&Keys::new("q", &config, &log), "ignore", pattern);
        assert!(log.finish("config.json", Some(())).is_ok(), "{pattern}");
        matcher.matches(&ModuleName::new(module))
    }

    #[test]
    fn a_component_is_matched_whole() {
        assert!(matches("gate", "layers.0.block_sparse_moe.gate"));
        assert!(!matches("gate", "layers.0.mlp.gate_proj"));
        assert!(matches("model.layers.1", "layers.1.mlp.gate_proj"));
        assert!(!matches("model.layers.1", "layers.11.mlp.gate_proj"));
    }

    #[test]
    fn language_model_prefixes_are_equal_but_a_vision_tower_is_not() {
        for prefix in ["model", "language_model.model", "model.language_model"] {
            assert!(matches(&format!("{prefix}.layers.0.self_attn.q_proj"), "layers.0.self_attn.q_proj"), "{prefix}");
        }
        assert!(!matches("vision_model.model.layers.0.self_attn.q_proj", "layers.0.self_attn.q_proj"));
        assert!(matches("language_model.lm_head", "lm_head"));
    }

    #[test]
    fn globs_cover_what_lies_below() {
        assert!(matches("model.layers.*.self_attn", "layers.7.self_attn.q_proj"));
        assert!(matches("*self_attn*", "layers.7.self_attn.q_proj"));
        assert!(matches("model.layers.7.self_attn*", "layers.7.self_attn.o_proj"));
        assert!(!matches("model.layers.*.mlp.router", "layers.7.mlp.experts.0.gate_proj"));
    }

    #[test]
    fn expressions_are_anchored_at_the_start_only() {
        assert!(matches("re:.*lm_head", "lm_head"));
        assert!(matches(r"re:.*\.self_attn", "layers.7.self_attn.q_proj"));
        assert!(!matches("re:self_attn", "layers.7.self_attn.q_proj"));
    }

    #[test]
    fn an_expression_that_is_not_understood_is_reported() {
        let log = Log::default();
        let config = serde_json::json!({});
        Matcher::default().add(&Keys::new("q", &config, &log), "ignore", "re:(?!x)y");
        assert!(log.finish("config.json", Some(())).is_err_and(|error| error.to_string().contains("re:(?!x)y")));
    }
}
