//! The times of a logged start and the rates that make them up.

use ridgepoint_replay::cold_start::{Amounts, CompileCache, RateName, Rates, Seconds, TermName};
use serde::Serialize;

use super::log::StartLog;

/// Standard deviation of the rounding to a unit: 1/√12.
const ROUNDING: f64 = 0.288_675_134_594_812_9;

/// A time that a log of a start reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// From the first line to the first rank that loads weights.
    Launch,
    /// "Loading weights took": storage and bus together.
    Weights,
    /// "Model loading took" without the weights.
    ModelInit,
    /// "Dynamo bytecode transform time".
    Dynamo,
    /// torch.compile without Dynamo.
    Inductor,
    /// torch.compile where the log has no line of Dynamo.
    Compile,
    /// torch.compile from a warm compile cache.
    CompileWarm,
    /// The progress bar of graphs between attention calls.
    PiecewiseGraphs,
    /// The progress bar of graphs of whole steps.
    FullGraphs,
    /// "Graph capturing finished in" where the log has no progress bars.
    Graphs,
    /// "Initial profiling/warmup run took", which makes the buffers.
    ProfileRun,
    /// "init engine" without compilation, captures and the profiling run: the KV cache and kernels.
    EngineWarmUp,
    /// The same with the profiling run where the log has no line of that.
    EngineRest,
}

impl Quantity {
    /// The terms that it is part of.
    pub fn terms(self) -> &'static [TermName] {
        match self {
            Quantity::Weights => &[TermName::Storage, TermName::HostToDevice],
            Quantity::EngineRest | Quantity::EngineWarmUp => &[TermName::RuntimeWarmUp, TermName::KvAndBuffers],
            Quantity::ProfileRun => &[TermName::KvAndBuffers],
            _ => &[TermName::RuntimeWarmUp],
        }
    }
}

/// A measured time and how coarsely it was logged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredTime {
    /// What was measured.
    pub quantity: Quantity,
    /// The time, s.
    pub seconds: f64,
    /// Standard deviation of its rounding, s.
    pub rounding_s: f64,
    /// The graphs that a progress bar counts.
    pub graphs: Option<u64>,
}

/// The quantity that turns a rate into a time. Work is divided by the rate, a count is multiplied by it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    /// Bytes at bytes per second.
    Work(f64),
    /// Pieces at seconds for each.
    Count(f64),
}

/// A time as a sum over rates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateSum {
    fixed_s: f64,
    parts: Vec<(RateName, Amount)>,
}

impl RateSum {
    /// The rates of the sum.
    pub(super) fn names(&self) -> impl Iterator<Item = RateName> {
        self.parts.iter().map(|(name, _)| *name)
    }

    /// The time at some rates.
    pub(super) fn seconds(&self, rate: impl Fn(RateName) -> f64) -> f64 {
        let part = |(name, amount): &(RateName, Amount)| match amount {
            Amount::Work(work) => work / rate(*name),
            Amount::Count(count) => count * rate(*name),
        };
        self.fixed_s + self.parts.iter().map(part).sum::<f64>()
    }

    /// The time with its interval.
    pub(super) fn time(&self, rates: &Rates) -> Seconds {
        let parts = self.parts.iter().map(|(name, amount)| match amount {
            Amount::Work(work) => rates.of(*name).time_of(*work),
            Amount::Count(count) => rates.of(*name).times(*count),
        });
        Seconds::sum(parts.chain([Seconds::exactly(self.fixed_s)]))
    }
}

/// The sum that predicts a measured time. The last two are the predicted times of the profiling run and of filling the KV cache.
pub(super) fn sum(of: &MeasuredTime, amounts: &Amounts, profile_s: f64, fill_s: f64) -> RateSum {
    use Amount::{Count, Work};
    let graphs = |counted: u64| Count(of.graphs.unwrap_or(counted) as f64 * amounts.layers);
    let piecewise = || (RateName::PiecewiseGraphSPerLayer, graphs(amounts.captures.piecewise));
    let full = || (RateName::FullGraphSPerLayer, graphs(amounts.captures.full));
    let dynamo = (RateName::DynamoSPerLayer, Count(amounts.layers));
    let inductor = (RateName::InductorS, Count(1.0));
    let buffers = (RateName::BuffersS, Count(1.0));
    let warm_up = (RateName::KernelWarmUpS, Count(if amounts.warms_up { 1.0 } else { 0.0 }));
    let parts = match of.quantity {
        Quantity::Launch => vec![(RateName::ProcessStartS, Count(1.0))],
        Quantity::Weights => vec![
            (RateName::StorageBytesPerS, Work(amounts.checkpoint_bytes)),
            (RateName::HostToDeviceBytesPerS, Work(amounts.rank_bytes)),
        ],
        Quantity::ModelInit => vec![(RateName::ModelInitS, Count(1.0))],
        Quantity::Dynamo => vec![dynamo],
        Quantity::Inductor => vec![inductor],
        Quantity::Compile => vec![dynamo, inductor],
        Quantity::CompileWarm => vec![(RateName::CompileWarmS, Count(1.0))],
        Quantity::PiecewiseGraphs => vec![piecewise()],
        Quantity::FullGraphs => vec![full()],
        Quantity::Graphs => vec![piecewise(), full()],
        Quantity::ProfileRun => vec![buffers],
        Quantity::EngineWarmUp => vec![warm_up],
        Quantity::EngineRest => vec![warm_up, buffers],
    };
    let parts = parts.into_iter().filter(|(_, amount)| !matches!(amount, Work(0.0) | Count(0.0))).collect();
    let fixed_s = match of.quantity {
        Quantity::ProfileRun => profile_s,
        Quantity::EngineWarmUp => fill_s,
        Quantity::EngineRest => profile_s + fill_s,
        _ => 0.0,
    };
    RateSum { fixed_s, parts }
}

/// The times that a log reports, and the names of those that are missing.
pub(super) fn measure(log: &StartLog, amounts: &Amounts) -> (Vec<MeasuredTime>, Vec<&'static str>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    // A difference of two rounded times may be zero or less; what is too short to be seen is about as long as its rounding.
    let of = |quantity, seconds: f64, unit_s: f64| MeasuredTime {
        quantity,
        seconds: seconds.max(0.5 * unit_s),
        rounding_s: ROUNDING * unit_s,
        graphs: None,
    };
    let mut add = |name, measured: Option<MeasuredTime>| match measured {
        Some(measured) => found.push(measured),
        None => missing.push(name),
    };
    // Two stamps of whole seconds; √2 of the rounding of one is about 1.4.
    add("launch", log.launch_s.map(|seconds| of(Quantity::Launch, seconds, 1.4)));
    let weights_s = log.slowest(|rank| rank.weights_s);
    add("weights", weights_s.map(|seconds| of(Quantity::Weights, seconds, 0.01)));
    let init_s = log.slowest(|rank| Some(rank.model_s? - rank.weights_s?));
    add("model_init", init_s.map(|seconds| of(Quantity::ModelInit, seconds, 0.01)));

    let compile_s = log.slowest(|rank| rank.compile_s);
    if amounts.compiles {
        let warm = log.compile_cache == Some(CompileCache::Warm);
        let dynamo_s = log.slowest(|rank| rank.dynamo_s);
        match (compile_s, dynamo_s) {
            (Some(seconds), _) if warm => add("compile", Some(of(Quantity::CompileWarm, seconds, 0.01))),
            (Some(seconds), Some(dynamo_s)) => {
                add("compile", Some(of(Quantity::Dynamo, dynamo_s, 0.01)));
                add("compile", Some(of(Quantity::Inductor, seconds - dynamo_s, 0.02)));
            }
            (compile_s, _) => add("compile", compile_s.map(|seconds| of(Quantity::Compile, seconds, 0.01))),
        }
    }

    let bars = [(Quantity::PiecewiseGraphs, log.piecewise), (Quantity::FullGraphs, log.full)];
    let mut bars_s = 0.0;
    for (quantity, (graphs, seconds)) in bars.into_iter().filter_map(|(quantity, bar)| Some((quantity, bar?))) {
        // A rate of two decimals.
        let measured = of(quantity, seconds, 0.005 * seconds);
        add("graphs", Some(MeasuredTime { graphs: Some(graphs), ..measured }));
        bars_s += seconds;
    }
    // Bars leave out what vLLM does around the captures, and are not rounded to a second.
    let has_bars = bars_s > 0.0;
    let graphs_s = Some(bars_s).filter(|_| has_bars).or_else(|| log.slowest(|rank| rank.graphs_s));
    let captures = amounts.captures.piecewise + amounts.captures.full > 0;
    if captures && !has_bars {
        add("graphs", graphs_s.map(|seconds| of(Quantity::Graphs, seconds, 1.0)));
    }

    let spent = |expected: bool, seconds: Option<f64>| if expected { seconds } else { Some(seconds.unwrap_or(0.0)) };
    let profile_s = log.slowest(|rank| rank.profile_s);
    if let Some(seconds) = profile_s {
        add("profile_run", Some(of(Quantity::ProfileRun, seconds, 0.01)));
    }
    let rest = log.engine_s.zip(spent(amounts.compiles, compile_s)).zip(spent(captures, graphs_s));
    let unit_s = if captures && !has_bars { 1.0 } else { 0.02 };
    let quantity = if profile_s.is_some() { Quantity::EngineWarmUp } else { Quantity::EngineRest };
    let rest = rest.map(|((all, compile), graphs)| all - compile - graphs - profile_s.unwrap_or(0.0));
    add("engine_rest", rest.map(|seconds| of(quantity, seconds, unit_s)));
    if log.ready_s.is_none() {
        missing.push("ready");
    }
    (found, missing)
}
