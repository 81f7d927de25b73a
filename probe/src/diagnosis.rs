//! The decision table: which term dominated the cold request, by which figures, and which were missing.
//!
//! # Source
//! The runbook "TTFT Baseline, Cold/Warm Anatomy": its causes A to D and their signals. The limits are assumptions of this file.

use serde::Serialize;

use crate::fault::named;
use crate::report::Report;
use crate::stats::Spread;

/// Least ratio of cold to warm that has a cause.
const LEAST_PENALTY: f64 = 1.5;
/// Share of the excess that one measured part must have to be its cause.
const DOMINANT_SHARE: f64 = 0.5;
/// Least bytes from disks, and least rate of reading them over the cold time to first token, that stand for weights.
const LEAST_READ_BYTES: f64 = 64.0 * MIB;
const LEAST_READ_BYTES_PER_S: f64 = 50e6;
/// Least rise of memory in use that stands for an allocation.
const LEAST_RISE_BYTES: f64 = 256.0 * MIB;
/// `warm_1` within so many times the later requests is as fast as they are.
const WARM_AT_ONCE: f64 = 1.5;
const MIB: f64 = 1_048_576.0;

named! {
    /// The reason for which the cold request took longer.
    Cause {
        PageCache "page_cache_fill" "A: weights came from storage into RAM.",
        HbmTransfer "hbm_transfer" "B: weights and buffers moved into the GPU's memory.",
        RuntimeWarmUp "runtime_warm_up" "C: the runtime was set up: graphs, autotuning, pools.",
        KvAllocation "kv_allocation" "D: KV pages and buffers were allocated.",
        Queueing "queueing" "The request waited for others.",
        NotCold "not_cold" "The server had answered before.",
        NoPenalty "no_penalty" "The first request was about as fast as the others.",
        Undecided "undecided" "The figures at hand do not decide.",
    }
}

/// A figure and the limit that it is held against.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Signal {
    /// Its name.
    pub name: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The limit.
    pub limit: f64,
    /// Whether the figure reaches the limit.
    pub is_met: bool,
    /// The cause that it speaks for if it does.
    pub speaks_for: Cause,
}

/// A cause with the figures that decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The cause.
    pub name: Cause,
    /// It in words.
    pub about: String,
    /// The figures at hand, in the order in which they decide.
    pub signals: Vec<Signal>,
    /// Figures that are missing.
    pub missing: Vec<String>,
}

/// The figures of a run.
#[derive(Debug, Clone, Default)]
struct Facts {
    cold_ms: f64,
    warm_1_ms: Option<f64>,
    warm_ms: Option<Spread>,
    /// Requests that the server had answered before.
    answered_before: Option<f64>,
    waiting_before: Option<f64>,
    queue_ms: Option<f64>,
    read_bytes: Option<f64>,
    cached_rise_bytes: Option<f64>,
    gpu_before_bytes: Option<f64>,
    gpu_rise_bytes: Option<f64>,
    /// Drop of the memory that programs could have, on a machine without GPUs.
    host_drop_bytes: Option<f64>,
}

/// Decides.
pub(crate) fn diagnose(report: &Report) -> Diagnosis {
    match facts(report) {
        Some(facts) => facts.decide(),
        None => Diagnosis {
            name: Cause::Undecided,
            about: "There is no cold and no warm time to first token to compare.".to_owned(),
            signals: Vec::new(),
            missing: vec!["TTFT of a cold and of a warm request".to_owned()],
        },
    }
}

fn facts(report: &Report) -> Option<Facts> {
    let cold_ms = report.cold.as_ref()?.ttft_ms?;
    let warm_ms = report.warm_summary().ttft_ms?;
    let (before, after) = (&report.before, &report.after_cold);
    let host = before.host.as_ref().zip(after.host.as_ref());
    let rise = |of: fn(&crate::host::Host) -> Option<u64>| {
        let (before, after) = host?;
        Some(of(after)? as f64 - of(before)? as f64)
    };
    let metrics = before.metrics.as_ref();
    let delta = metrics.zip(after.metrics.as_ref()).map(|(before, after)| after.since(before));
    let has_gpus = host.is_some_and(|(before, _)| before.gpu_used_bytes().is_some());
    let answered = metrics.and_then(|of| of.finished.or(of.ttft.map(|ttft| ttft.count)).or(of.prompt_tokens));
    Some(Facts {
        cold_ms,
        warm_1_ms: report.warm_1.as_ref().and_then(|record| record.ttft_ms),
        warm_ms: Some(warm_ms),
        answered_before: answered,
        waiting_before: metrics.and_then(|of| of.waiting),
        queue_ms: delta.and_then(|delta| delta.queue_time_mean_ms),
        read_bytes: rise(|host| host.disk_read_bytes),
        cached_rise_bytes: rise(|host| host.cached_bytes),
        gpu_before_bytes: host.and_then(|(before, _)| before.gpu_used_bytes()).map(|bytes| bytes as f64),
        gpu_rise_bytes: rise(crate::host::Host::gpu_used_bytes),
        host_drop_bytes: if has_gpus { None } else { rise(|host| host.available_bytes).map(|rise| -rise) },
    })
}

impl Facts {
    fn decide(&self) -> Diagnosis {
        let warm_ms = self.warm_ms.map_or(0.0, |of| of.median);
        let warm_max_ms = self.warm_ms.map_or(0.0, |of| of.max);
        let excess_ms = self.cold_ms - warm_ms;
        let signals = self.signals(warm_ms, excess_ms);
        let met = |name: &str| signals.iter().find(|of| of.name == name).map(|of| of.is_met);
        let is = |name: &str| met(name) == Some(true);
        let memory = met("gpu_memory_rise").or(met("host_memory_drop"));
        let name = if is("answered_before") {
            Cause::NotCold
        } else if !is("penalty") || self.cold_ms <= warm_max_ms {
            Cause::NoPenalty
        } else if is("queue_time") {
            Cause::Queueing
        } else if is("disk_read") && is("disk_rate") && met("page_cache_rise") != Some(false) {
            Cause::PageCache
        } else if memory == Some(true) {
            if is("gpu_was_empty") {
                Cause::HbmTransfer
            } else if met("warm_at_once") == Some(false) {
                Cause::Undecided
            } else {
                Cause::KvAllocation
            }
        } else if memory == Some(false) && met("disk_read").is_some() {
            Cause::RuntimeWarmUp
        } else {
            Cause::Undecided
        };
        let missing = self.missing();
        let ratio = self.cold_ms / warm_ms;
        let times = format!(
            "cold_1 took {:.1} ms, warm requests {warm_ms:.1} ms in the median: {ratio:.2} times as long.",
            self.cold_ms
        );
        let about = match name {
            Cause::NotCold => {
                format!("{times} The server had answered before, so this is no cold start: restart it and run again.")
            }
            Cause::Undecided => format!("{times} {} Missing: {}.", name.about(), missing.join("; ")),
            _ => format!("{times} {}", name.about()),
        };
        Diagnosis { name, about, signals, missing }
    }

    fn signals(&self, warm_ms: f64, excess_ms: f64) -> Vec<Signal> {
        let mut signals = Vec::new();
        let mut add = |name, value: Option<f64>, unit, limit: f64, speaks_for| {
            if let Some(value) = value {
                signals.push(Signal { name, value, unit, limit, is_met: value >= limit, speaks_for });
            }
        };
        add("answered_before", self.answered_before, "requests or tokens", 1.0, Cause::NotCold);
        add("penalty", Some(self.cold_ms / warm_ms), "cold / warm", LEAST_PENALTY, Cause::RuntimeWarmUp);
        add("waiting_before", self.waiting_before, "requests", 1.0, Cause::Queueing);
        add("queue_time", self.queue_ms, "ms", (DOMINANT_SHARE * excess_ms).max(1.0), Cause::Queueing);
        add("disk_read", self.read_bytes, "bytes", LEAST_READ_BYTES, Cause::PageCache);
        let rate = self.read_bytes.map(|bytes| bytes / (self.cold_ms.max(1.0) / 1e3));
        add("disk_rate", rate, "bytes/s", LEAST_READ_BYTES_PER_S, Cause::PageCache);
        let half_of_read = self.read_bytes.map(|bytes| DOMINANT_SHARE * bytes);
        if let Some(limit) = half_of_read.filter(|bytes| *bytes >= DOMINANT_SHARE * LEAST_READ_BYTES) {
            add("page_cache_rise", self.cached_rise_bytes, "bytes", limit, Cause::PageCache);
        }
        add("gpu_memory_rise", self.gpu_rise_bytes, "bytes", LEAST_RISE_BYTES, Cause::KvAllocation);
        // A memory that was emptier than what came into it did not hold the weights.
        add(
            "gpu_was_empty",
            self.gpu_rise_bytes,
            "bytes",
            self.gpu_before_bytes.unwrap_or(f64::INFINITY),
            Cause::HbmTransfer,
        );
        add("host_memory_drop", self.host_drop_bytes, "bytes", LEAST_RISE_BYTES, Cause::KvAllocation);
        // As a ratio that is met from below: the later requests over warm_1.
        // It tells two causes of a penalty with new memory apart, and says nothing where there is neither.
        let has_grown = self.gpu_rise_bytes.or(self.host_drop_bytes).is_some_and(|bytes| bytes >= LEAST_RISE_BYTES);
        let counts = has_grown && self.cold_ms >= LEAST_PENALTY * warm_ms;
        let at_once = self.warm_1_ms.filter(|ms| counts && *ms > 0.0).map(|ms| warm_ms / ms);
        add("warm_at_once", at_once, "later / warm_1", 1.0 / WARM_AT_ONCE, Cause::KvAllocation);
        signals
    }

    fn missing(&self) -> Vec<String> {
        let is_missing = [
            ("requests that the server had answered before (/metrics)", self.answered_before.is_none()),
            ("time in the queue (/metrics)", self.queue_ms.is_none()),
            ("bytes read from disks (/proc/diskstats)", self.read_bytes.is_none()),
            ("page cache (/proc/meminfo)", self.cached_rise_bytes.is_none()),
            ("memory of the GPUs (nvidia-smi)", self.gpu_rise_bytes.is_none()),
            ("utilisation of the GPUs during cold_1: not sampled", true),
            ("whether a restart shows it again: one run cannot show that", true),
        ];
        is_missing.into_iter().filter(|(_, is)| *is).map(|(name, _)| name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first request of 1000 ms, others of 100 ms, on a quiet machine with a GPU of which 60 GiB are in use.
    fn quiet() -> Facts {
        Facts {
            cold_ms: 1000.0,
            warm_1_ms: Some(105.0),
            warm_ms: Spread::of([95.0, 100.0, 110.0]),
            answered_before: Some(0.0),
            waiting_before: Some(0.0),
            queue_ms: Some(1.0),
            read_bytes: Some(1e6),
            cached_rise_bytes: Some(0.0),
            gpu_before_bytes: Some(60.0 * 1024.0 * MIB),
            gpu_rise_bytes: Some(2.0 * MIB),
            host_drop_bytes: None,
        }
    }

    #[test]
    fn each_row_of_the_table_is_decided_by_its_figures() {
        let all = |name: &str, facts: Facts| assert_eq!(facts.decide().name.name(), name, "{facts:?}");
        all("runtime_warm_up", quiet());
        all("runtime_warm_up", Facts { warm_1_ms: Some(400.0), ..quiet() });
        let read = Facts { read_bytes: Some(3e9), cached_rise_bytes: Some(2.9e9), ..quiet() };
        all("page_cache_fill", read.clone());
        // Bytes that do not stay in the page cache are of another program.
        all("runtime_warm_up", Facts { cached_rise_bytes: Some(1e6), ..read.clone() });
        // The same bytes over 90 s are a log, not weights.
        all("runtime_warm_up", Facts { cold_ms: 90_000.0, ..read.clone() });
        let rise = Facts { gpu_rise_bytes: Some(2048.0 * MIB), ..quiet() };
        all("kv_allocation", rise.clone());
        all("undecided", Facts { warm_1_ms: Some(400.0), ..rise.clone() });
        all("hbm_transfer", Facts { gpu_before_bytes: Some(500.0 * MIB), ..rise.clone() });
        all("page_cache_fill", Facts { gpu_rise_bytes: Some(2048.0 * MIB), ..read });
        all("queueing", Facts { queue_ms: Some(450.0), ..rise.clone() });
        all("not_cold", Facts { answered_before: Some(3.0), ..rise.clone() });
        all("no_penalty", Facts { cold_ms: 140.0, ..rise.clone() });
        all("no_penalty", Facts { cold_ms: 300.0, warm_ms: Spread::of([90.0, 100.0, 400.0]), ..rise });
        let no_gpu = Facts { gpu_before_bytes: None, gpu_rise_bytes: None, ..quiet() };
        all("undecided", no_gpu.clone());
        all("runtime_warm_up", Facts { host_drop_bytes: Some(-3.0), ..no_gpu.clone() });
        all("kv_allocation", Facts { host_drop_bytes: Some(1e9), ..no_gpu });
    }

    #[test]
    fn what_is_missing_is_reported() {
        let remote = Facts { cold_ms: 1000.0, warm_ms: Spread::of([100.0]), ..Facts::default() };
        let found = remote.decide();
        assert_eq!(found.name, Cause::Undecided);
        assert_eq!(found.signals.iter().map(|of| of.name).collect::<Vec<_>>(), ["penalty"]);
        assert_eq!(found.missing.len(), 7);
        assert!(found.about.contains("10.00 times") && found.about.contains("/proc/diskstats"), "{}", found.about);
        assert_eq!(quiet().decide().missing.len(), 2);
    }
}
