//! The faults of requests, by stable names, and oddities of replies that were read to their end.

use std::fmt;

use serde::Serialize;

/// Makes an enum whose variants have a stable name and a line of explanation.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($variant:ident $text:literal $line:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(into = "&'static str")]
        pub enum $name { $(#[doc = $line] $variant),* }

        impl $name {
            /// Every one.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Its stable name.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// Its meaning, in a line.
            pub fn about(self) -> &'static str {
                match self { $($name::$variant => $line),* }
            }
        }

        impl From<$name> for &'static str {
            fn from(of: $name) -> &'static str {
                of.name()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;

named! {
    /// The reason for which a request failed.
    FaultKind {
        Dns "dns" "The host's name has no address.",
        ConnectionRefused "connection_refused" "Nothing listens at the address.",
        Unreachable "unreachable" "The address cannot be reached.",
        ConnectTimeOut "connect_time_out" "No connection within the limit.",
        TlsTimeOut "tls_time_out" "No end of the TLS handshake within the limit.",
        TlsUnknownIssuer "tls_unknown_issuer" "The certificate is self-signed, or of an authority that is not trusted.",
        TlsExpired "tls_expired" "The certificate has expired, or is not valid yet.",
        TlsWrongName "tls_wrong_name" "The certificate is of another host.",
        TlsAuthority "tls_authority" "The server shows the certificate of an authority (CA:TRUE), as some self-signed ones are: it is not accepted, also where it is trusted. One that it signs is, or one that signs itself with CA:FALSE.",
        TlsFailed "tls_failed" "The TLS handshake failed for another reason.",
        NotTls "not_tls" "The port does not speak TLS.",
        NotHttp "not_http" "The reply is not HTTP.",
        HeadersTooLarge "headers_too_large" "The reply's headers are longer than 64 KiB, or more than 100.",
        Closed "closed" "The server closed the connection before it replied.",
        ConnectionReset "connection_reset" "The server reset the connection.",
        FirstTokenTimeOut "first_token_time_out" "No token within the limit.",
        IdleTimeOut "idle_time_out" "No further token within the limit.",
        TotalTimeOut "total_time_out" "No end of the reply within the limit.",
        Redirect "redirect" "The server redirects; redirects are not followed, as the key would go with them.",
        Unauthorised "unauthorised" "401: the API key is missing or wrong.",
        Forbidden "forbidden" "403: the API key may not do this.",
        NotFound "not_found" "404: no such path or model.",
        BadRequest "bad_request" "400 or 422: the server does not take the request.",
        RateLimited "rate_limited" "429, after all retries.",
        Unavailable "unavailable" "503, after all retries.",
        ServerError "server_error" "Another status of 500 or above.",
        UnexpectedStatus "unexpected_status" "Another status that is not 200.",
        Html "html" "A page in place of events.",
        NotStreaming "not_streaming" "One JSON document in place of events: the server does not stream.",
        NotEvents "not_events" "A body that is neither events nor JSON.",
        Compressed "compressed" "A compressed body, which was not requested.",
        BrokenTransfer "broken_transfer" "The transfer encoding is broken.",
        CutStream "cut_stream" "The stream ends in the middle.",
        LineTooLong "line_too_long" "A line or an event of more than 1 MiB.",
        BodyTooLarge "body_too_large" "A body of more than 64 MiB.",
        InvalidUtf8 "invalid_utf8" "An event that is not UTF-8.",
        InvalidJson "invalid_json" "An event that is not a chunk of a completion.",
        ErrorEvent "error_event" "An error inside the stream.",
        EndlessStream "endless_stream" "Far more tokens than requested.",
        NoTokens "no_tokens" "A stream that ends without a token.",
    }
}

named! {
    /// An oddity of a reply that was read to its end.
    Remark {
        NoDone "no_done" "The stream ends without `[DONE]`.",
        OpenAfterDone "open_after_done" "The body does not end within a second of `[DONE]`.",
        BrokenEnd "broken_end" "The transfer breaks off after `[DONE]`.",
        AfterDone "after_done" "Events follow `[DONE]`.",
        NoFinishReason "no_finish_reason" "No chunk has a finish_reason.",
        NoUsage "no_usage" "The server does not count tokens: a chunk counts as one.",
        WrongUsage "wrong_usage" "The server counts fewer tokens than there are chunks with text.",
        FewerTokens "fewer_tokens" "Fewer tokens than requested, without a stop.",
        MoreTokens "more_tokens" "More tokens than requested.",
        EmptyTokens "empty_tokens" "Chunks without text count as tokens.",
        SeveralTokens "several_tokens" "Several tokens arrive at once.",
        Buffered "buffered" "All tokens arrive at once: the server or a proxy buffers. There are no gaps.",
        SeveralChoices "several_choices" "Several choices, where one was requested. Only the first counts.",
        ContentType "content_type" "The content type is not text/event-stream.",
        Http10 "http_1_0" "The server replies by HTTP/1.0: no connection is used twice.",
        Retried "retried" "Sent again after 429 or 503.",
        Reconnected "reconnected" "The server had closed the idle connection, and a new one was made.",
        PlainOptions "plain_options" "The server refuses stream_options: token counts are those of chunks.",
    }
}

impl FaultKind {
    /// Whether the next request would fail in the same way, so that none is sent.
    pub fn is_lasting(self) -> bool {
        use FaultKind::{Forbidden, Html, NotFound, Redirect, Unauthorised};
        self.is_of_connection() || matches!(self, Redirect | Unauthorised | Forbidden | NotFound | Html)
    }

    /// Whether no HTTP was spoken with the server.
    pub fn is_of_connection(self) -> bool {
        // The list of kinds begins with these.
        self <= FaultKind::NotHttp
    }
}

/// Why a request failed, with what the server or the system says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The message of the error, cut to a few hundred characters.
    pub detail: String,
}

/// Most characters of a detail.
const MAX_DETAIL_CHARS: usize = 300;

impl Fault {
    /// A fault. A long detail is cut.
    pub fn new(kind: FaultKind, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        let cut: String = detail.chars().take(MAX_DETAIL_CHARS).collect();
        Fault { kind, detail: if cut.len() < detail.len() { cut + "…" } else { cut } }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, if self.detail.is_empty() { self.kind.about() } else { &self.detail })
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_snake_case() {
        let names: Vec<&str> =
            FaultKind::ALL.iter().map(|of| of.name()).chain(Remark::ALL.iter().map(|of| of.name())).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(
            names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        );
        assert_eq!(serde_json::to_string(&FaultKind::CutStream).unwrap(), "\"cut_stream\"");
    }

    #[test]
    fn details_are_cut() {
        assert_eq!(Fault::new(FaultKind::Html, "é".repeat(400)).detail.chars().count(), 301);
        assert_eq!(Fault::new(FaultKind::Dns, "").to_string(), "dns: The host's name has no address.");
    }
}
