//! A client that measures what servers of OpenAI's API show of themselves: time to first token, gaps between tokens, the cold request
//! compared with warm ones, and a ladder of prompt lengths and concurrencies. A server that misbehaves ends with a named result in bounded time.
//!
//! [`probe`] runs everything and blocks until it is done. The library prints nothing.
#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

mod body;
pub mod capture;
mod connection;
mod diagnosis;
mod environment;
mod exchange;
mod fault;
mod host;
mod lane;
mod openai;
mod prometheus;
mod prompts;
mod record;
mod report;
mod run;
mod secrets;
mod settings;
pub mod sse;
mod stats;
mod stream;
mod target;
mod tls;

pub use connection::ConnectTimes;
pub use diagnosis::{Cause, Diagnosis, Signal};
pub use environment::{ServedModel, Server, Snapshot};
pub use exchange::Limits;
pub use fault::{Fault, FaultKind, Remark};
pub use host::{Gpu, Host};
pub use openai::Api;
pub use prometheus::{BucketCount, MetricsDelta, ServerMetrics, Total};
pub use record::RequestRecord;
pub use report::{Report, Rung, WarmSummary};
pub use run::{OnRequest, probe};
pub use settings::{Ladder, Settings};
pub use stats::Spread;
pub use stream::TokenChunk;
pub use target::Target;
pub use tls::Trust;
