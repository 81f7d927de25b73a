//! A streamed reply, read as its bytes arrive: tokens with their times, counts, the end. It reads no clock and no socket.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::fault::{Fault, FaultKind, Remark};
use crate::openai::{Choice, Chunk, Usage};
use crate::sse::{Event, EventParser};

/// Chunks that arrive within this time came out of one read of the socket, and count as one chunk of several tokens. No engine makes
/// tokens so fast.
const SAME_READ: Duration = Duration::from_micros(100);

/// So many tokens with less than that between them did not come as they were made.
const BURST_TOKENS: u64 = 4;

/// A stream of more tokens than this many times the limit, and [`SPARE_TOKENS`], is endless.
const ENDLESS_FACTOR: u64 = 4;
const SPARE_TOKENS: u64 = 256;

/// Most characters of the output that are kept.
const PREVIEW_CHARS: usize = 80;

/// Tokens that arrived at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenChunk {
    /// Time since the request was sent.
    pub at: Duration,
    /// Their number, at least 1.
    pub tokens: u64,
}

/// A reply that was read to its end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// When tokens arrived.
    pub chunks: Vec<TokenChunk>,
    /// Prompt tokens, by the server.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens out of the prefix cache, by the server.
    pub cached_tokens: Option<u64>,
    /// Output tokens: by the server, else the chunks with text.
    pub completion_tokens: u64,
    /// Why the output ended.
    pub finish_reason: Option<String>,
    /// The output's first characters.
    pub preview: String,
    /// Oddities of the reply.
    pub remarks: BTreeSet<Remark>,
}

/// The result of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Tokens were among them.
    pub(crate) has_tokens: bool,
    /// The stream said that it is done.
    pub(crate) is_done: bool,
}

/// Reads a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamReader {
    parser: EventParser,
    max_tokens: u64,
    reply: Reply,
    /// The server's count so far, where chunks have one.
    counted: Option<u64>,
    /// The last count of all, which comes with or after the last token.
    usage: Option<Usage>,
    text_chunks: u64,
    empty_chunks: u64,
    has_events: bool,
    /// When the last token arrived.
    latest: Duration,
    is_done: bool,
}

impl StreamReader {
    /// A reader of a reply of at most so many tokens.
    pub(crate) fn new(max_tokens: u32) -> Self {
        StreamReader { max_tokens: u64::from(max_tokens), ..StreamReader::default() }
    }

    /// Takes bytes that arrived at a time since the request was sent.
    ///
    /// # Errors
    /// Bytes that are no stream of a completion; an error in it; far too many tokens.
    pub(crate) fn push(&mut self, at: Duration, bytes: &[u8]) -> Result<Progress, Fault> {
        let events = self.parser.push(bytes).map_err(|error| Fault::new(FaultKind::LineTooLong, error))?;
        let before = self.reply.completion_tokens;
        for event in events {
            self.event(at, &event)?;
        }
        let tokens = self.reply.completion_tokens;
        self.check_end(tokens)?;
        Ok(Progress { has_tokens: tokens > before, is_done: self.is_done })
    }

    /// Refuses far more tokens than were requested.
    fn check_end(&self, tokens: u64) -> Result<(), Fault> {
        let max_tokens = self.max_tokens;
        if tokens <= ENDLESS_FACTOR * max_tokens + SPARE_TOKENS {
            return Ok(());
        }
        Err(Fault::new(FaultKind::EndlessStream, format!("{tokens} tokens, where {max_tokens} were requested")))
    }

    /// Whether any event has come.
    pub(crate) fn has_events(&self) -> bool {
        self.has_events
    }

    /// The bytes of the line at hand.
    pub(crate) fn rest(&self) -> &[u8] {
        self.parser.rest()
    }

    /// Ends the stream and judges it.
    ///
    /// # Errors
    /// A stream that is cut, or has no tokens.
    pub(crate) fn finish(mut self, at: Duration) -> Result<Reply, Fault> {
        // Half a line of JSON at the end is a cut stream, and no fault of its own.
        let last = self.parser.finish().filter(|event| is_whole(&event.data));
        if let Some(event) = last {
            self.event(at, &event)?;
        }
        self.check_end(self.usage.and_then(|usage| usage.completion_tokens).unwrap_or(0))?;
        let StreamReader { usage, text_chunks, empty_chunks, is_done, max_tokens, .. } = self;
        let reply = &mut self.reply;
        if !is_done && reply.finish_reason.is_none() {
            let tokens = reply.completion_tokens;
            return Err(Fault::new(
                FaultKind::CutStream,
                format!("it ends after {tokens} tokens without a reason or [DONE]"),
            ));
        }
        let reported = usage.and_then(|usage| usage.completion_tokens);
        if reply.chunks.is_empty() {
            return Err(Fault::new(
                FaultKind::NoTokens,
                format!("finish_reason {}", reply.finish_reason.as_deref().unwrap_or("is absent")),
            ));
        }
        // A count below the chunks with text is wrong. One above it spreads over the chunks.
        if let Some(reported) = reported.filter(|reported| *reported >= text_chunks) {
            spread(&mut reply.chunks, reported);
            reply.completion_tokens = reported;
        }
        let stopped = reply.finish_reason.as_deref().is_none_or(|reason| reason == "length");
        let tokens = reply.completion_tokens;
        let is_burst = tokens >= BURST_TOKENS && span(&reply.chunks) < SAME_READ * saturating_u32(tokens - 1);
        let applies = [
            (Remark::NoDone, !is_done),
            (Remark::NoFinishReason, reply.finish_reason.is_none()),
            (Remark::NoUsage, reported.is_none()),
            (Remark::WrongUsage, reported.is_some_and(|reported| reported < text_chunks)),
            (Remark::EmptyTokens, empty_chunks > 0 && reported.is_some_and(|reported| reported > text_chunks)),
            (Remark::FewerTokens, stopped && tokens < max_tokens),
            (Remark::MoreTokens, tokens > max_tokens),
            (Remark::Buffered, is_burst),
            (Remark::SeveralTokens, !is_burst && reply.chunks.iter().any(|chunk| chunk.tokens > 1)),
        ];
        reply.remarks.extend(applies.iter().filter(|(_, applies)| *applies).map(|(remark, _)| *remark));
        reply.prompt_tokens = usage.and_then(|usage| usage.prompt_tokens);
        reply.cached_tokens = usage.and_then(|usage| usage.cached_tokens());
        Ok(self.reply)
    }

    fn event(&mut self, at: Duration, event: &Event) -> Result<(), Fault> {
        let text = std::str::from_utf8(&event.data).map_err(|error| {
            Fault::new(FaultKind::InvalidUtf8, format!("at byte {} of an event", error.valid_up_to()))
        })?;
        let text = text.trim();
        self.has_events = true;
        if self.is_done {
            self.reply.remarks.insert(Remark::AfterDone);
            return Ok(());
        }
        if text == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let is_error = event.name == b"error";
        let chunk: Chunk = match serde_json::from_str(text) {
            Ok(chunk) => chunk,
            Err(_) if is_error => return Err(Fault::new(FaultKind::ErrorEvent, text)),
            Err(error) => return Err(Fault::new(FaultKind::InvalidJson, format!("{error} in: {text}"))),
        };
        if let Some(message) = chunk.error().or_else(|| is_error.then(|| text.to_owned())) {
            return Err(Fault::new(FaultKind::ErrorEvent, message));
        }
        self.usage = chunk.usage.or(self.usage);
        let choices = chunk.choices.unwrap_or_default();
        let has_others = choices.iter().any(|choice| choice.index != 0) || choices.len() > 1;
        if has_others {
            self.reply.remarks.insert(Remark::SeveralChoices);
        }
        if let Some(choice) = choices.iter().find(|choice| choice.index == 0) {
            self.choice(at, choice, chunk.usage);
        }
        Ok(())
    }

    fn choice(&mut self, at: Duration, choice: &Choice, usage: Option<Usage>) {
        if let Some(reason) = &choice.finish_reason {
            self.reply.finish_reason.get_or_insert_with(|| reason.clone());
        }
        let has_output = choice.has_output();
        // A count that rises reports how many tokens came, with or without text.
        let counted = usage.and_then(|usage| usage.completion_tokens).filter(|_| !choice.is_role());
        let tokens = match (counted, self.counted) {
            (Some(now), before) if now > before.unwrap_or(0) => now - before.unwrap_or(0),
            _ if has_output => 1,
            _ => 0,
        };
        self.counted = counted.max(self.counted);
        self.text_chunks += u64::from(has_output);
        self.empty_chunks += u64::from(!has_output && !choice.is_role() && choice.finish_reason.is_none());
        if tokens == 0 {
            return;
        }
        if self.reply.preview.len() < PREVIEW_CHARS {
            let text = choice.text();
            let left = PREVIEW_CHARS - self.reply.preview.len();
            self.reply.preview.extend(text.chars().take(left));
        }
        self.reply.completion_tokens = self.reply.completion_tokens.saturating_add(tokens);
        let since = at.saturating_sub(std::mem::replace(&mut self.latest, at));
        match self.reply.chunks.last_mut() {
            Some(last) if since < SAME_READ => last.tokens = last.tokens.saturating_add(tokens),
            _ => self.reply.chunks.push(TokenChunk { at, tokens }),
        }
    }
}

/// Whether the data of an event is complete.
fn is_whole(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]" || serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}

/// Time from the first to the last chunk.
fn span(chunks: &[TokenChunk]) -> Duration {
    let [first, .., last] = chunks else { return Duration::ZERO };
    last.at.saturating_sub(first.at)
}

fn saturating_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Brings the sum of the chunks' tokens up to `reported`, as evenly as it goes, later chunks first: the server counts in the end alone.
fn spread(chunks: &mut [TokenChunk], reported: u64) {
    let sum = chunks.iter().fold(0, |sum: u64, chunk| sum.saturating_add(chunk.tokens));
    let (missing, count) = (reported.saturating_sub(sum), chunks.len() as u64);
    for (index, chunk) in (0_u64..).zip(chunks.iter_mut().rev()) {
        chunk.tokens += missing.checked_div(count).unwrap_or(0) + u64::from(missing.checked_rem(count) > Some(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn text(text: &str, more: &str) -> String {
        format!("data: {{\"choices\": [{{\"index\": 0, \"text\": \"{text}\"}}]{more}}}\n\n")
    }

    const END: &str =
        "data: {\"choices\": [{\"index\": 0, \"text\": \"\", \"finish_reason\": \"length\"}]}\n\ndata: [DONE]\n\n";

    /// Reads pieces that arrive 10 ms after each other.
    fn read(max_tokens: u32, pieces: &[&str]) -> Result<Reply, Fault> {
        let mut reader = StreamReader::new(max_tokens);
        for (piece, n) in pieces.iter().zip(1..) {
            reader.push(at(10 * n), piece.as_bytes())?;
        }
        reader.finish(at(1000))
    }

    fn chunks(reply: &Reply) -> Vec<(u64, u64)> {
        reply.chunks.iter().map(|chunk| (u64::try_from(chunk.at.as_millis()).unwrap(), chunk.tokens)).collect()
    }

    fn remarks(reply: &Reply) -> Vec<&'static str> {
        reply.remarks.iter().map(|of| of.name()).collect()
    }

    #[test]
    fn the_first_token_is_text_and_no_role() {
        let role = "data: {\"choices\": [{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n";
        let reply = read(2, &[": wait\n\n", role, &text("a", ""), &text("b", ""), END]).unwrap();
        assert_eq!(chunks(&reply), [(30, 1), (40, 1)]);
        assert_eq!((reply.preview.as_str(), reply.completion_tokens), ("ab", 2));
        assert_eq!(remarks(&reply), ["no_usage"]);
    }

    #[test]
    fn counts_of_chunks_include_tokens_without_text_and_several_at_once() {
        let usage = |n: u32| format!(", \"usage\": {{\"prompt_tokens\": 9, \"completion_tokens\": {n}}}");
        let pieces =
            [text("a", &usage(1)), text("", &usage(2)), text("bcd", &usage(5)), text("e", &usage(6)), END.to_owned()];
        let reply = read(6, &pieces.each_ref().map(String::as_str)).unwrap();
        assert_eq!(chunks(&reply), [(10, 1), (20, 1), (30, 3), (40, 1)]);
        assert_eq!((reply.prompt_tokens, reply.completion_tokens), (Some(9), 6));
        assert_eq!(remarks(&reply), ["empty_tokens", "several_tokens"]);
    }

    #[test]
    fn a_count_at_the_end_spreads_over_the_chunks() {
        let usage = "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\": 8, \
                     \"prompt_tokens_details\": {\"cached_tokens\": 4}}}\n\n";
        let reply = read(
            8,
            &[
                &text("ab", ""),
                &text("cd", ""),
                &text("ef", ""),
                &END.replace("data: [DONE]", &(usage.to_owned() + "data: [DONE]")),
            ],
        )
        .unwrap();
        assert_eq!(chunks(&reply), [(10, 2), (20, 3), (30, 3)]);
        assert_eq!((reply.cached_tokens, reply.completion_tokens), (Some(4), 8));
    }

    #[test]
    fn what_arrives_at_once_is_one_chunk_and_all_at_once_is_buffered() {
        let all = [&text("a", ""), &text("b", ""), &text("c", ""), &text("d", ""), END].map(str::to_owned).concat();
        let reply = read(4, &[&all]).unwrap();
        assert_eq!(chunks(&reply), [(10, 4)]);
        assert_eq!(remarks(&reply), ["no_usage", "buffered"]);
    }

    #[test]
    fn counts_that_no_stream_has_are_endless() {
        let usage = |n: u64| format!(", \"usage\": {{\"completion_tokens\": {n}}}");
        let end =
            |n: u64| END.replace("data: [DONE]", &format!("data: {{\"choices\": []{}}}\n\ndata: [DONE]", usage(n)));
        // Chunks of one read are added up, and this sum exceeds 64 bits.
        let wraps = text("a", &usage(u64::MAX)) + &text("b", "");
        for pieces in [[wraps.as_str(), END], [&text("a", ""), &end(u64::MAX)], [&text("a", ""), &end(261)]] {
            assert_eq!(read(1, &pieces).unwrap_err().kind, FaultKind::EndlessStream, "{pieces:?}");
        }
        assert_eq!(read(1, &[&text("a", ""), &end(260)]).unwrap().completion_tokens, 260);
    }

    #[test]
    fn ends_are_judged() {
        let kind = |pieces: &[&str]| read(1, pieces).map_err(|fault| fault.kind.name());
        let (a, done) = (text("a", ""), "data: [DONE]\n\n");
        assert_eq!(kind(&[&a, done]).map(|reply| remarks(&reply)), Ok(vec!["no_finish_reason", "no_usage"]));
        assert_eq!(kind(&[&a, &END.replace(done, "")]).map(|reply| remarks(&reply)), Ok(vec!["no_done", "no_usage"]));
        assert_eq!(kind(&[&a, END, &a]).map(|reply| remarks(&reply)), Ok(vec!["after_done", "no_usage"]));
        for (pieces, expected) in [
            (&[a.as_str()][..], "cut_stream"),
            (&[&a, "data: {\"choices\": [{\"in"], "cut_stream"),
            (&[], "cut_stream"),
            (&[END], "no_tokens"),
            (&[&a, "data: {\"error\": {\"message\": \"CUDA\"}}\n\n"], "error_event"),
            (&["event: error\ndata: it broke\n\n"], "error_event"),
            (&["data: <html>\n\n"], "invalid_json"),
            (&["data: 7\n\n"], "invalid_json"),
        ] {
            assert_eq!(kind(pieces), Err(expected), "{pieces:?}");
        }
        let mut reader = StreamReader::new(1);
        let fault = reader.push(at(1), b"data: {\"choices\": \"\xff\"}\n\n").unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidUtf8);
    }

    #[test]
    fn more_fewer_and_endless_tokens_are_reported() {
        let a = text("a", "");
        let of = |count: usize| read(10, &[vec![a.as_str(); count], vec![END]].concat());
        assert!(remarks(&of(9).unwrap()).contains(&"fewer_tokens"));
        assert!(remarks(&of(11).unwrap()).contains(&"more_tokens"));
        assert!(remarks(&of(10).unwrap()).iter().all(|remark| *remark == "no_usage"));
        assert_eq!(of(10 * 4 + 257).unwrap_err().kind, FaultKind::EndlessStream);
        let stop = END.replace("length", "stop");
        let reply = read(10, &[&a, &stop]).unwrap();
        assert!(!reply.remarks.contains(&Remark::FewerTokens));
    }

    #[test]
    fn other_choices_are_reported_and_do_not_count() {
        let two = "data: {\"choices\": [{\"index\": 0, \"text\": \"a\"}, {\"index\": 1, \"text\": \"b\"}]}\n\n";
        let reply = read(1, &[two, END]).unwrap();
        assert_eq!((reply.completion_tokens, reply.preview.as_str()), (1, "a"));
        assert!(reply.remarks.contains(&Remark::SeveralChoices));
    }
}
