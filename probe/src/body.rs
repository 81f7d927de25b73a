//! The body of a reply of status 200: events, or what came in their place, identified by its first byte.

use std::time::Duration;

use serde_json::Value;

use crate::fault::{Fault, FaultKind, Remark};
use crate::openai::Chunk;
use crate::stream::{Progress, Reply, StreamReader};

/// Most bytes of a document that is kept.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// Reads a body.
#[derive(Debug)]
pub(crate) struct BodyReader {
    content_type: String,
    stream: StreamReader,
    /// `None` until the first byte that is no blank.
    is_document: Option<bool>,
    document: Vec<u8>,
    is_done: bool,
}

impl BodyReader {
    /// A reader of a body of this content type, for at most so many tokens.
    pub(crate) fn new(content_type: &str, max_tokens: u32) -> Self {
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        BodyReader {
            content_type,
            stream: StreamReader::new(max_tokens),
            is_document: None,
            document: Vec::new(),
            is_done: false,
        }
    }

    /// Whether the stream said that it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes bytes that arrived at a time since the request was sent.
    ///
    /// # Errors
    /// Those of a stream of events; a compressed body; a page.
    pub(crate) fn push(&mut self, at: Duration, bytes: &[u8]) -> Result<Progress, Fault> {
        if self.is_document.is_none() {
            let first = bytes.trim_ascii_start().first();
            self.is_document = first.map(|byte| matches!(byte, b'{' | b'[' | b'"'));
            match first {
                Some(b'<') => return Err(self.html(bytes)),
                Some(0x1f) => return Err(Fault::new(FaultKind::Compressed, "gzip without a content-encoding")),
                _ => {}
            }
        }
        if self.is_document == Some(true) {
            if self.document.len() + bytes.len() > MAX_DOCUMENT_BYTES {
                return Err(Fault::new(FaultKind::BodyTooLarge, "one document of more than 4 MiB"));
            }
            self.document.extend_from_slice(bytes);
            return Ok(Progress::default());
        }
        let progress = self.stream.push(at, bytes)?;
        self.is_done = progress.is_done;
        Ok(progress)
    }

    /// Ends the body and judges it.
    ///
    /// # Errors
    /// A body that is no stream, or a stream that is cut or has no tokens.
    pub(crate) fn finish(self, at: Duration) -> Result<Reply, Fault> {
        if self.is_document == Some(true) {
            return Err(document_fault(&self.document));
        }
        let is_events = self.content_type == "text/event-stream";
        if !is_events && !self.stream.has_events() {
            let rest = String::from_utf8_lossy(self.stream.rest()).into_owned();
            return Err(Fault::new(FaultKind::NotEvents, format!("content-type '{}': {rest}", self.content_type)));
        }
        let mut reply = self.stream.finish(at)?;
        reply.remarks.extend((!is_events).then_some(Remark::ContentType));
        Ok(reply)
    }

    fn html(&self, bytes: &[u8]) -> Fault {
        let text = String::from_utf8_lossy(bytes);
        let title = text.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
        Fault::new(FaultKind::Html, title.unwrap_or(&self.content_type).trim())
    }
}

/// The fault of one JSON document in place of a stream.
fn document_fault(document: &[u8]) -> Fault {
    let chunk: Chunk = match serde_json::from_slice(document) {
        Ok(chunk) => chunk,
        Err(error) if error.is_eof() => return Fault::new(FaultKind::CutStream, "one JSON document that is cut"),
        Err(error) => return Fault::new(FaultKind::NotEvents, format!("JSON that is no completion: {error}")),
    };
    if let Some(message) = chunk.error() {
        return Fault::new(FaultKind::ErrorEvent, message);
    }
    match chunk.choices.as_deref() {
        Some([choice, ..]) => {
            let tokens = chunk.usage.and_then(|usage| usage.completion_tokens);
            let tokens = tokens.map_or_else(String::new, |tokens| format!("{tokens} tokens: "));
            Fault::new(FaultKind::NotStreaming, format!("{tokens}{}", choice.text()))
        }
        _ => Fault::new(FaultKind::NotEvents, message(document)),
    }
}

/// The message in the body of an error, in a line.
pub(crate) fn message(body: &[u8]) -> String {
    let found = serde_json::from_slice::<Value>(body).ok().and_then(|json| {
        let of = |key: &str| json.get(key).filter(|value| !value.is_null());
        let inner = of("error").or_else(|| of("detail")).or_else(|| of("message"))?;
        match inner.get("message").unwrap_or(inner) {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    });
    let text = found.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, pieces: &[&[u8]]) -> Result<Reply, &'static str> {
        let mut reader = BodyReader::new(content_type, 1);
        let whole = pieces.iter().try_for_each(|piece| reader.push(Duration::from_millis(5), piece).map(drop));
        whole.and_then(|()| reader.finish(Duration::from_millis(9))).map_err(|fault| fault.kind.name())
    }

    #[test]
    fn the_first_byte_identifies_a_body() {
        for (content_type, body, expected) in [
            ("text/html; charset=utf-8", &b"\n<!doctype html><title>Login</title>"[..], "html"),
            ("text/event-stream", b"<html>", "html"),
            ("text/event-stream", b"\x1f\x8b\x08", "compressed"),
            ("application/json", br#"{"choices": [{"text": "all", "index": 0}]}"#, "not_streaming"),
            ("application/json", br#"{"choices": [{"message": {"content": "all"}}]}"#, "not_streaming"),
            ("application/json", br#"{"error": "no"}"#, "error_event"),
            ("application/json", br#"{"choices": [{"tex"#, "cut_stream"),
            ("application/json", br#"{"status": "fine"}"#, "not_events"),
            ("application/json", br#"["a"]"#, "not_events"),
            ("text/plain", b"OK\n", "not_events"),
            ("text/event-stream", b"", "cut_stream"),
        ] {
            assert_eq!(read(content_type, &[body]).map(drop), Err(expected), "{content_type} {body:?}");
        }
    }

    #[test]
    fn events_of_another_content_type_are_read_and_reported() {
        let body = b"data: {\"choices\": [{\"text\": \"a\", \"finish_reason\": \"length\"}]}\n\ndata: [DONE]\n\n";
        let reply = read("application/json", &[b"\n", body]).unwrap();
        assert!(reply.remarks.contains(&Remark::ContentType));
        assert!(!read("Text/Event-Stream;charset=utf-8", &[body]).unwrap().remarks.contains(&Remark::ContentType));
    }

    #[test]
    fn messages_of_errors_are_found() {
        assert_eq!(message(br#"{"error": {"message": "no such model", "code": 404}}"#), "no such model");
        assert_eq!(message(br#"{"detail": "Not Found"}"#), "Not Found");
        assert_eq!(message(br#"{"object": "error", "message": "bad"}"#), "bad");
        assert_eq!(message(b"a\r\nb"), "a b");
    }
}
