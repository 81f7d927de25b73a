//! Replays serving runs with the simpler rooflines, and with one component of the prediction replaced at a time, to attribute
//! its error.
//!
//! A component explains as many points as the absolute error falls when it is replaced. The points of components do not add
//! up to the error: two faults may cancel, and then replacing one makes the error larger (points below zero).

use super::case::{Case, Rooflines};
use super::measured::WHOLE_RUN;
use super::metric::{Metric, predicted_ms};
use super::report::Baseline;
use ridgepoint::latency::{CalibratedRoofline, HostTimes, KvTransfers, LatencyModel, TransferDirection};
use ridgepoint::{Result, Step};
use ridgepoint_replay::{EngineConfig, KvOffload, MAX_GPU_BLOCKS, Metrics, SchedulerOptions, replay};

/// Largest number of replays that the factor of [`Baseline::ScaledStepTimes`] takes.
const FACTOR_REPLAYS: usize = 4;
/// The factor is good enough if the decoding time is within this share of the measured one.
const FACTOR_TOLERANCE: f64 = 1e-3;

/// The metrics of a baseline's replay; `None` if it does not apply.
///
/// # Errors
/// As [`Case::replay`].
pub(super) fn baseline_metrics(case: &Case, baseline: Baseline, seed: u64) -> Result<Option<Metrics>> {
    let Rooflines { predicted, calibrated, ideal } = &case.rooflines;
    let host = predicted.host();
    let with_host = |host: HostTimes| case.replay(&(**predicted).clone().with_host(host), seed, &mut []);
    let with_engine = |engine: EngineConfig| replay(predicted.as_ref(), &engine, (case.load)(seed).as_mut(), &mut []);
    let engine = case.engine.clone();
    let replay = match baseline {
        Baseline::CalibratedRoofline => case.replay(calibrated.as_ref(), seed, &mut [])?,
        Baseline::IdealRoofline => case.replay(ideal.as_ref(), seed, &mut [])?,
        Baseline::ScaledStepTimes => match factor_to_measurement(case, predicted, seed)? {
            Some(factor) => case.replay(&Scaled { inner: predicted, factor }, seed, &mut [])?,
            None => return Ok(None),
        },
        Baseline::NoLimits => {
            with_engine(EngineConfig { max_num_seqs: u32::MAX, max_num_batched_tokens: u32::MAX, ..engine })?
        }
        // Blocks on the host are found by their hashes, too.
        Baseline::NoPrefixCaching => with_engine(EngineConfig {
            kv_offload: None,
            scheduler: SchedulerOptions { enable_prefix_caching: false, ..engine.scheduler },
            ..engine
        })?,
        Baseline::NoPreemption => {
            let num_gpu_blocks = engine.num_gpu_blocks.saturating_mul(16).min(MAX_GPU_BLOCKS);
            with_engine(EngineConfig { num_gpu_blocks, ..engine })?
        }
        Baseline::NoKvOffload | Baseline::NoKvTransferTime if engine.kv_offload.is_none() => return Ok(None),
        Baseline::NoKvDisk => match engine.kv_offload.clone().filter(|tier| tier.disk.is_some()) {
            Some(tier) => with_engine(EngineConfig { kv_offload: Some(KvOffload { disk: None, ..tier }), ..engine })?,
            None => return Ok(None),
        },
        Baseline::NoKvOffload => with_engine(EngineConfig { kv_offload: None, ..engine })?,
        Baseline::NoKvTransferTime => {
            let roofline = (**predicted).clone().with_kv_transfers(KvTransfers::INSTANT);
            case.replay(&roofline, seed, &mut [])?
        }
        Baseline::NoAsyncScheduling => with_engine(EngineConfig {
            scheduler: SchedulerOptions { async_scheduling: false, ..engine.scheduler },
            ..engine
        })?,
        Baseline::NoQueueing => {
            with_host(HostTimes { queueing_us: 0.0, queueing_us_per_token: 0.0, front_end_us: 0.0, ..host })?
        }
        Baseline::NoScheduling => with_host(HostTimes { scheduling_us: 0.0, ..host }.with_queue_prices([0.0; 4]))?,
        Baseline::NoOutputProcessing => with_host(HostTimes { output_token_us: 0.0, ..host })?,
        Baseline::NoHostOverhead => with_host(HostTimes::NONE)?,
        Baseline::GivenCorrection | Baseline::BlackBox | Baseline::ScaledCurve | Baseline::CurveLine => {
            return Ok(None);
        }
    };
    Ok(Some(Metrics::of(&replay)))
}

/// The factor on step times that makes the mean time from first to last token the measured one. Decoding time is matched
/// instead of `itl_mean`, because clients may count other output tokens than were generated.
fn factor_to_measurement(case: &Case, roofline: &CalibratedRoofline, seed: u64) -> Result<Option<f64>> {
    let decoding_ms = |of: &dyn Fn(Metric) -> Option<f64>| Some(of(Metric::E2E_MEAN)? - of(Metric::TTFT_MEAN)?);
    let Some(measured_ms) = decoding_ms(&|metric| case.measured.get(WHOLE_RUN, metric)) else { return Ok(None) };
    let mut factor = 1.0;
    for _ in 0..FACTOR_REPLAYS {
        let metrics = Metrics::of(&case.replay(&Scaled { inner: roofline, factor }, seed, &mut [])?);
        let predicted = decoding_ms(&|metric| predicted_ms(&metrics, None, metric));
        let ratio = predicted.map(|ms| measured_ms / ms).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let Some(ratio) = ratio else { return Ok(None) };
        factor *= ratio;
        if (ratio - 1.0).abs() <= FACTOR_TOLERANCE {
            break;
        }
    }
    Ok(Some(factor))
}

/// A latency model with its step times multiplied by a factor.
struct Scaled<'a> {
    inner: &'a CalibratedRoofline,
    factor: f64,
}

impl LatencyModel for Scaled<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.factor * self.inner.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        self.inner.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.inner.kv_transfer_time_us(direction, bytes)
    }
}
