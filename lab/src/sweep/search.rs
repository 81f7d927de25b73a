//! The highest rate of a configuration within its limits: rates are judged by long loads over several seeds.

use std::cell::Cell;

use rayon::prelude::*;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint_replay::{EngineConfig, Observer, QueueTrend, Replay, Resource, ResourceSampler, Spread, SpreadSampler};

use super::capacity::{Capacity, Judged, first_guess, highest_holding};
use super::load::LoadPoint;
use super::point::Point;
use super::row::{LOWEST_RATE_FAILS, Row};
use super::slo::{Judgement, QUEUE, Slo};

/// The lengths of the loads that rates are judged by, requests, with the number of seeds: the next one where the one before leaves a doubt.
const LENGTHS: [(u64, u64); 2] = [(5_000, 4), (20_000, 6)];
/// Requests of a load that probes, for each replica.
const PROBED_REQUESTS: u64 = 500;
/// More replicas than these share a load that is as many times as long.
const MOST_TIMES_LONGER: u32 = 16;
/// The precision of a first search, after which a doubt may show.
const FIRST_PRECISION: f64 = 0.05;
/// A figure of the longest load that is within this share of a shorter one's confirms it.
const SAME: f64 = 0.005;
/// A first guess comes from loads of at most so many requests.
const SHORT_REQUESTS: u64 = 2_000;
/// A rate whose first seed scores more fails whatever the others do.
const HOPELESS: f64 = 0.06;
/// Chunks of at most so many tokens do not make gaps long.
const SHORT_CHUNK: u64 = 1_024;
/// The bracket of a search begins at this share of the rate that the server does under more load than it can take.
const FIRST_GUESS: f64 = 0.7;

/// The lengths that `replicas` share, requests, with the number of seeds.
fn lengths(replicas: u32) -> [(u64, u64); 2] {
    LENGTHS.map(|(length, seeds)| (length * u64::from(replicas.min(MOST_TIMES_LONGER)), seeds))
}

/// The longest load that a search replays on so many replicas, and the most seeds of it at once.
pub(super) fn largest(load: &LoadPoint, replicas: u32) -> (LoadPoint, usize) {
    let (length, seeds) = lengths(replicas).into_iter().fold((0, 0), |most, of| most.max(of));
    (load.with_requests(|given| given.max(length)), usize::try_from(seeds).unwrap_or(usize::MAX))
}

/// A search for the highest rate of a configuration.
pub(super) struct Search<'a> {
    pub(super) point: &'a Point<'a>,
    pub(super) slo: &'a Slo,
    /// The columns that are known before anything runs.
    pub(super) row: &'a Row,
    pub(super) latency: &'a CalibratedRoofline,
    pub(super) config: &'a EngineConfig,
}

/// The seeds of a load at a rate. Their replays are dropped, so that no more of them are held than run at once.
#[derive(Default)]
struct Seeds {
    /// Their rows, and how uncertain the figures are.
    rows: Vec<(Row, Spread)>,
    trends: Vec<QueueTrend>,
}

/// A rate that was judged.
pub(super) struct JudgedRate {
    /// The means of its replays.
    pub(super) row: Row,
    pub(super) judgement: Judgement,
}

impl Search<'_> {
    /// The row of the highest rate that holds; of the lowest rate if that fails.
    pub(super) fn highest_rate(&self) -> Result<Row, String> {
        let range = (self.slo.lowest_rate_per_s, self.slo.highest_rate_per_s);
        let replays = Cell::new(0);
        let mut start = self.guessed(range, SHORT_REQUESTS, &mut |_, _| replays.set(replays.get() + 1))?;
        let search = |load: &LoadPoint, seeds: u64, precision: f64, start: f64| {
            highest_holding(range, precision, start, |rate_per_s| {
                let judged = self.judged(load, seeds, rate_per_s)?;
                replays.set(replays.get() + judged.row.replays);
                Ok::<_, String>(Judged { score: judged.judgement.score(), seen: judged })
            })
        };
        let precision = self.slo.precision;
        let [(shorter, few), (longer, more)] = self.loads();
        if shorter != longer && self.point.grid.source.is_drawn() {
            let mut found = search(&shorter, few, precision.max(FIRST_PRECISION), start)?;
            start = found.near().unwrap_or(start);
            if is_sure(&found) {
                if precision < FIRST_PRECISION {
                    found = search(&shorter, few, precision, start)?;
                }
                start = found.near().unwrap_or(start);
                replays.set(replays.get() + 1);
                if is_sure(&found) && self.is_confirmed(&found, &longer)? {
                    return self.row_of(found, &shorter, replays.get());
                }
            }
        }
        let found = search(&longer, more, precision, start)?;
        self.row_of(found, &longer, replays.get())
    }

    /// The highest rate that holds from one that does up to so many times it, by the shorter loads, and whether no higher one was tried.
    pub(super) fn highest_from(&self, rate_per_s: f64, times: f64) -> Result<(f64, bool), String> {
        let [(shorter, few), _] = self.loads();
        let range = (rate_per_s, times * rate_per_s);
        let start = self.guessed(range, SHORT_REQUESTS, &mut |_, _| ())?;
        let found = highest_holding(range, self.slo.precision.max(FIRST_PRECISION), start, |rate_per_s| {
            let judged = self.judged(&shorter, few, rate_per_s)?;
            Ok::<_, String>(Judged { score: judged.judgement.score(), seen: () })
        })?;
        Ok((found.holds.map_or(rate_per_s, |(rate_per_s, ())| rate_per_s), found.fails.is_none()))
    }

    /// The highest rate that short loads find, of at most so many requests; the lowest of the range if even that fails. `judged` gets each
    /// probe.
    pub(super) fn guessed(
        &self,
        range: (f64, f64),
        num_requests: u64,
        judged: &mut dyn FnMut(f64, &JudgedRate),
    ) -> Result<f64, String> {
        let short = self.point.configuration.load.value.with_requests(|number| number.min(num_requests));
        first_guess(range, |rate_per_s| {
            let found = self.judgement(&self.seed(&short, rate_per_s)?);
            judged(rate_per_s, &found);
            let JudgedRate { row, judgement } = found;
            // The rate of sessions is that of their first turns.
            let done_per_s = row.requests_per_s.map(|rate| FIRST_GUESS * rate / row.turns.unwrap_or(1) as f64);
            Ok((judgement.score(), done_per_s))
        })
    }

    /// The score of a rate by one short load of so many replicas.
    pub(super) fn probed(&self, rate_per_s: f64, replicas: u32) -> Result<f64, String> {
        let most = PROBED_REQUESTS * u64::from(replicas.min(MOST_TIMES_LONGER));
        let short = self.point.configuration.load.value.with_requests(|_| most);
        Ok(self.judgement(&self.seed(&short, rate_per_s)?).judgement.score())
    }

    /// Judges one rate as a search does: by the shorter loads where they leave no doubt, else by the longer ones. With the load that
    /// decided.
    pub(super) fn judged_at(&self, rate_per_s: f64) -> Result<(JudgedRate, LoadPoint), String> {
        let [(shorter, few), (longer, more)] = self.loads();
        if shorter != longer && self.point.grid.source.is_drawn() {
            let judged = self.judged(&shorter, few, rate_per_s)?;
            let score = judged.judgement.score();
            let is_sure = score < -FIRST_PRECISION && judged.judgement.is_narrow();
            if score > HOPELESS || (is_sure && self.has_figures_of(&judged, rate_per_s, &longer)?) {
                return Ok((judged, shorter));
            }
        }
        Ok((self.judged(&longer, more, rate_per_s)?, longer))
    }

    /// The loads that rates are judged by, with the number of seeds.
    fn loads(&self) -> [(LoadPoint, u64); 2] {
        let given = &self.point.configuration.load.value;
        lengths(self.point.sharing().replicas())
            .map(|(length, seeds)| (given.with_requests(|number| number.max(length)), seeds))
    }

    /// Whether a longer load has the figures that a rate was found to hold by.
    fn is_confirmed(&self, found: &Capacity<JudgedRate>, longer: &LoadPoint) -> Result<bool, String> {
        let Some((rate_per_s, judged)) = &found.holds else { return Ok(false) };
        self.has_figures_of(judged, *rate_per_s, longer)
    }

    /// Whether a longer load at a rate has the figures of another one.
    fn has_figures_of(&self, of: &JudgedRate, rate_per_s: f64, longer: &LoadPoint) -> Result<bool, String> {
        let seen = self.seed(longer, rate_per_s)?;
        Ok(self.judgement(&seen).judgement.is_within(&of.judgement, SAME))
    }

    /// The row of what a search found with a load.
    fn row_of(&self, found: Capacity<JudgedRate>, load: &LoadPoint, replays: u64) -> Result<Row, String> {
        let Slo { lowest_rate_per_s: lowest, highest_rate_per_s: highest, .. } = self.slo;
        let (status, reason) = match (&found.holds, &found.fails) {
            (None, Some((_, failed))) => {
                let broken = failed.judgement.broken().unwrap_or_default();
                (LOWEST_RATE_FAILS, Some(format!("at lowest_rate_per_s = {lowest}: {broken}")))
            }
            (_, None) => ("highest_rate_holds", Some(format!("the limits hold at highest_rate_per_s = {highest}"))),
            _ => ("ok", None),
        };
        let rate_per_s = found.holds.as_ref().map(|(rate_per_s, _)| *rate_per_s);
        let fails = found.fails.as_ref().map(|(rate_per_s, judged)| (*rate_per_s, judged.judgement.broken()));
        let binds = found.fails.as_ref().map(|(_, judged)| judged.judgement.binds().to_owned());
        let (at_per_s, JudgedRate { row, judgement }) = found.holds.or(found.fails).ok_or("no rate was tried")?;
        let mut row = Row { status: status.to_owned(), reason, replays, ..row };
        if let Some(binds) = &binds {
            row.resource = self.resource(load, at_per_s, binds)?;
            row.replays += 1;
            row.margin_pct = rate_per_s.and(judgement.margin_pct(binds));
            row.warn(long_chunks(binds, row.max_num_batched_tokens));
        }
        row.binds = binds;
        row.margins = rate_per_s.map(|_| judgement.margins());
        row.fails_at_rate_per_s = fails.as_ref().map(|(rate_per_s, _)| *rate_per_s);
        row.limits_broken = fails.and_then(|(_, broken)| broken);
        row.num_requests = self.point.grid.source.num_requests(load);
        row.set_rate(rate_per_s);
        Ok(row)
    }

    /// Judges a rate over all seeds; over one if that leaves no doubt, or if the requests are those of a file.
    fn judged(&self, load: &LoadPoint, seeds: u64, rate_per_s: f64) -> Result<JudgedRate, String> {
        let mut seen = self.seed(load, rate_per_s)?;
        let alone = self.judgement(&seen);
        if !self.point.grid.source.is_drawn() || alone.judgement.score() > HOPELESS {
            return Ok(alone);
        }
        let of_seed = |of: u64| self.seed(&LoadPoint { seed: load.seed.wrapping_add(of), ..*load }, rate_per_s);
        let others: Result<Vec<Seeds>, String> = (1..seeds).into_par_iter().map(of_seed).collect();
        for Seeds { rows, trends } in others? {
            seen.rows.extend(rows);
            seen.trends.extend(trends);
        }
        Ok(self.judgement(&seen))
    }

    /// Replays one seed of a load.
    fn seed(&self, load: &LoadPoint, rate_per_s: f64) -> Result<Seeds, String> {
        let mut sampler = SpreadSampler::new(self.latency.steps());
        let watching: &mut [&mut dyn Observer] = if self.slo.has_confidence() { &mut [&mut sampler] } else { &mut [] };
        let (load, rate_per_s) = load.sent_at(rate_per_s);
        let seen = self.point.replayed(self.row, self.latency, self.config, &load, rate_per_s, watching)?;
        Ok(Seeds { rows: vec![(seen.row, sampler.spread())], trends: seen.trend.into_iter().collect() })
    }

    fn judgement(&self, of: &Seeds) -> JudgedRate {
        let trend = QueueTrend::of_all(&of.trends);
        let judgement = self.slo.judged(&of.rows, trend.as_ref());
        let mut row = Row::mean_of(of.rows.iter().map(|(row, _)| row)).unwrap_or_default();
        row.replays = of.rows.len() as u64;
        row.seeds = Some(row.replays);
        row.set_state(trend.map(|trend| trend.state()));
        JudgedRate { row, judgement }
    }

    /// The resource behind what binds.
    fn resource(&self, load: &LoadPoint, rate_per_s: f64, binds: &str) -> Result<Option<Resource>, String> {
        let mut sampler = ResourceSampler::new(self.latency.steps(), self.config);
        let watching: &mut [&mut dyn Observer] = &mut [&mut sampler];
        let (load, rate_per_s) = load.sent_at(rate_per_s);
        let replay = self.point.replayed(self.row, self.latency, self.config, &load, rate_per_s, watching)?.replay;
        Ok(behind(&sampler, &replay, binds))
    }
}

/// The resource behind a limit, or the queue.
pub(super) fn behind(sampler: &ResourceSampler<'_>, replay: &Replay, binds: &str) -> Option<Resource> {
    match binds {
        QUEUE => sampler.behind_waiting(),
        _ if binds.starts_with("ttft") || binds.starts_with("e2e") => sampler.behind_ttft(replay),
        _ => sampler.behind_steps(),
    }
}

/// Whether the seeds of a rate that holds agree, and a limit is what fails above it.
fn is_sure(found: &Capacity<JudgedRate>) -> bool {
    let queue_fails = found.fails.as_ref().is_some_and(|(_, failed)| failed.judgement.binds() == QUEUE);
    !queue_fails && found.holds.as_ref().is_some_and(|(_, held)| held.judgement.is_narrow())
}

/// A remark on gaps that chunks of prompts make long.
fn long_chunks(binds: &str, max_num_batched_tokens: u64) -> Option<String> {
    let makes_gaps = binds.starts_with("itl_p") && max_num_batched_tokens > SHORT_CHUNK;
    makes_gaps.then(|| {
        format!(
            "{binds} binds: the longest gaps are steps with a chunk of a prompt, of up to max_num_batched_tokens = {max_num_batched_tokens}; \
             fewer make them shorter"
        )
    })
}
