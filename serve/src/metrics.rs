//! `GET /metrics` for Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use ridgepoint::BUILD;

use crate::app::App;

/// Upper bounds of the durations, s.
const BUCKETS_S: [f64; 14] = [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5, 2.0, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

/// One label: its name and its value.
type Label = [(&'static str, &'static str); 1];

/// Counts of the requests, and what is read when they are asked for.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<Label, Histogram, fn() -> Histogram>,
    connections: Gauge,
    running: Gauge,
    queued: Gauge,
    hits: Family<Label, Counter>,
    misses: Family<Label, Counter>,
    cache_bytes: Family<Label, Gauge>,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ridgepoint");
        let requests = Family::default();
        registry.register("http_requests", "Requests by route and status", requests.clone());
        let durations: Family<Label, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS_S));
        let help = "Time from the headers of a request to those of its answer";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, durations.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let (running, queued) = (Gauge::default(), Gauge::default());
        registry.register("jobs_running", "Threads that build models, replay loads or run sweeps", running.clone());
        registry.register("jobs_queued", "Requests that wait for such a thread", queued.clone());
        let (hits, misses, cache_bytes) = (Family::default(), Family::default(), Family::default());
        registry.register("cache_hits", "Requests whose step model was in the cache", hits.clone());
        registry.register("cache_misses", "Requests whose step model was built", misses.clone());
        registry.register_with_unit("cache", "Estimated size of a cache", Unit::Bytes, cache_bytes.clone());
        registry.register(
            "build",
            "What answers",
            Info::new([("version", env!("CARGO_PKG_VERSION")), ("build", BUILD)]),
        );
        Metrics { registry, requests, durations, connections, running, queued, hits, misses, cache_bytes }
    }

    /// Counts an answer.
    pub fn count(&self, route: &'static str, status: StatusCode, duration: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status: status.as_u16() }).inc();
        self.durations.get_or_create(&[("route", route)]).observe(duration.as_secs_f64());
    }

    /// Counts an open connection until the result is dropped.
    pub fn connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    /// All figures in the text format of OpenMetrics.
    pub async fn text(&self, app: &App) -> Bytes {
        let (running, queued) = app.jobs.running_and_queued();
        set(&self.running, running);
        set(&self.queued, queued);
        let caches = [
            ("predict_step", app.step_models.hits_and_misses(), app.step_models.bytes().await),
            ("simulate", app.replayables.hits_and_misses(), app.replayables.bytes().await),
        ];
        for (cache, (hits, misses), bytes) in caches {
            let of = [("cache", cache)];
            raise(&self.hits.get_or_create(&of), hits);
            raise(&self.misses.get_or_create(&of), misses);
            set(&self.cache_bytes.get_or_create(&of), usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = encode(&mut text, &self.registry);
        text.into()
    }
}

/// An open connection.
pub struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn set(gauge: &Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

fn raise(counter: &Counter<u64, AtomicU64>, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}
