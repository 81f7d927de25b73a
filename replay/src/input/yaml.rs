//! Parses YAML, of which JSON is a part.

use ridgepoint::{Error, Result};
use serde_json::Value;

/// Parses YAML or JSON. Texts that YAML dialects read as different numbers, such as `010` and `.inf`, stay texts.
///
/// # Errors
/// A text that is neither, has a key twice, or expands to more than a person writes.
pub fn parse_yaml(origin: &str, text: &str) -> Result<Value> {
    use serde_saphyr::UserMessageFormatter;
    use serde_saphyr::options::NonFiniteFloatPolicy;

    let options = serde_saphyr::options! {
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        leading_zero_numbers_as_strings: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message = error.render_with_formatter(&UserMessageFormatter);
        Error::parse(origin, format!("can't be read as YAML or JSON: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(text: &str) -> String {
        parse_yaml("file.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn windows_files_and_json_with_tabs_are_read() {
        let expected = json!({"a": [1, 2.5], "b": {"c": true}});
        for text in [
            "a: [1, 2.5]\r\nb:\r\n  c: true\r\n",
            "\u{feff}a: [1, 2.5]\nb: {c: yes}\n",
            "{\n\t\"a\": [1, 2.5],\n\t\"b\": {\"c\": true}\n}\n",
            "---\na: &x [1, 2.5]\nb: {c: true}\n...\n",
        ] {
            assert_eq!(parse_yaml("file.yaml", text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_that_dialects_read_differently_are_texts() {
        // PyYAML reads these as 8, 90 and infinity.
        assert_eq!(parse_yaml("f", "[010, 1:30, .inf, -010]").unwrap(), json!(["010", "1:30", ".inf", "-010"]));
        assert_eq!(parse_yaml("f", "[0.10, 0, 1e3, 0x10]").unwrap(), json!([0.1, 0, 1000.0, 16]));
    }

    #[test]
    fn faults_are_in_plain_words_with_their_place() {
        let twice = fault("a: 1\nb: 2\na: 3\n");
        assert!(twice.contains("duplicate mapping key `a`") && twice.contains("line 3"), "{twice}");
        for text in ["a: [", "a: &x [*x]\n", "\0", "a: 1\n---\na: 2\n"] {
            assert!(fault(text).starts_with("file.yaml: can't be read as YAML or JSON: "), "{text}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let laughs = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
            let before = vec![format!("*a{}", level - 1); 9].join(", ");
            format!("{text}a{level}: &a{level} [{before}]\n")
        });
        let many = "- {rate: 1, duration: 1}\n".repeat(100_000);
        for text in [nested, laughs, many] {
            assert!(fault(&text).contains("can't be read"), "{:.50}", text);
        }
    }
}
