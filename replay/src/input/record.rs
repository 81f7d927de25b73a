//! Reads structs from texts with names: the cells of a row, or the attributes of an event.
#![expect(clippy::cast_possible_truncation, reason = "a column's number")]

use csv::{DeserializeErrorKind, StringRecord};
use ridgepoint::input::whole_text;
use serde::de::DeserializeOwned;

/// Reads a struct whose fields have names among `names` from the text of each name. Other names are passed over, empty texts
/// are `None`, and whole numbers may be written as `16.0`.
///
/// # Errors
/// The name of a text that a field cannot be read from, and what is expected of it.
pub fn read_texts<T: DeserializeOwned>(names: &StringRecord, mut texts: StringRecord) -> Result<T, (String, String)> {
    loop {
        let error = match texts.deserialize(Some(names)) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
            return Err((String::new(), error.to_string()));
        };
        let at = err.field().map_or(usize::MAX, |at| at as usize);
        let (name, text) = (names.get(at).unwrap_or_default(), texts.get(at).unwrap_or_default());
        let expected = match err.kind() {
            DeserializeErrorKind::ParseInt(_) => "a whole number",
            DeserializeErrorKind::ParseFloat(_) => "a number",
            kind => return Err((name.to_owned(), kind.to_string())),
        };
        let whole = whole_text(text).map(|number| number.to_string());
        let Some(whole) = whole.filter(|whole| whole != text && expected == "a whole number") else {
            return Err((name.to_owned(), expected.to_owned()));
        };
        texts = texts.iter().enumerate().map(|(other, text)| if other == at { whole.as_str() } else { text }).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Request {
        input_len: u32,
        stage: Option<u32>,
        arrival: f64,
    }

    fn read(texts: [&str; 4]) -> Result<Request, (String, String)> {
        let names = ["stage", "arrival", "input_len", "other"];
        read_texts(&names.into_iter().collect(), texts.into_iter().collect())
    }

    #[test]
    fn whole_numbers_may_have_a_point_and_absent_ones_are_empty() {
        assert_eq!(read(["", "1.5", "16.0", ""]), Ok(Request { input_len: 16, stage: None, arrival: 1.5 }));
        assert_eq!(read(["3.0", "2", "16", "x"]), Ok(Request { input_len: 16, stage: Some(3), arrival: 2.0 }));
    }

    #[test]
    fn a_fault_names_its_text() {
        for (arrival, input_len, name, expected) in [
            ("x", "5", "arrival", "a number"),
            ("1", "4294967296", "input_len", "a whole number"),
            ("1", "1.5", "input_len", "a whole number"),
            ("1", "-1.0", "input_len", "a whole number"),
            ("1", "", "input_len", "a whole number"),
        ] {
            assert_eq!(read(["1", arrival, input_len, ""]), Err((name.to_owned(), expected.to_owned())));
        }
    }
}
