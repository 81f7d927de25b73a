//! Values as errors show them.

use std::io::{self, Write};

use serde_json::Value;

use crate::error::cut;

/// Returns a value as JSON, cut to a readable length.
pub fn shown(value: &Value) -> String {
    let mut start = Start(Vec::new());
    // Writing ends in an error where the rest would be cut.
    let _ = serde_json::to_writer(&mut start, value);
    cut(&String::from_utf8_lossy(&start.0))
}

/// Keeps the first bytes of a value that may be long.
struct Start(Vec<u8>);

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const MAX_BYTES: usize = 1 << 10;
        self.0.extend_from_slice(bytes);
        if self.0.len() < MAX_BYTES { Ok(bytes.len()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_values_are_cut_and_short_ones_whole() {
        assert_eq!(shown(&json!({"a": [1, "b"]})), r#"{"a":[1,"b"]}"#);
        let many = vec![json!("é"); 100_000];
        let start = shown(&Value::Array(many));
        assert_eq!((start.chars().count(), start.ends_with('…')), (61, true), "{start}");
        assert_eq!(shown(&Value::String("é".repeat(100_000))).chars().count(), 61);
    }
}
