//! The report on transfers: counts by file and direction, and the rates that follow from the events or the sums of a server.

use std::path::Path;

use ridgepoint::latency::{KvTransfers, TransferLink};
use ridgepoint::physics::Memory;
use ridgepoint::units::US_PER_S;
use ridgepoint::{Deployment, Error, Model, Result};
use serde::Serialize;

use super::faults::TransferFaults;
use super::log::{CopyLog, TransferLog};
use crate::ingest::step::Run;
use crate::stats::median;
use crate::transfers::{CopySums, Direction, DirectionFit, Estimate, MOST, fit_copies, fit_link};

/// One end of the 90 % intervals of a direction's rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateBounds {
    /// Of the fixed time, µs.
    pub latency_us: f64,
    /// Of the bandwidth; `None` where the bytes of a block are not known.
    pub bytes_per_s: Option<f64>,
    /// Of the bandwidth in blocks; `None` where only bytes are known.
    pub blocks_per_s: Option<f64>,
}

/// The transfers of one direction in one file. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferReport {
    /// Where the blocks go.
    pub direction: Direction,
    /// Completed transfers.
    pub count: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that the rates are fitted to; those of copies are all.
    pub fitted: u64,
    /// Blocks, where the file reports them.
    pub blocks: Option<u64>,
    /// Bytes, where the file reports them or the bytes of a block are known.
    pub bytes: Option<f64>,
    /// Median time from the beginning to the step that notices the end, µs.
    pub median_time_us: Option<f64>,
    /// Mean time of a copy itself, µs.
    pub mean_time_us: Option<f64>,
    /// Bytes over the time of the copies.
    pub mean_bytes_per_s: Option<f64>,
    /// Fixed time of a transfer, µs; `None` where the file does not determine it.
    pub latency_us: Option<f64>,
    /// Bandwidth behind that; `None` where the bytes of a block are not known.
    pub bytes_per_s: Option<f64>,
    /// The same in blocks; `None` where only bytes are known.
    pub blocks_per_s: Option<f64>,
    /// Lower ends of the 90 % intervals.
    pub lower: Option<RateBounds>,
    /// Upper ends.
    pub upper: Option<RateBounds>,
    /// Their source: `kv_events`, `log` or `metrics`.
    pub source: &'static str,
    /// The file.
    pub file: String,
}

/// By how much both directions slow each other down. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContentionReport {
    /// Share of its speed at which each direction runs while both do.
    pub factor: f64,
    /// Lower end of the 90 % interval.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// The file.
    pub file: String,
}

/// The events of transfers in one file without a usable time. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferFaultsReport {
    /// The file.
    pub file: String,
    /// The counts.
    #[serde(flatten)]
    pub faults: TransferFaults,
}

/// What a file says of transfers.
#[derive(Debug, Default)]
pub(in crate::ingest) struct FileTransfers {
    pub(in crate::ingest) file: String,
    pub(in crate::ingest) events: Option<TransferLog>,
    pub(in crate::ingest) copies: Option<CopyLog>,
}

/// The reports on the transfers of some files.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Reports {
    pub(in crate::ingest) transfers: Vec<TransferReport>,
    pub(in crate::ingest) contention: Vec<ContentionReport>,
    pub(in crate::ingest) faults: Vec<TransferFaultsReport>,
    pub(in crate::ingest) notes: Vec<String>,
}

/// How many bytes a block has.
#[derive(Debug, Clone, Copy)]
pub(in crate::ingest) struct BlockBytes<'a> {
    /// What the command line says.
    pub(in crate::ingest) given: Option<f64>,
    /// Tokens of a block, by vLLM's flag; `None` where the files report none or several.
    pub(in crate::ingest) block_size: Option<u64>,
    /// Where the models of `--data-dir` are.
    pub(in crate::ingest) data_dir: Option<&'a Path>,
}

impl BlockBytes<'_> {
    /// The bytes of a block on one GPU of a run; the message says what is missing.
    ///
    /// # Formula
    /// `block_size · KV bytes per token and GPU`, with vLLM's `auto` for the KV cache's format.
    fn of(&self, run: &Run) -> std::result::Result<f64, String> {
        if let Some(given) = self.given {
            return Ok(given);
        }
        let missing: Vec<&str> = [
            (run.model.is_none(), "the model"),
            (run.tensor_parallel_size.is_none(), "tensor_parallel_size"),
            (self.block_size.is_none(), "one size of a block in tokens"),
        ]
        .into_iter()
        .filter_map(|(is_missing, name)| is_missing.then_some(name))
        .collect();
        let (Some(name), Some(size), Some(block_size)) = (&run.model, run.tensor_parallel_size, self.block_size) else {
            return Err(format!("the files do not report {}", missing.join(", ")));
        };
        let model = Model::find_in(self.data_dir, name).map_err(|error| error.to_string())?;
        let deployment = Deployment { tensor_parallel_size: size, ..Deployment::default() };
        let memory = Memory::new(&model, &deployment).map_err(|error| error.to_string())?;
        if memory.state.is_some() {
            return Err(format!("blocks of {name} hold states as well"));
        }
        Ok(memory.kv_bytes_per_token() * block_size as f64)
    }
}

/// Fits the transfers of all files.
///
/// # Errors
/// Those of the solver.
pub(in crate::ingest) fn reports(files: Vec<FileTransfers>, block: BlockBytes<'_>) -> Result<Reports> {
    let mut reports = Reports::default();
    for FileTransfers { file, events, copies } in files {
        if let Some(log) = events {
            add_events(&mut reports, &file, &log, block)?;
        }
        if let Some(copies) = copies {
            for (direction, sums) in Direction::BOTH.into_iter().zip(&copies.sums) {
                reports.transfers.extend(of_copies(&file, copies.is_log, direction, sums)?);
            }
        }
    }
    Ok(reports)
}

fn add_events(reports: &mut Reports, file: &str, log: &TransferLog, block: BlockBytes<'_>) -> Result<()> {
    let mut note = |text: String| reports.notes.push(format!("{file}: {text}"));
    if !log.other_media.is_empty() {
        let named: Vec<String> = log.other_media.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        note(format!("events of transfers between other media than GPU and CPU are left out: {}", named.join(", ")));
    }
    let fitted = log.transfers.get(..MOST.min(log.transfers.len())).unwrap_or_default();
    if fitted.len() < log.transfers.len() {
        note(format!("rates are fitted to the first {MOST} of {} transfers", log.transfers.len()));
    }
    let fit = fit_link(fitted)?;
    if !log.is_numbered && fit.directions.iter().any(Option::is_some) {
        note(
            "batches lack the numbers of their steps, so how many left no batch is a guess: latencies may be too long by a \
             tenth of a step"
                .to_owned(),
        );
    }
    let bytes = block.of(&log.run);
    if let (Err(missing), true) = (&bytes, fit.directions.iter().any(Option::is_some)) {
        note(format!("the bandwidth is in blocks per second, because {missing}: give kv_block_bytes"));
    }
    let bytes = bytes.ok();
    for ((direction, of), rates) in Direction::BOTH.into_iter().zip(&log.directions).zip(fit.directions) {
        if of.count == 0 {
            continue;
        }
        let own = || fitted.iter().filter(|next| next.direction == direction && next.is_fitted);
        if rates.is_none() {
            note(format!(
                "{} transfers of {} do not determine its latency and bandwidth: they are too few, of one size, or all shorter than a step",
                own().count(),
                direction.name()
            ));
        }
        let bound = |of: fn(&Estimate) -> f64| {
            rates.as_ref().map(|rates| RateBounds {
                latency_us: of(&rates.latency_us),
                bytes_per_s: bytes.map(|bytes| bytes * of(&rates.blocks_per_s)),
                blocks_per_s: Some(of(&rates.blocks_per_s)),
            })
        };
        let per_s = |rates: &DirectionFit| rates.blocks_per_s.value;
        reports.transfers.push(TransferReport {
            direction,
            count: of.count,
            failed: of.failed,
            fitted: if rates.is_some() { own().count() as u64 } else { 0 },
            blocks: Some(of.blocks),
            bytes: bytes.map(|bytes| bytes * of.blocks as f64),
            median_time_us: median(own().map(|next| next.noticed_us - next.begun_us).collect()),
            mean_time_us: None,
            mean_bytes_per_s: None,
            latency_us: rates.map(|rates| rates.latency_us.value),
            bytes_per_s: rates.and_then(|rates| Some(bytes? * per_s(&rates))),
            blocks_per_s: rates.map(|rates| per_s(&rates)),
            lower: bound(|of| of.lower),
            upper: bound(|of| of.upper),
            source: "kv_events",
            file: file.to_owned(),
        });
    }
    reports.contention.extend(fit.contention.map(|of| ContentionReport {
        factor: of.value,
        lower: of.lower,
        upper: of.upper,
        file: file.to_owned(),
    }));
    reports.faults.push(TransferFaultsReport { file: file.to_owned(), faults: log.faults });
    Ok(())
}

/// The report on the sums of a direction; `None` without copies.
fn of_copies(file: &str, is_log: bool, direction: Direction, sums: &[CopySums]) -> Result<Option<TransferReport>> {
    let count = sums.iter().fold(0, |sum: u64, of| sum.saturating_add(of.count));
    if count == 0 {
        return Ok(None);
    }
    let bytes: f64 = sums.iter().map(|of| of.bytes as f64).sum();
    let seconds: f64 = sums.iter().map(|of| of.seconds).sum();
    let rates = fit_copies(sums)?;
    let bound = |of: fn(&Estimate) -> f64| {
        rates.as_ref().map(|(latency, bandwidth)| RateBounds {
            latency_us: of(latency),
            bytes_per_s: Some(of(bandwidth)),
            blocks_per_s: None,
        })
    };
    let is_timed = seconds > 0.0;
    Ok(Some(TransferReport {
        direction,
        count,
        failed: 0,
        fitted: if rates.is_some() { count } else { 0 },
        blocks: None,
        bytes: Some(bytes),
        median_time_us: None,
        mean_time_us: is_timed.then(|| seconds / count as f64 * US_PER_S),
        mean_bytes_per_s: is_timed.then(|| bytes / seconds),
        latency_us: rates.map(|(latency, _)| latency.value),
        bytes_per_s: rates.map(|(_, bandwidth)| bandwidth.value),
        blocks_per_s: None,
        lower: bound(|of| of.lower),
        upper: bound(|of| of.upper),
        source: if is_log { "log" } else { "metrics" },
        file: file.to_owned(),
    }))
}

/// Takes the rates of the file that determines both directions from the most transfers; events count more than sums of copies. The second value is a
/// remark where the contention is assumed.
///
/// # Errors
/// `ErrorKind::Invalid` if no file determines the rates of both directions in bytes.
pub fn known_rates(
    transfers: &[TransferReport],
    contention: &[ContentionReport],
) -> Result<(KvTransfers, Option<String>)> {
    let find = |file: &str, source: &str, direction: Direction| {
        let is_it = |of: &&TransferReport| of.file == file && of.source == source && of.direction == direction;
        let of = transfers.iter().find(is_it)?;
        Some((TransferLink { latency_us: of.latency_us?, bytes_per_s: of.bytes_per_s? }, of.fitted))
    };
    let both = transfers.iter().filter_map(|of| {
        let (gpu_to_cpu, stores) = find(&of.file, of.source, Direction::GpuToCpu)?;
        let (cpu_to_gpu, loads) = find(&of.file, of.source, Direction::CpuToGpu)?;
        Some((of.source == "kv_events", stores + loads, &of.file, gpu_to_cpu, cpu_to_gpu))
    });
    let Some((_, _, file, gpu_to_cpu, cpu_to_gpu)) = both.max_by_key(|of| (of.0, of.1)) else {
        let reason = |direction: Direction| {
            let of = || transfers.iter().filter(move |of| of.direction == direction);
            let name = direction.name();
            match () {
                () if of().next().is_none() => format!("there are no transfers {name}"),
                () if of().any(|of| of.bytes_per_s.is_some()) => format!("{name} is known"),
                () if of().any(|of| of.blocks_per_s.is_some()) => {
                    format!("the bytes of a block {name} are not known")
                }
                () => format!("the transfers {name} do not determine latency and bandwidth"),
            }
        };
        let problem = format!(
            "no file determines the rates of both directions: {} and {}; capture a run that stores and loads blocks of several sizes",
            reason(Direction::GpuToCpu),
            reason(Direction::CpuToGpu)
        );
        return Err(Error::invalid("rates of transfers", vec![problem]));
    };
    let known = contention.iter().find(|of| of.file == *file).map(|of| of.factor);
    let note = known.is_none().then(|| {
            format!("{file}: both directions hardly ever run at once: contention 1, which is none, is assumed in the rates of transfers")
        });
    Ok((
        KvTransfers { gpu_to_cpu, cpu_to_gpu, contention: known.unwrap_or(1.0), cpu_to_disk: None, disk_to_cpu: None },
        note,
    ))
}
