//! The settings of a probe: its requests and their limits.

use std::time::Duration;

use crate::exchange::Limits;
use crate::openai::Api;
use crate::target::Target;
use crate::tls::Trust;

/// A probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The server.
    pub target: Target,
    /// The endpoint.
    pub api: Api,
    /// The model; `None` is the only one that is served.
    pub model: Option<String>,
    /// The fixed prompt.
    pub prompt: String,
    /// Send the same prompt again and again, so that a prefix cache has it.
    pub is_same_prompt: bool,
    /// Seed of the words that begin a prompt.
    pub seed: u64,
    /// Most tokens of an output.
    pub max_tokens: u32,
    /// Ask that the end token does not end an output, as vLLM and SGLang can.
    pub ignore_eos: bool,
    /// Warm requests after `warm_1`, one by one.
    pub num_warm: u32,
    /// A ladder of prompt lengths and concurrencies after that.
    pub ladder: Option<Ladder>,
    /// Limits of a request.
    pub limits: Limits,
    /// Longest wait after 429 or 503.
    pub max_retry_wait: Duration,
    /// The certificates that are trusted.
    pub trust: Trust,
    /// Sent as `Authorization: Bearer`. It is in no report.
    pub api_key: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The server is on this machine, so that its page cache, disks and GPUs are the server's.
    pub is_local: bool,
}

/// Prompt lengths × concurrencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    /// Prompt lengths, tokens.
    pub input_lens: Vec<u64>,
    /// Requests in flight.
    pub concurrencies: Vec<u32>,
    /// Requests of each pair.
    pub requests: u64,
}

impl Settings {
    /// The paper's probe of a server: a short prompt, 64 tokens, five warm requests.
    pub fn new(target: Target) -> Self {
        let is_local = target.is_loopback();
        Settings {
            target,
            api: Api::Completions,
            model: None,
            prompt: "Say hello from a small language model.".to_owned(),
            is_same_prompt: false,
            seed: 0,
            max_tokens: 64,
            ignore_eos: false,
            num_warm: 5,
            ladder: None,
            limits: Limits::default(),
            max_retry_wait: Duration::from_secs(30),
            trust: Trust::System,
            api_key: None,
            headers: Vec::new(),
            is_local,
        }
    }

    /// Requests that are counted: cold, warm and those of the ladder.
    pub fn num_requests(&self) -> u64 {
        let rungs =
            self.ladder.as_ref().map_or(0, |of| of.requests * (of.input_lens.len() * of.concurrencies.len()) as u64);
        2 + u64::from(self.num_warm) + rungs
    }
}
