//! Files that people write in YAML or JSON: read up to a size that no such file has, and parsed into a JSON value. Uses
//! `error`.

use crate::error::ErrorKind;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use serde_saphyr::UserMessageFormatter;
use serde_saphyr::options::NonFiniteFloatPolicy;

use crate::error::{Error, Result};

/// Longest file, bytes.
const MAX_BYTES: u64 = 16 << 20;

/// The text of a file.
///
/// # Errors
/// `ErrorKind::Io` where it can't be read, `ErrorKind::Parse` where it is no text or too long.
pub(crate) fn read(path: &Path) -> Result<String> {
    let failed = |error| Error::io(path, error);
    let fault = |message: String| Error::parse(path.display().to_string(), message);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fault(format!("is longer than {} MiB: is it the right file?", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| fault(format!("is not UTF-8 text: {}", error.utf8_error())))
}

/// The value of a text that errors call `origin`. What is not a number in the same way for everybody is a text: `.inf`,
/// and `010`, which YAML 1.1 has as 8.
///
/// # Errors
/// `ErrorKind::Parse` where the text is neither YAML nor JSON, or has a key twice, or more in it than a person writes.
pub(crate) fn parse(origin: &str, text: &str) -> Result<Value> {
    let options = serde_saphyr::options! {
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        leading_zero_numbers_as_strings: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        Error::parse(
            origin,
            format!("can't be read as YAML or JSON: {}", error.render_with_formatter(&UserMessageFormatter)),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(text: &str) -> String {
        parse("file.yaml", text).unwrap_err().to_string()
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
            assert_eq!(parse("file.yaml", text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_that_dialects_read_differently_are_texts() {
        // PyYAML reads these as 8, 90 and infinity.
        assert_eq!(parse("f", "[010, 1:30, .inf, -010]").unwrap(), json!(["010", "1:30", ".inf", "-010"]));
        assert_eq!(parse("f", "[0.10, 0, 1e3, 0x10]").unwrap(), json!([0.1, 0, 1000.0, 16]));
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

    #[test]
    fn files_that_are_no_text_or_too_long_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.yaml");
        std::fs::write(&path, b"a: \xff").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("file.yaml: is not UTF-8 text"));
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("is longer than 16 MiB"));
        assert!(matches!(read(folder.path()), Err(error) if error.kind() == ErrorKind::Io));
    }
}
