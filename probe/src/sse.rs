//! Server-sent events out of bytes, whatever pieces they arrive in. Lines end with LF, CR or CR LF, as the HTML standard says.

use std::fmt;

/// Most bytes of a line, and of the data of an event. Servers send chunks of a few hundred bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// An event with data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Its name, empty for most.
    pub name: Vec<u8>,
    /// Its data; several lines are joined by LF.
    pub data: Vec<u8>,
}

/// A line or an event is longer than [`MAX_LINE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a line or an event of more than {MAX_LINE_BYTES} bytes")
    }
}

/// Reads events.
///
/// ```
/// use ridgepoint_probe::sse::EventParser;
///
/// let mut parser = EventParser::default();
/// assert!(parser.push(b": keep-alive\n\ndata: {\"a\"").unwrap().is_empty());
/// let events = parser.push(b": 1}\r\n\r\n").unwrap();
/// assert_eq!(events[0].data, b"{\"a\": 1}");
/// assert_eq!(parser.comments, 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct EventParser {
    /// Comment lines so far, as keep-alives are.
    pub comments: u64,
    line: Vec<u8>,
    /// The event at hand, if it has data.
    event: Option<Event>,
    name: Vec<u8>,
    /// The last byte was a CR, so that an LF belongs to the same line end.
    is_after_cr: bool,
    is_after_first_line: bool,
}

impl EventParser {
    /// Takes the next bytes and returns the events that they end.
    ///
    /// # Errors
    /// A line or an event that is too long. The parser is of no further use then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            let is_second_half = std::mem::take(&mut self.is_after_cr) && *byte == b'\n';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => {
                    self.is_after_cr = *byte == b'\r';
                    events.extend(self.end_line()?);
                }
                _ if self.line.len() >= MAX_LINE_BYTES => return Err(TooLong),
                _ => self.line.push(*byte),
            }
        }
        Ok(events)
    }

    /// Returns the event whose blank line is missing at the end of the stream. The standard drops it; servers that leave out the last
    /// line break meant it.
    pub fn finish(&mut self) -> Option<Event> {
        if !self.line.is_empty() {
            self.end_line().ok()?;
        }
        self.event.take()
    }

    /// The bytes of the line at hand.
    pub fn rest(&self) -> &[u8] {
        &self.line
    }

    fn end_line(&mut self) -> Result<Option<Event>, TooLong> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.is_after_first_line, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return Ok(self.event.take().map(|event| Event { name, ..event }));
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => line.split_at(at),
            None => (line.as_slice(), &[][..]),
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" => self.comments += 1,
            b"data" => match &mut self.event {
                Some(event) if event.data.len() + value.len() >= MAX_LINE_BYTES => return Err(TooLong),
                Some(event) => {
                    event.data.push(b'\n');
                    event.data.extend_from_slice(value);
                }
                None => self.event = Some(Event { name: Vec::new(), data: value.to_vec() }),
            },
            b"event" => self.name = value.to_vec(),
            // `id` and `retry` are for clients that connect again; unknown fields are ignored by the standard.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> (Vec<Event>, u64) {
        let mut parser = EventParser::default();
        let mut events = parser.push(bytes).unwrap();
        events.extend(parser.finish());
        (events, parser.comments)
    }

    fn data(text: &str) -> Vec<String> {
        whole(text.as_bytes()).0.into_iter().map(|event| String::from_utf8(event.data).unwrap()).collect()
    }

    #[test]
    fn events_of_the_standard() {
        for (text, expected) in [
            ("data: a\n\ndata:b\n\n", &["a", "b"][..]),
            ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]),
            ("data: YHOO\ndata: +2\ndata: 10\n\n", &["YHOO\n+2\n10"]),
            ("data\n\ndata\ndata\n\n", &["", "\n"]),
            ("data:  two blanks\n\n", &[" two blanks"]),
            ("\u{feff}data: x\n\n", &["x"]),
            ("retry: 5\nid: 1\nfoo: bar\n\n\n\n", &[]),
            ("data: no blank line at the end", &["no blank line at the end"]),
            ("datax: a\n\n:data: b\n\n", &[]),
        ] {
            assert_eq!(data(text), expected, "{text:?}");
        }
        let (events, comments) = whole(b": one\n:two\nevent: error\ndata: {}\n\ndata: 1\n\n");
        assert_eq!((comments, events[0].name.as_slice(), events[1].name.as_slice()), (2, &b"error"[..], &b""[..]));
    }

    #[test]
    fn long_lines_end_the_stream_and_not_the_memory() {
        let line = vec![b'x'; MAX_LINE_BYTES];
        let mut parser = EventParser::default();
        assert_eq!(parser.push(&line), Ok(Vec::new()));
        assert_eq!(parser.push(b"x"), Err(TooLong));
        let mut parser = EventParser::default();
        let mut many = b"data: ".to_vec();
        many.extend(std::iter::repeat_n(b'y', MAX_LINE_BYTES / 2));
        many.push(b'\n');
        assert_eq!(parser.push(&many), Ok(Vec::new()));
        assert_eq!((parser.push(&many), parser.push(&many)), (Err(TooLong), Err(TooLong)));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(
            text in "(data: ?|event:|:|\\{\"a\": 1\\}|x|é|\r|\n|\r\n|\n\n|\u{feff}){0,40}",
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let (events, comments) = whole(text.as_bytes());
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let (mut parser, mut found, mut from) = (EventParser::default(), Vec::new(), 0);
            for cut in cuts {
                found.extend(parser.push(&text.as_bytes()[from..cut]).unwrap());
                from = cut;
            }
            found.extend(parser.finish());
            prop_assert_eq!((found, parser.comments), (events, comments));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut parser = EventParser::default();
            let _ = parser.push(&bytes);
            let _ = parser.finish();
        }
    }
}
