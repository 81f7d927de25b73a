//! Runs a probe: what the server says of itself, the cold request, the warm ones, the ladder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use tokio::task::JoinSet;

use crate::connection::Connector;
use crate::environment::{Server, Snapshot};
use crate::fault::{Fault, FaultKind};
use crate::lane::{Client, Lane, Prompt};
use crate::prompts::{Prompts, words_for};
use crate::record::RequestRecord;
use crate::report::{Report, Rung};
use crate::secrets::Secrets;
use crate::settings::{Ladder, Settings};
use crate::tls;

/// So many requests that fail alike, one after the other, end a run that no request of has succeeded.
const FAILURES_IN_A_ROW: usize = 3;
/// Requests that find out how many words make a length.
const MAX_SIZINGS: u32 = 3;

/// Called after each request that counts.
pub type OnRequest = Arc<dyn Fn() + Send + Sync>;

/// Runs a probe and waits for its end. A server that misbehaves is part of the report.
///
/// # Errors
/// Settings that cannot be used: a header, a file of certificates; a server with several models of which none is named; a runtime
/// that cannot be started.
pub fn probe(settings: &Settings, on_request: OnRequest) -> Result<Report, String> {
    let client = Arc::new(client(settings)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| format!("the runtime of the client cannot be started: {error}"))?;
    let run = Run { settings, client, on_request, number: AtomicU64::new(0) };
    let report = runtime.block_on(run.all());
    // A name look-up may still hang in a thread of its own.
    runtime.shutdown_background();
    let secrets = Secrets::of(settings);
    let mut report = report.map_err(|error| secrets.masked(&error))?;
    secrets.mask_report(&mut report);
    Ok(report)
}

fn client(settings: &Settings) -> Result<Client, String> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("ridgepoint-probe/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in &settings.headers {
        let (name, value) = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
        let name = name.map_err(|_| "a header's name must be of letters, digits and dashes".to_owned())?;
        headers.insert(name, value.map_err(|_| "a header's value must be of visible characters".to_owned())?);
    }
    if let Some(key) = &settings.api_key {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
            .map_err(|_| "the API key must be of visible ASCII characters".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let limits = settings.limits;
    Ok(Client {
        connector: Connector {
            target: settings.target.clone(),
            tls: tls::config(&settings.trust)?,
            limit: limits.connect,
        },
        headers,
        limits,
        max_retry_wait: settings.max_retry_wait,
        api: settings.api,
        ignore_eos: settings.ignore_eos,
        begin: Instant::now(),
        is_plain: AtomicBool::new(false),
        in_flight: AtomicU32::new(0),
    })
}

struct Run<'a> {
    settings: &'a Settings,
    client: Arc<Client>,
    on_request: OnRequest,
    /// Prompts made so far.
    number: AtomicU64,
}

impl Run<'_> {
    async fn all(&self) -> Result<Report, String> {
        // One connection at a time: a server of one thread answers no other.
        let mut lane = Lane::new(Arc::clone(&self.client));
        let is_local = self.settings.is_local;
        let (server, fault) = Server::ask(&mut lane, is_local).await;
        let mut report = Report::new(self.settings, server);
        let is_reached = !fault.as_ref().is_some_and(|fault| fault.kind.is_of_connection());
        let model = match (&self.settings.model, report.server.models.as_slice(), fault) {
            (Some(model), ..) => model.clone(),
            (None, [only], _) => only.id.clone(),
            (None, [], fault) => {
                let fault = fault.unwrap_or_else(|| Fault::new(FaultKind::NotFound, "it lists no model"));
                // Where nothing answers, a name of the model is no way out.
                let way_out = if is_reached { "; --model names the model" } else { "" };
                report.stop(format!("no request was sent, as GET /v1/models ended with {fault}{way_out}"));
                let fault = Fault::new(fault.kind, format!("GET /v1/models: {}", fault.detail));
                let mut cold = RequestRecord::new("cold_1", self.client.begin.elapsed(), 1);
                cold.fail(fault);
                report.cold = Some(cold);
                return Ok(report);
            }
            (None, several, _) => {
                let names: Vec<&str> = several.iter().take(8).map(|of| of.id.as_str()).collect();
                return Err(format!("the server has several models ({}): --model names one", names.join(", ")));
            }
        };
        report.model.clone_from(&model);
        let model: Arc<str> = model.into();

        let unreached = || Snapshot::not_taken("the server was not reached");
        report.before = if is_reached { Snapshot::now(&mut lane, is_local).await } else { unreached() };
        lane.disconnect();
        report.cold = Some(self.one(&mut lane, "cold_1".to_owned(), &model).await);
        report.after_cold = if is_reached { Snapshot::now(&mut lane, is_local).await } else { unreached() };
        for index in 0..=self.settings.num_warm {
            if let Some(reason) = hopeless(&report) {
                report.stop(reason);
                return Ok(report);
            }
            let name = if index == 0 { "warm_1".to_owned() } else { format!("warm run {index}") };
            let record = self.one(&mut lane, name, &model).await;
            if index == 0 { report.warm_1 = Some(record) } else { report.warm.push(record) }
        }
        report.after_warm = Snapshot::now(&mut lane, is_local).await;
        lane.disconnect();
        if let Some(ladder) = &self.settings.ladder {
            self.ladder(ladder, &model, &mut report).await;
            report.after_ladder = Some(Snapshot::now(&mut lane, is_local).await);
        }
        Ok(report)
    }

    fn prompts(&self) -> Prompts {
        let Settings { prompt, is_same_prompt, seed, .. } = self.settings;
        Prompts { text: prompt.clone(), is_same: *is_same_prompt, seed: *seed }
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends the fixed prompt.
    async fn one(&self, lane: &mut Lane, name: String, model: &Arc<str>) -> RequestRecord {
        let text = self.prompts().fixed(self.next());
        let prompt = Prompt { name, model: Arc::clone(model), text, max_tokens: self.settings.max_tokens };
        let record = lane.complete(&prompt).await;
        (self.on_request)();
        record
    }

    async fn ladder(&self, ladder: &Ladder, model: &Arc<str>, report: &mut Report) {
        let max_model_len = report.server.max_model_len(model);
        for input_len in &ladder.input_lens {
            let longest = input_len + u64::from(self.settings.max_tokens);
            if let Some(limit) = max_model_len.filter(|limit| longest > *limit) {
                report.notes.push(format!("prompts of {input_len} tokens are left out: with the output they are longer than max_model_len {limit}"));
                continue;
            }
            let (num_words, sizings) = self.size(*input_len, model, report).await;
            for concurrency in &ladder.concurrencies {
                let mut rung = self.rung((*input_len, *concurrency), num_words, ladder.requests, model).await;
                rung.sizing_requests = sizings;
                let lasting = rung.lasting_fault();
                report.ladder.push(rung);
                if let Some(fault) = lasting {
                    report.stop(format!("the ladder ends: {fault}"));
                    return;
                }
            }
        }
    }

    /// Finds the number of words of a prompt of so many tokens, by requests of one token that are not counted.
    async fn size(&self, input_len: u64, model: &Arc<str>, report: &mut Report) -> (u64, u32) {
        let mut lane = Lane::new(Arc::clone(&self.client));
        let mut num_words = report.words_of_length(input_len);
        for sizing in 1..=MAX_SIZINGS {
            let text = self.prompts().of_words(self.next(), num_words);
            let prompt = Prompt { name: "sizing".to_owned(), model: Arc::clone(model), text, max_tokens: 1 };
            let Some(tokens) = lane.complete(&prompt).await.prompt_tokens else {
                report.notes.push(format!(
                    "the server does not count prompt tokens: prompts of {input_len} tokens have that many words"
                ));
                return (input_len, sizing);
            };
            report.last_sizing = Some((num_words, tokens));
            let off = tokens.abs_diff(input_len);
            if off.saturating_mul(100) <= input_len {
                return (num_words, sizing);
            }
            num_words = words_for(input_len, num_words, tokens);
        }
        (num_words, MAX_SIZINGS)
    }

    async fn rung(
        &self,
        (input_len, concurrency): (u64, u32),
        num_words: u64,
        requests: u64,
        model: &Arc<str>,
    ) -> Rung {
        let begin = Instant::now();
        let (taken, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut lanes = JoinSet::new();
        let lane_count = u64::from(concurrency).min(requests);
        let first = self.number.fetch_add(requests, Ordering::Relaxed);
        for _ in 0..lane_count {
            let mut lane = Lane::new(Arc::clone(&self.client));
            let (taken, stopped, prompts) = (Arc::clone(&taken), Arc::clone(&stopped), self.prompts());
            let (model, on_request) = (Arc::clone(model), Arc::clone(&self.on_request));
            let max_tokens = self.settings.max_tokens;
            lanes.spawn(async move {
                let mut records = Vec::new();
                loop {
                    let index = taken.fetch_add(1, Ordering::Relaxed);
                    if index >= requests || stopped.load(Ordering::Relaxed) {
                        return records;
                    }
                    let text = prompts.of_words(first + index, num_words);
                    let name = format!("{input_len} × {concurrency} #{}", index + 1);
                    let record = lane.complete(&Prompt { name, model: Arc::clone(&model), text, max_tokens }).await;
                    on_request();
                    if record.fault().is_some_and(|fault| fault.kind.is_lasting()) {
                        stopped.store(true, Ordering::Relaxed);
                    }
                    records.push(record);
                }
            });
        }
        let mut records: Vec<RequestRecord> = lanes.join_all().await.into_iter().flatten().collect();
        records.sort_by_key(|record| record.started);
        Rung::new((input_len, concurrency), requests, begin.elapsed(), records)
    }
}

/// Returns why no further request is sent; `None` if the run goes on.
fn hopeless(report: &Report) -> Option<String> {
    let sent: Vec<&RequestRecord> = report.one_by_one().collect();
    let last = sent.last()?.fault()?;
    if last.kind.is_lasting() {
        return Some(format!("no further request was sent: {last}"));
    }
    let alike = sent.iter().rev().take_while(|record| record.fault().is_some_and(|of| of.kind == last.kind)).count();
    let is_hopeless = alike >= FAILURES_IN_A_ROW && alike == sent.len();
    is_hopeless.then(|| format!("no further request was sent: {alike} in a row ended with {last}"))
}
