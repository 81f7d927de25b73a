//! Terms of a start: times with an interval and their source, and sums of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Name of the part that the first step pays beyond its own time.
pub(super) const FIRST_STEP: &str = "first_step";

/// Source of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The model, the deployment and the GPU decide it, as they decide the time of a step.
    Physics,
    /// A log states it.
    Measured,
    /// A rate was fitted to logs.
    Fitted,
    /// A rate is assumed. Its interval is wide.
    Assumed,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The six terms, in the order in which a server pays them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermName {
    /// Weights from storage, or from the page cache, into host memory.
    Storage,
    /// Weights from host memory to the GPU over the bus.
    HostToDevice,
    /// Processes, imports, compilation, selection of kernels, CUDA graphs.
    RuntimeWarmUp,
    /// The profiling run, the KV cache and the workspaces.
    KvAndBuffers,
    /// The first prompt.
    FirstPrefill,
    /// The way of the first request through the host, without other requests.
    Queueing,
}

impl TermName {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            TermName::Storage => "storage",
            TermName::HostToDevice => "host_to_device",
            TermName::RuntimeWarmUp => "runtime_warm_up",
            TermName::KvAndBuffers => "kv_and_buffers",
            TermName::FirstPrefill => "first_prefill",
            TermName::Queueing => "queueing",
        }
    }
}

/// A time with its 90 % interval, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Seconds {
    /// The estimate.
    pub estimate_s: f64,
    /// Lower end of the interval.
    pub lower_s: f64,
    /// Upper end of the interval.
    pub upper_s: f64,
}

impl Seconds {
    /// A time that is known.
    pub fn exactly(estimate_s: f64) -> Self {
        Seconds { estimate_s, lower_s: estimate_s, upper_s: estimate_s }
    }

    /// Adds times whose errors are independent.
    ///
    /// # Formula
    /// Estimates add. The distances from the estimates to the lower ends add in quadrature, and those to the upper ends too.
    ///
    /// ```
    /// use ridgepoint_replay::cold_start::Seconds;
    /// let one = Seconds { estimate_s: 10.0, lower_s: 7.0, upper_s: 16.0 };
    /// let other = Seconds { estimate_s: 20.0, lower_s: 16.0, upper_s: 28.0 };
    /// // 3² + 4² = 5² and 6² + 8² = 10².
    /// assert_eq!(Seconds::sum([one, other]), Seconds { estimate_s: 30.0, lower_s: 25.0, upper_s: 40.0 });
    /// ```
    pub fn sum(times: impl IntoIterator<Item = Seconds>) -> Self {
        let (mut estimate_s, mut below, mut above) = (0.0, 0.0, 0.0);
        for time in times {
            estimate_s += time.estimate_s;
            below += (time.estimate_s - time.lower_s).powi(2);
            above += (time.upper_s - time.estimate_s).powi(2);
        }
        Seconds { estimate_s, lower_s: (estimate_s - below.sqrt()).max(0.0), upper_s: estimate_s + above.sqrt() }
    }
}

/// A part of a term with a single source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Name in reports.
    pub name: &'static str,
    /// The time.
    #[serde(flatten)]
    pub time: Seconds,
    /// Its source.
    pub source: Source,
    /// The computation and the origin of its rate, in words.
    pub origin: String,
    /// Bytes that are moved or allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Graphs that are captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<u64>,
}

/// A term: the sum of its parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// Its name.
    pub term: TermName,
    /// The time.
    #[serde(flatten)]
    pub time: Seconds,
    /// The source of its longest part.
    pub source: Source,
    /// Its parts.
    pub parts: Vec<Part>,
}

impl Term {
    /// The sum of some parts.
    pub fn of(term: TermName, parts: Vec<Part>) -> Self {
        let longest = parts.iter().max_by(|one, other| one.time.estimate_s.total_cmp(&other.time.estimate_s));
        Term {
            term,
            time: Seconds::sum(parts.iter().map(|part| part.time)),
            source: longest.map_or(Source::Physics, |part| part.source),
            parts,
        }
    }
}

/// The time from the start of a server to its first token. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartUp {
    /// The six terms in their order.
    pub terms: Vec<Term>,
    /// Time until the server takes requests: all terms but the first prefill and queueing.
    pub ready: Seconds,
    /// Time until the first token of a request that waits since the start.
    pub first_token: Seconds,
}

impl StartUp {
    /// The sums of six terms.
    pub fn of(terms: Vec<Term>) -> Self {
        let is_after_ready = |term: &&Term| matches!(term.term, TermName::FirstPrefill | TermName::Queueing);
        let before = terms.iter().filter(|term| !is_after_ready(term));
        // Sums are of parts: those of one term are as independent as those of two.
        let times = |terms: &[&Term]| Seconds::sum(terms.iter().flat_map(|term| &term.parts).map(|part| part.time));
        let ready = times(&before.collect::<Vec<_>>());
        let first_token = times(&terms.iter().collect::<Vec<_>>());
        StartUp { terms, ready, first_token }
    }

    /// Finds a part by its name.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.terms.iter().flat_map(|term| &term.parts).find(|part| part.name == name)
    }

    /// The part by which the first step after the start takes longer than later ones.
    pub fn first_step(&self) -> Seconds {
        self.part(FIRST_STEP).map_or_else(Seconds::default, |part| part.time)
    }
}
