//! Takes a model's name apart: organisation, base and quantised variant. Two names are the same model only if they are equal
//! after known suffixes are removed; similar names never match.

use crate::dtype::MatmulFormat;

/// The number format that a suffix of a name promises, and for fp8 how its scales are made: `dynamic`, `static`, `kv` (static, those of
/// the KV cache too) or unsaid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) format: MatmulFormat,
    pub(super) scales: &'static str,
}

impl Scheme {
    /// Any of the 8-bit float variants.
    pub(super) fn is_fp8(self) -> bool {
        matches!(self.format, MatmulFormat::Fp8 | MatmulFormat::Fp8Block)
    }
}

/// The plain form of a scheme: the suffix of names, modelopt's algorithm, and a description; `None` for formats that no
/// suffix requests.
pub(super) fn plain_scheme(format: MatmulFormat) -> Option<(&'static str, &'static str, &'static str)> {
    match format {
        MatmulFormat::Fp8 => Some(("fp8", "FP8", "fp8 with one scale per tensor or channel")),
        MatmulFormat::Fp8Block => Some(("fp8-block", "FP8_PB_WO", "fp8 in blocks of 128 x 128")),
        MatmulFormat::Int4WeightOnly => Some(("int4", "W4A16", "int4 in groups of 128")),
        MatmulFormat::Int8WeightOnly => Some(("w8a16", "W8A16", "int8 weights in groups of 128")),
        MatmulFormat::Int8 => Some(("w8a8", "INT8_SQ", "int8 with one scale per channel")),
        MatmulFormat::Nvfp4 => Some(("nvfp4", "NVFP4", "NVFP4")),
        MatmulFormat::Bfloat16
        | MatmulFormat::Float16
        | MatmulFormat::Nvfp4WeightOnly
        | MatmulFormat::Mxfp4
        | MatmulFormat::Mxfp4Mxfp8 => None,
    }
}

/// A name taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedName {
    /// Organisation, lower case.
    pub(super) organisation: Option<String>,
    /// Everything after the organisation with case and separators evened out.
    pub(super) whole: String,
    /// The same without suffixes such as `-Instruct` and `-FP8`.
    pub(super) base: String,
    /// Number format that a suffix names.
    pub(super) scheme: Option<Scheme>,
}

/// Suffixes that name a training stage or a file layout. Those of later releases (`thinking`, dates as `2507`) stay: such models often
/// have another context or number format.
const STAGES: [&str; 8] = ["instruct", "hf", "base", "chat", "it", "pt", "reasoning", "python"];

/// Suffixes of quantised variants, the longest first.
const SCHEMES: [(&[&str], MatmulFormat, &str); 22] = [
    (&["qat", "w4a16", "ct"], MatmulFormat::Int4WeightOnly, ""),
    (&["quantized.w4a16"], MatmulFormat::Int4WeightOnly, ""),
    (&["quantized.w8a8"], MatmulFormat::Int8, ""),
    (&["quantized.w8a16"], MatmulFormat::Int8WeightOnly, ""),
    (&["gptq", "int4"], MatmulFormat::Int4WeightOnly, ""),
    (&["gptq", "int8"], MatmulFormat::Int8WeightOnly, ""),
    (&["gptq", "w4a16"], MatmulFormat::Int4WeightOnly, ""),
    (&["awq", "int4"], MatmulFormat::Int4WeightOnly, ""),
    (&["fp8", "dynamic"], MatmulFormat::Fp8, "dynamic"),
    (&["fp8", "static"], MatmulFormat::Fp8, "static"),
    (&["fp8", "kv"], MatmulFormat::Fp8, "kv"),
    (&["fp8", "block"], MatmulFormat::Fp8Block, ""),
    (&["fp8"], MatmulFormat::Fp8, ""),
    (&["awq"], MatmulFormat::Int4WeightOnly, ""),
    (&["gptq"], MatmulFormat::Int4WeightOnly, ""),
    (&["int4"], MatmulFormat::Int4WeightOnly, ""),
    (&["w4a16"], MatmulFormat::Int4WeightOnly, ""),
    (&["w8a16"], MatmulFormat::Int8WeightOnly, ""),
    (&["w8a8"], MatmulFormat::Int8, ""),
    (&["nvfp4"], MatmulFormat::Nvfp4, ""),
    (&["fp4"], MatmulFormat::Nvfp4, ""),
    (&["bf16"], MatmulFormat::Bfloat16, ""),
];

impl ParsedName {
    /// Takes a short name or a Hugging Face id apart.
    pub(super) fn new(name: &str) -> Self {
        let lower = name.trim().trim_end_matches('/').to_lowercase();
        let (organisation, rest) = match lower.rsplit_once('/') {
            Some((organisation, rest)) => (Some(organisation.to_owned()), rest.to_owned()),
            None => (None, lower),
        };
        let all: Vec<&str> = rest.split(['-', '_', ' ']).filter(|t| !t.is_empty()).collect();
        let mut tokens: &[&str] = &all;
        let mut scheme = None;
        // The first token is never a suffix.
        while let [_, rest @ ..] = tokens
            && let [.., last] = rest
        {
            let quantised = SCHEMES.iter().find(|(suffix, ..)| rest.ends_with(suffix));
            match quantised {
                Some((suffix, format, scales)) if scheme.is_none() => {
                    scheme = Some(Scheme { format: *format, scales });
                    tokens = tokens.get(..tokens.len() - suffix.len()).unwrap_or_default();
                }
                None if STAGES.contains(last) || is_release(last) => {
                    tokens = tokens.get(..tokens.len() - 1).unwrap_or_default();
                }
                _ => break,
            }
        }
        ParsedName { organisation, whole: evened(&all), base: evened(tokens), scheme }
    }
}

/// A release mark, as `v0.1`.
fn is_release(token: &str) -> bool {
    let digits = token.strip_prefix("v0.").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// Joins tokens with a dash, and puts one for a dot and between a letter and a digit. So `qwen3-8b` and `qwen-3-8b` are one
/// name, as are `llama-3.1-8b` and `llama-3-1-8b`, but `qwen3-4b` and `qwen-34b` are two.
fn evened(tokens: &[&str]) -> String {
    let mut name = String::new();
    for token in tokens {
        if !name.is_empty() {
            name.push('-');
        }
        let mut after_letter = false;
        for c in token.chars() {
            if after_letter && c.is_ascii_digit() {
                name.push('-');
            }
            after_letter = c.is_alphabetic();
            name.push(if c == '.' { '-' } else { c });
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(name: &str) -> (String, Option<(MatmulFormat, &'static str)>) {
        let parsed = ParsedName::new(name);
        (parsed.base, parsed.scheme.map(|scheme| (scheme.format, scheme.scales)))
    }

    #[test]
    fn stages_releases_and_schemes_come_off() {
        assert_eq!(base("meta-llama/Llama-3.1-70B-Instruct").0, "llama-3-1-70b");
        assert_eq!(base("mistralai/Mistral-7B-Instruct-v0.3").0, "mistral-7b");
        assert_eq!(
            base("x/Qwen2.5-7B-Instruct-GPTQ-Int4"),
            ("qwen-2-5-7b".to_owned(), Some((MatmulFormat::Int4WeightOnly, "")))
        );
        assert_eq!(base("Meta-Llama-3.1-8B-Instruct-quantized.w8a8").1, Some((MatmulFormat::Int8, "")));
        assert_eq!(base("Llama-3.1-8B-FP8-dynamic").1, Some((MatmulFormat::Fp8, "dynamic")));
    }

    #[test]
    fn sizes_and_versions_stay() {
        assert_ne!(base("qwen3-4b").0, base("qwen-34b").0);
        assert_ne!(base("llama-3.1-8b").0, base("llama-3.1-80b").0);
        assert_ne!(base("llama-3.1-8b").0, base("llama-31-8b").0);
        assert_eq!(base("deepseek-v3.2").0, "deepseek-v-3-2");
        assert_eq!(base("llama-3-1-8b").0, base("llama-3.1-8b").0);
        assert_eq!(base("some-model-4096").0, "some-model-4096");
        assert_eq!(base("Qwen/Qwen3-4B-Instruct-2507").0, "qwen-3-4b-instruct-2507");
        assert_eq!(base("moonshotai/Kimi-K2-Thinking").0, "kimi-k-2-thinking");
    }

    #[test]
    fn separators_and_case_do_not_matter() {
        assert_eq!(base("Qwen3_8B").0, base("qwen 3 8b").0);
    }
}
