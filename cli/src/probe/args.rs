//! The arguments of `probe`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::NonEmptyStringValueParser as NotEmpty;
use clap::{Args, value_parser};
use ridgepoint::input::{FileKind, read_text};
use ridgepoint_probe::{Api, Ladder, Limits, Settings, Target, Trust};

use crate::common::above_zero;
use crate::outcome::Failure;
use crate::output::Force;

const LOAD: &str = "Load";
const LADDER: &str = "Ladder";
const CONNECTION: &str = "Connection";
const LIMITS: &str = "Limits";
const OUTPUT: &str = "Output";

/// Most requests of a rung: tens of minutes of most servers.
const MAX_REQUESTS: u64 = 1_000_000;
/// Longest time limit, s: 30 days.
const MAX_SECONDS: f64 = 2_592_000.0;

#[derive(Debug, Args)]
pub struct Probe {
    /// The server, as in http://127.0.0.1:8000; /v1 may follow
    #[arg(value_name = "URL", value_parser = Target::parse)]
    target: Target,
    /// Model to ask for, as the server calls it [default: the only one that /v1/models lists]
    #[arg(long, value_name = "NAME", value_parser = NotEmpty::new(), help_heading = LOAD)]
    model: Option<String>,
    /// Ask /v1/chat/completions in place of /v1/completions
    #[arg(long, help_heading = LOAD)]
    chat: bool,
    /// The prompt [default: a short sentence]
    #[arg(long, value_name = "TEXT", value_parser = NotEmpty::new(), help_heading = LOAD)]
    prompt: Option<String>,
    /// The prompt, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "prompt", help_heading = LOAD)]
    prompt_file: Option<PathBuf>,
    /// Most tokens of an output
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1 << 20), help_heading = LOAD)]
    max_tokens: u32,
    /// Ask that the end token does not end an output; vLLM and SGLang know this
    #[arg(long, help_heading = LOAD)]
    ignore_eos: bool,
    /// Warm requests after cold_1 and warm_1, one by one
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=100_000), help_heading = LOAD)]
    warm: u32,
    /// Send the same prompt each time, so that a prefix cache has it [default: each begins with words of its own]
    #[arg(long, help_heading = LOAD)]
    same_prompt: bool,
    /// Seed of the words that begin a prompt [default: by the clock]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    seed: Option<u64>,

    /// Prompt lengths of a ladder after the warm requests, tokens [default with another flag of the ladder: 128,512,2048]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=1 << 24), help_heading = LADDER)]
    ladder_input_len: Vec<u64>,
    /// Requests in flight, for each prompt length [default with another flag of the ladder: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=4096), help_heading = LADDER)]
    ladder_concurrency: Vec<u32>,
    /// Requests of each prompt length and concurrency [default: 8]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=MAX_REQUESTS), help_heading = LADDER)]
    requests_per_rung: Option<u64>,

    /// File with the API key [default: the environment's OPENAI_API_KEY]
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    api_key_file: Option<PathBuf>,
    /// Further header of every request
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, help_heading = CONNECTION)]
    header: Vec<(String, String)>,
    /// Certificate authorities to trust besides the system's, as PEM
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    ca_file: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long, conflicts_with = "ca_file", help_heading = CONNECTION)]
    insecure: bool,
    /// The server is on this machine: look at its GPUs, disks and page cache [default: if the address is a loopback]
    #[arg(long, help_heading = CONNECTION)]
    local: bool,
    /// The server is on another machine, though the address is a loopback: a tunnel
    #[arg(long, conflicts_with = "local", help_heading = CONNECTION)]
    remote: bool,

    /// Limit of a connection, TLS included, s
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds, allow_negative_numbers = true, help_heading = LIMITS)]
    connect_timeout_s: f64,
    /// Limit of the first token, s
    #[arg(long, value_name = "S", default_value_t = 120.0, value_parser = seconds, allow_negative_numbers = true, help_heading = LIMITS)]
    first_token_timeout_s: f64,
    /// Limit from one token to the next, s
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds, allow_negative_numbers = true, help_heading = LIMITS)]
    idle_timeout_s: f64,
    /// Limit of a whole request, s
    #[arg(long, value_name = "S", default_value_t = 600.0, value_parser = seconds, allow_negative_numbers = true, help_heading = LIMITS)]
    timeout_s: f64,
    /// Longest wait before a request is sent again after 429 or 503, whatever the server says, s
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds, allow_negative_numbers = true, help_heading = LIMITS)]
    max_retry_wait_s: f64,

    /// Write the warm requests and the ladder with the gaps between tokens, as per-token JSONL that `ingest`, `fit` and `evaluate
    /// capture` read; gzip if the name ends in .gz
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
    /// Write the tables and the interpretation as markdown
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub markdown: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
}

impl Probe {
    /// The settings of the probe.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let usual = Settings::new(self.target.clone());
        let prompt = match &self.prompt_file {
            Some(path) => read_text(FileKind::PlainText, path)?,
            None => self.prompt.clone().unwrap_or_else(|| usual.prompt.clone()),
        };
        if prompt.trim().is_empty() {
            return Err(Failure::input("the prompt is empty: give a text"));
        }
        let api_key = match &self.api_key_file {
            Some(path) => Some(read_text(FileKind::PlainText, path)?),
            None => std::env::var("OPENAI_API_KEY").ok(),
        };
        let trust = match (&self.ca_file, self.insecure) {
            (Some(path), _) => Trust::File(path.clone()),
            (None, true) => Trust::Anything,
            (None, false) => Trust::System,
        };
        let limit = Duration::from_secs_f64;
        Ok(Settings {
            api: if self.chat { Api::Chat } else { Api::Completions },
            model: self.model.clone(),
            prompt,
            is_same_prompt: self.same_prompt,
            seed: self.seed.unwrap_or_else(by_the_clock),
            max_tokens: self.max_tokens,
            ignore_eos: self.ignore_eos,
            num_warm: self.warm,
            ladder: self.ladder(),
            limits: Limits {
                connect: limit(self.connect_timeout_s),
                first_token: limit(self.first_token_timeout_s),
                idle: limit(self.idle_timeout_s),
                total: limit(self.timeout_s),
            },
            max_retry_wait: limit(self.max_retry_wait_s),
            trust,
            api_key: api_key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()),
            headers: self.header.clone(),
            is_local: (usual.is_local || self.local) && !self.remote,
            target: usual.target,
        })
    }

    /// The ladder, if one of its flags is given.
    fn ladder(&self) -> Option<Ladder> {
        let is_given = !self.ladder_input_len.is_empty()
            || !self.ladder_concurrency.is_empty()
            || self.requests_per_rung.is_some();
        let or = |given: &[u64], usual: &[u64]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
        is_given.then(|| Ladder {
            input_lens: or(&self.ladder_input_len, &[128, 512, 2048]),
            concurrencies: if self.ladder_concurrency.is_empty() { vec![1] } else { self.ladder_concurrency.clone() },
            requests: self.requests_per_rung.unwrap_or(8),
        })
    }
}

fn by_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn seconds(text: &str) -> Result<f64, String> {
    above_zero(text)
        .and_then(|value| if value <= MAX_SECONDS { Ok(value) } else { Err(format!("must be at most {MAX_SECONDS}")) })
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be NAME: VALUE")?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_name { Ok((name.to_owned(), value.trim().to_owned())) } else { Err("must be NAME: VALUE".to_owned()) }
}
