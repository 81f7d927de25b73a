//! The estimate of a step: totals, bounds, an interval and its operators.
//! Uses `efficiency::provenance`, `physics::OperatorGroup`, `correction`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::correction::SDS_OF_90_PCT;
use crate::efficiency::{Bound, Provenance};
use crate::error::each_once;
use crate::physics::{BatchSums, GraphMode, OperatorGroup, OperatorKind};

/// One operator's part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperatorEstimate {
    /// Name.
    pub name: &'static str,
    /// Which operator of the physics it is; `None` for an overhead that a correction adds.
    #[serde(skip)]
    pub kind: Option<OperatorKind>,
    /// Its group; `None` for an overhead that a correction adds.
    pub group: Option<OperatorGroup>,
    /// Calls in the step.
    pub count: u64,
    /// FLOPs of all calls on one rank.
    pub flops: f64,
    /// Bytes of all calls, moved in memory or sent.
    pub bytes: f64,
    /// The resource that limits a call.
    pub bound: Bound,
    /// Time of all calls, µs.
    pub time_us: f64,
    /// Roofline bound of all calls, µs.
    pub bound_us: f64,
    /// Roofline bound over time, 0 to 1.
    pub efficiency: f64,
    /// Share of the step's time, 0 to 1.
    pub share: f64,
    /// Where the time comes from.
    pub provenance: Provenance,
}

/// The operators of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupEstimate {
    /// The group; `None` for the overheads that a correction adds.
    pub group: Option<OperatorGroup>,
    /// Predicted time, µs.
    pub time_us: f64,
    /// Roofline bound, µs.
    pub bound_us: f64,
    /// Share of the step's time, 0 to 1.
    pub share: f64,
}

/// A predicted step.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepEstimate {
    /// Predicted time of the step, µs.
    pub step_time_us: f64,
    /// Lower end of the 90 % interval, µs.
    pub lower_us: f64,
    /// Upper end of the 90 % interval, µs.
    pub upper_us: f64,
    /// Relative standard deviation from the uncertainty of the correction's coefficients; 0 without a correction.
    #[serde(skip)]
    pub coefficients_sd: f64,
    /// Relative standard deviation from clamped and fallback tables; without a correction the assumed one of all tables.
    #[serde(skip)]
    pub tables_sd: f64,
    /// The roofline bound: every operator at its ideal, µs.
    pub bound_us: f64,
    /// FLOPs of one rank.
    pub total_flops: f64,
    /// Bytes moved in memory by one rank.
    pub total_bytes: f64,
    /// Model FLOP utilisation, 0 to 1: FLOPs over step time and peak. The peak is that of 16 bits, or of the weights' format if it has fewer.
    pub mfu: f64,
    /// Memory bandwidth utilisation, 0 to 1: bytes over step time and bandwidth.
    pub mbu: f64,
    /// Tokens that run through the layers, padding of a captured graph included.
    pub padded_tokens: u64,
    /// How the step is launched.
    pub graph_mode: GraphMode,
    /// The operators, in order of execution.
    pub operators: Vec<OperatorEstimate>,
    /// Share of the step's time by where it comes from.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, f64>"))]
    pub provenance: Vec<(Provenance, f64)>,
    /// Warnings and assumptions, in plain words.
    pub warnings: Vec<String>,
    /// The sums over the batch that the estimate was made from.
    #[serde(skip)]
    pub batch: BatchSums,
}

fn by_name<S: Serializer>(shares: &[(Provenance, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(shares.iter().map(|(provenance, share)| (provenance, share)))
}

impl StepEstimate {
    /// A step without requests.
    pub(crate) fn nothing(batch: BatchSums) -> Self {
        let warnings = vec!["nothing to do: the step takes no time".to_owned()];
        StepEstimate { batch, warnings, ..StepEstimate::default() }
    }

    /// The groups that the step has, in a fixed order with overheads last.
    pub fn groups(&self) -> Vec<GroupEstimate> {
        let mut groups = each_once(self.operators.iter().map(|operator| operator.group));
        groups.sort_by_key(|group| (group.is_none(), *group));
        let estimate = |group| {
            let members = || self.operators.iter().filter(|operator| operator.group == group);
            GroupEstimate {
                group,
                time_us: members().map(|o| o.time_us).sum(),
                bound_us: members().map(|o| o.bound_us).sum(),
                share: members().map(|o| o.share).sum(),
            }
        };
        groups.into_iter().map(estimate).collect()
    }
}

impl OperatorEstimate {
    /// An overhead in addition to the operators, as a correction adds it.
    pub(crate) fn overhead(name: &'static str, time_us: f64) -> Self {
        OperatorEstimate {
            name,
            kind: None,
            group: None,
            count: 1,
            flops: 0.0,
            bytes: 0.0,
            bound: Bound::Latency,
            time_us,
            bound_us: 0.0,
            efficiency: 0.0,
            share: 0.0,
            provenance: Provenance::Learned,
        }
    }
}

/// Half-width of the 90 % interval when no correction is loaded, µs. Errors of the same provenance add up; those of different
/// ones are independent.
pub(crate) fn assumed_half_interval_us(operators: &[OperatorEstimate]) -> f64 {
    let mut times_us: BTreeMap<Provenance, f64> = BTreeMap::new();
    for operator in operators {
        *times_us.entry(operator.provenance).or_default() += operator.time_us;
    }
    times_us.iter().map(|(provenance, time_us)| (half_width(*provenance) * time_us).powi(2)).sum::<f64>().sqrt()
}

/// Relative standard deviation of the rate at which weights come from the host (assumed: no step with weights there was measured).
const HOST_LINK_SD: f64 = 0.1;

/// Relative standard deviation of a step's time from sources that the measured engines do not cover: clamped and fallback tables,
/// collectives and reads of the host that were not measured, and coefficients that are carried over to a GPU that was not fitted (assumed: 10 %).
pub(crate) fn unseen_tables_sd(operators: &[OperatorEstimate], time_us: f64, is_fitted_gpu: bool) -> f64 {
    let of = |p: Provenance| {
        let part_us: f64 = operators.iter().filter(|o| o.provenance == p).map(|o| o.time_us).sum();
        half_width(p) / SDS_OF_90_PCT * part_us / time_us
    };
    let is_host = |o: &&OperatorEstimate| o.kind == Some(OperatorKind::HostWeights);
    let is_unmeasured = |o: &&OperatorEstimate| {
        o.group == Some(OperatorGroup::Communication) && o.provenance == Provenance::Datasheet && !is_host(o)
    };
    let network_us: f64 = operators.iter().filter(is_unmeasured).map(|o| o.time_us).sum();
    let network = half_width(Provenance::Borrowed) / SDS_OF_90_PCT * network_us / time_us;
    let carried_over = if is_fitted_gpu { 0.0 } else { 0.1 };
    let host_us: f64 = operators.iter().filter(is_host).map(|o| o.time_us).sum();
    let from_host = HOST_LINK_SD * host_us / time_us;
    let parts = [of(Provenance::Clamped), of(Provenance::Borrowed), carried_over, from_host, network];
    parts.into_iter().map(|sd| sd * sd).sum::<f64>().sqrt()
}

/// Half width of the 90 % interval of an operator's time, relative, by where the time comes from. Measured and interpolated: the
/// 90th percentile of cross-validated table errors, rounded up; the others are assumed, not measured.
fn half_width(provenance: Provenance) -> f64 {
    match provenance {
        Provenance::Measured => 0.05,
        Provenance::Interpolated => 0.13,
        Provenance::Clamped => 0.25,
        Provenance::Borrowed => 0.35,
        Provenance::Datasheet => 0.5,
        Provenance::Ideal | Provenance::Learned => 0.0,
    }
}
