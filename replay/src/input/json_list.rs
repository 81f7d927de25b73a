//! Cuts a JSON list into the texts of its elements, one at a time, so that a list of any length needs the memory of its longest element.

use std::io::{self, BufRead};

/// Where a reader stands in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListPart {
    /// Before its bracket.
    Start,
    /// Between its elements.
    Inside,
    /// Behind its bracket.
    End,
}

/// Whether a text begins as a list does.
pub(super) fn is_list(head: &[u8]) -> bool {
    head.trim_ascii_start().first() == Some(&b'[')
}

impl ListPart {
    /// Reads the text of the next element; false at the end of the list. What the element is, its parser says.
    ///
    /// # Errors
    /// A file that can't be read, that ends within the list, or that goes on behind it.
    pub(super) fn next_element(&mut self, reader: &mut impl BufRead, element: &mut Vec<u8>) -> io::Result<bool> {
        element.clear();
        if *self == ListPart::End {
            return end(reader).map(|()| false);
        }
        let is_first = *self == ListPart::Start;
        if is_first {
            skip_until(reader, b'[')?;
            *self = ListPart::Inside;
        }
        let mut nesting = Nesting::default();
        loop {
            let bytes = reader.fill_buf()?;
            if bytes.is_empty() {
                return Err(fault("ends within its list: is the file cut short?"));
            }
            let Some(at) = bytes.iter().position(|byte| nesting.is_end(*byte)) else {
                element.extend_from_slice(bytes);
                let read = bytes.len();
                reader.consume(read);
                continue;
            };
            let (text, rest) = bytes.split_at(at);
            element.extend_from_slice(text);
            let is_last = rest.first() == Some(&b']');
            reader.consume(at + 1);
            if is_last {
                *self = ListPart::End;
                if is_first && element.trim_ascii().is_empty() {
                    return end(reader).map(|()| false);
                }
            }
            return Ok(true);
        }
    }
}

/// Brackets and strings that are open within an element.
#[derive(Debug, Default)]
struct Nesting {
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
}

impl Nesting {
    /// Takes a byte. Returns whether it ends the element.
    fn is_end(&mut self, byte: u8) -> bool {
        if self.is_in_string {
            let is_escape = byte == b'\\' && !self.is_escaped;
            self.is_in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = is_escape;
            return false;
        }
        match byte {
            b'"' => self.is_in_string = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b',' | b']' if self.depth == 0 => return true,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        false
    }
}

/// Passes over the bytes up to and with one, which the caller has seen.
fn skip_until(reader: &mut impl BufRead, wanted: u8) -> io::Result<()> {
    loop {
        let bytes = reader.fill_buf()?;
        let read = bytes.iter().position(|byte| *byte == wanted).map_or(bytes.len(), |at| at + 1);
        let is_found = bytes.get(read.wrapping_sub(1)) == Some(&wanted);
        reader.consume(read);
        if is_found || read == 0 {
            return Ok(());
        }
    }
}

/// Checks that nothing but white space follows.
fn end(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if !bytes.trim_ascii().is_empty() {
            return Err(fault("goes on behind its list: write one list, or one object per line"));
        }
        let read = bytes.len();
        reader.consume(read);
    }
}

fn fault(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// The elements of a text that is read in pieces of `piece` bytes.
    fn elements(text: &str, piece: usize) -> Result<Vec<String>, String> {
        let mut reader = BufReader::with_capacity(piece, text.as_bytes());
        let (mut part, mut element, mut found) = (ListPart::Start, Vec::new(), Vec::new());
        while part.next_element(&mut reader, &mut element).map_err(|error| error.to_string())? {
            found.push(String::from_utf8(element.clone()).unwrap().trim().to_owned());
        }
        Ok(found)
    }

    #[test]
    fn brackets_and_commas_of_strings_and_of_inner_lists_end_no_element() {
        let all = [r#"{"a": [1, [2]], "b": "],\"}"}"#, r#"{"c\\": "\\"}"#, "3", r#""[,""#, "{}"];
        for piece in 1..40 {
            for number in 0..=all.len() {
                let text = format!("  [ {} ] \n", all[..number].join(" ,\n "));
                assert_eq!(elements(&text, piece).unwrap(), all[..number], "{text} by {piece}");
            }
        }
    }

    #[test]
    fn lists_that_are_cut_short_or_go_on_are_refused() {
        for piece in [1, 7, 4096] {
            for text in ["[", "[1", "[1,", "[{\"a\": \"]", "[[1]"] {
                assert!(elements(text, piece).unwrap_err().starts_with("ends within its list"), "{text}");
            }
            for text in ["[1] 2", "[] {}", "[{}]\n[{}]"] {
                assert!(elements(text, piece).unwrap_err().starts_with("goes on behind its list"), "{text}");
            }
        }
        // The parser of elements refuses what is none.
        assert_eq!(elements("[1,]", 3).unwrap(), ["1", ""]);
    }
}
