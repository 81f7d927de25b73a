//! One request and its reply over one connection: what was sent, what came back, and when.

use std::error::Error as _;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, LOCATION, RETRY_AFTER};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, Version};
use tokio::time::timeout_at;

use crate::body::BodyReader;
use crate::connection::Connection;
use crate::fault::{Fault, FaultKind, Remark};
use crate::stream::Reply;
use crate::target::Target;

/// Most bytes of a body.
const MAX_BODY_BYTES: usize = 64 << 20;
/// Most bytes that are read of a reply that is an error, and the limit of reading them.
const MAX_ERROR_BYTES: usize = 16 << 10;
const ERROR_BODY_LIMIT: Duration = Duration::from_secs(5);
/// Limit of the end of the body after `[DONE]`.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Limits of a request, each from when it was sent unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// To connect, TLS included.
    pub connect: Duration,
    /// To the first token.
    pub first_token: Duration,
    /// From a token to the next one.
    pub idle: Duration,
    /// To the end.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(10),
            first_token: Duration::from_secs(120),
            idle: Duration::from_secs(30),
            total: Duration::from_secs(600),
        }
    }
}

/// The reply to a request, with its times.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// To the reply's headers.
    pub(crate) headers: Option<Duration>,
    /// To the end, or to the fault.
    pub(crate) wall: Duration,
    /// The reply, or what was wrong.
    pub(crate) reply: Result<Reply, Fault>,
    /// Whether the connection can be used again.
    pub(crate) is_reusable: bool,
    /// When the server says to try again.
    pub(crate) retry_after: Option<Duration>,
}

/// A request for a completion.
pub(crate) struct CompletionRequest<'a> {
    pub(crate) target: &'a Target,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    pub(crate) max_tokens: u32,
    pub(crate) limits: Limits,
}

impl Exchange {
    /// No reply.
    pub(crate) fn failed(fault: Fault) -> Self {
        Exchange { headers: None, wall: Duration::ZERO, reply: Err(fault), is_reusable: false, retry_after: None }
    }
}

impl CompletionRequest<'_> {
    /// Sends the request and reads its reply, token by token.
    pub(crate) async fn send(self, connection: &mut Connection) -> Exchange {
        let begin = Instant::now();
        let mut exchange = Exchange::failed(Fault::new(FaultKind::Closed, ""));
        exchange.reply = self.reply(connection, begin, &mut exchange).await;
        exchange.wall = begin.elapsed();
        exchange
    }

    async fn reply(
        &self,
        connection: &mut Connection,
        begin: Instant,
        exchange: &mut Exchange,
    ) -> Result<Reply, Fault> {
        let builder =
            request(self.target, &self.path, Method::POST, self.headers).header(CONTENT_TYPE, "application/json");
        let request = builder.header(ACCEPT, "text/event-stream").body(Full::new(Bytes::from(self.body.clone())));
        let request = request.map_err(|error| Fault::new(FaultKind::NotHttp, error))?;
        let deadline = begin + self.limits.first_token.min(self.limits.total);
        let sent = timeout_at(deadline.into(), connection.send_request(request)).await;
        let response = sent.map_err(|_| self.late(begin, false))?.map_err(|error| head_fault(&error))?;
        exchange.headers = Some(begin.elapsed());
        exchange.retry_after = retry_after(response.headers());
        self.read(check_status(response).await?, begin, exchange).await
    }

    /// Reads the body of a reply of status 200.
    async fn read(
        &self,
        response: Response<Incoming>,
        begin: Instant,
        exchange: &mut Exchange,
    ) -> Result<Reply, Fault> {
        let is_http_1_0 = response.version() == Version::HTTP_10;
        let header = |name| response.headers().get(name)?.to_str().ok();
        if let Some(encoding) = header(CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
            return Err(Fault::new(FaultKind::Compressed, format!("content-encoding: {encoding}")));
        }
        let mut reader = BodyReader::new(header(CONTENT_TYPE).unwrap_or_default(), self.max_tokens);
        let mut body = response.into_body();
        let (mut bytes, mut deadline, mut has_tokens) = (0, begin + self.limits.first_token, false);
        let whole = begin + self.limits.total;
        let end = loop {
            let frame = match timeout_at(deadline.min(whole).into(), body.frame()).await {
                Ok(frame) => frame,
                Err(_) if reader.is_done() => break Some(Remark::OpenAfterDone),
                Err(_) => return Err(self.late(begin, has_tokens)),
            };
            let data = match frame {
                None => {
                    exchange.is_reusable = !is_http_1_0;
                    break None;
                }
                Some(Err(_)) if reader.is_done() => break Some(Remark::BrokenEnd),
                Some(Err(error)) => return Err(body_fault(&error)),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            bytes += data.len();
            if bytes > MAX_BODY_BYTES {
                return Err(Fault::new(FaultKind::BodyTooLarge, ""));
            }
            let progress = reader.push(begin.elapsed(), &data)?;
            if progress.is_done {
                deadline = Instant::now() + END_LIMIT;
            } else if progress.has_tokens {
                has_tokens = true;
                deadline = Instant::now() + self.limits.idle;
            }
        };
        let mut reply = reader.finish(begin.elapsed())?;
        reply.remarks.extend(end);
        reply.remarks.extend(is_http_1_0.then_some(Remark::Http10));
        Ok(reply)
    }

    /// The limit that has passed.
    fn late(&self, begin: Instant, has_tokens: bool) -> Fault {
        let Limits { first_token, idle, total, .. } = self.limits;
        let (kind, limit) = if begin.elapsed() >= total {
            (FaultKind::TotalTimeOut, total)
        } else if has_tokens {
            (FaultKind::IdleTimeOut, idle)
        } else {
            (FaultKind::FirstTokenTimeOut, first_token)
        };
        Fault::new(kind, format!("more than {} s", limit.as_secs_f64()))
    }
}

/// A request to the server, without a body so far.
fn request(target: &Target, path: &str, method: Method, headers: &HeaderMap) -> Builder {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(all) = builder.headers_mut() {
        all.extend(headers.clone());
    }
    builder.header(HOST, &target.authority).header(ACCEPT_ENCODING, "identity")
}

/// Gets a document of at most [`MAX_BODY_BYTES`].
///
/// # Errors
/// What is wrong with the reply, or the limit.
pub(crate) async fn get(
    connection: &mut Connection,
    (target, path, headers): (&Target, &str, &HeaderMap),
    limit: Duration,
) -> Result<Bytes, Fault> {
    let request = request(target, path, Method::GET, headers).body(Full::default());
    let request = request.map_err(|error| Fault::new(FaultKind::NotHttp, error))?;
    let deadline = Instant::now() + limit;
    let late = || Fault::new(FaultKind::TotalTimeOut, format!("{path}: more than {} s", limit.as_secs_f64()));
    let sent = timeout_at(deadline.into(), connection.send_request(request)).await;
    let response = sent.map_err(|_| late())?.map_err(|error| head_fault(&error))?;
    let body = check_status(response).await?.into_body();
    let read = timeout_at(deadline.into(), collect(body, MAX_BODY_BYTES)).await;
    let (bytes, is_whole) = read.map_err(|_| late())??;
    if is_whole { Ok(bytes.into()) } else { Err(Fault::new(FaultKind::BodyTooLarge, path)) }
}

/// Reads a body up to a limit; whether that was all of it.
async fn collect(mut body: Incoming, limit: usize) -> Result<(Vec<u8>, bool), Fault> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|error| body_fault(&error))?.into_data().unwrap_or_default();
        bytes.extend_from_slice(&data);
        if bytes.len() > limit {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

/// Lets status 200 pass; of others it reads what the server says.
async fn check_status(response: Response<Incoming>) -> Result<Response<Incoming>, Fault> {
    let status = response.status();
    let kind = match status.as_u16() {
        200 => return Ok(response),
        300..=399 => FaultKind::Redirect,
        400 | 422 => FaultKind::BadRequest,
        401 => FaultKind::Unauthorised,
        403 => FaultKind::Forbidden,
        404 => FaultKind::NotFound,
        429 => FaultKind::RateLimited,
        503 => FaultKind::Unavailable,
        500..=599 => FaultKind::ServerError,
        _ => FaultKind::UnexpectedStatus,
    };
    let location = response.headers().get(LOCATION).map(|place| String::from_utf8_lossy(place.as_bytes()).into_owned());
    let deadline = Instant::now() + ERROR_BODY_LIMIT;
    let read = timeout_at(deadline.into(), collect(response.into_body(), MAX_ERROR_BYTES)).await;
    let body = read.ok().and_then(Result::ok).map(|(body, _)| body).unwrap_or_default();
    let said = location.map_or_else(|| crate::body::message(&body), |place| format!("to {place}"));
    Err(Fault::new(kind, format!("{status}: {said}").trim_end_matches([':', ' '])))
}

/// `Retry-After` in seconds. A date is passed over: the clocks of two machines differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// Whether the error is that the other side reset the connection.
fn is_reset(error: &hyper::Error) -> bool {
    let mut cause = error.source();
    while let Some(of) = cause {
        let is_reset = |of: &io::Error| matches!(of.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        if of.downcast_ref::<io::Error>().is_some_and(is_reset) {
            return true;
        }
        cause = of.source();
    }
    false
}

fn with_cause(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// The fault of a reply without headers.
fn head_fault(error: &hyper::Error) -> Fault {
    // hyper has `is_parse_too_large` for servers alone.
    let kind = if error.is_parse() && error.to_string().contains("too large") {
        FaultKind::HeadersTooLarge
    } else if error.is_parse() {
        FaultKind::NotHttp
    } else if is_reset(error) {
        FaultKind::ConnectionReset
    } else {
        FaultKind::Closed
    };
    Fault::new(kind, with_cause(error))
}

/// The fault of a body that broke off.
fn body_fault(error: &hyper::Error) -> Fault {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    let kind = if is_reset(error) {
        FaultKind::ConnectionReset
    } else if error.is_incomplete_message() || matches!(cause, None | Some(io::ErrorKind::UnexpectedEof)) {
        FaultKind::CutStream
    } else {
        FaultKind::BrokenTransfer
    };
    Fault::new(kind, with_cause(error))
}
