//! The series of a replay: quantiles of its latencies, and its queue over time.

use ridgepoint::units::{NS_PER_S, ns_to_ms};
use ridgepoint_lab::stats::quantile;
use ridgepoint_replay::{Event, Events, Observer, Outcome, Replay, RequestRecord};
use schemars::JsonSchema;
use serde::Serialize;

/// Most points of a timeline.
const MOST_POINTS: usize = 400;

/// Quantiles and the queue over time.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Series {
    /// Time to first token at 0, 1, … 100 % of the finished requests, ms.
    ttft_ms: Vec<f64>,
    /// Gaps between tokens, ms.
    itl_ms: Vec<f64>,
    /// Time per output token of the requests with several, ms.
    tpot_ms: Vec<f64>,
    /// Time to the last token, ms.
    e2e_ms: Vec<f64>,
    /// The queue over time; at most 400 points.
    timeline: Vec<Point>,
}

/// Some steps that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
struct Point {
    /// Start of the first of them, s.
    t_s: f64,
    /// Most running requests.
    running: u32,
    /// Most waiting requests.
    waiting: u32,
    /// Largest share of the KV blocks in use.
    kv_used: f64,
}

/// An observer that keeps the queue over time. If there are too many points, each covers twice as many steps.
#[derive(Debug)]
pub struct Timeline {
    usable_blocks: f64,
    points: Vec<Point>,
    /// Steps of a point, and those of the last one so far.
    stride: u64,
    in_last: u64,
}

impl Timeline {
    /// Keeps the steps of an engine with so many blocks for requests.
    pub fn new(usable_blocks: u32) -> Self {
        Timeline { usable_blocks: f64::from(usable_blocks.max(1)), points: Vec::new(), stride: 1, in_last: 0 }
    }
}

impl Point {
    fn joined(self, next: Point) -> Point {
        Point {
            t_s: self.t_s,
            running: self.running.max(next.running),
            waiting: self.waiting.max(next.waiting),
            kv_used: self.kv_used.max(next.kv_used),
        }
    }
}

impl Observer for Timeline {
    fn wants(&self) -> Events {
        Events::STEPS
    }

    fn on(&mut self, event: &Event<'_>) {
        let Event::Step(event) = event else { return };
        let point = Point {
            t_s: event.start_ns as f64 / NS_PER_S as f64,
            running: event.num_running,
            waiting: event.num_waiting,
            kv_used: f64::from(event.blocks_in_use) / self.usable_blocks,
        };
        match self.points.last_mut() {
            Some(last) if self.in_last < self.stride => {
                *last = last.joined(point);
                self.in_last += 1;
            }
            _ => {
                if self.points.len() == MOST_POINTS {
                    let pairs = self.points.chunks(2);
                    self.points = pairs.filter_map(|pair| pair.iter().copied().reduce(Point::joined)).collect();
                    self.stride *= 2;
                }
                self.points.push(point);
                self.in_last = 1;
            }
        }
    }
}

impl Series {
    /// The series of a replay that `timeline` watched.
    pub fn new(replay: &Replay, timeline: Timeline) -> Self {
        let finished = || replay.records.iter().filter(|record| record.outcome == Outcome::Finished);
        Series {
            ttft_ms: quantiles(finished().map(RequestRecord::ttft_ms).collect()),
            itl_ms: gap_quantiles(replay),
            tpot_ms: quantiles(finished().filter_map(RequestRecord::tpot_ms).collect()),
            e2e_ms: quantiles(finished().map(RequestRecord::e2e_ms).collect()),
            timeline: timeline.points,
        }
    }
}

/// Quantiles at 0, 1, … 100 %, by linear interpolation between ranks; none without values.
fn quantiles(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    (0..=100).filter_map(|percent| quantile(&values, f64::from(percent) / 100.0)).collect()
}

/// The same of the gaps between tokens, of which a replay keeps histograms with three significant digits.
fn gap_quantiles(replay: &Replay) -> Vec<f64> {
    let mut recorded = replay.inter_token_ns.iter().filter(|histogram| !histogram.is_empty());
    let Some(mut all) = recorded.next().cloned() else { return Vec::new() };
    for histogram in recorded {
        // Histograms of one replay have the same range.
        let _ = all.add(histogram);
    }
    (0..=100).map(|percent| ns_to_ms(all.value_at_quantile(f64::from(percent) / 100.0))).collect()
}

#[cfg(test)]
mod tests {
    use ridgepoint::{Request, Step};
    use ridgepoint_replay::StepEvent;

    use super::*;

    #[test]
    fn quantiles_interpolate_between_ranks() {
        let of = quantiles(vec![30.0, 10.0, 20.0]);
        assert_eq!((of.len(), of[0], of[50], of[100]), (101, 10.0, 20.0, 30.0));
        // 25 % of the two gaps is rank 0.5.
        assert!((of[25] - 15.0).abs() < 1e-9);
        assert_eq!(quantiles(vec![7.0]), vec![7.0; 101]);
        assert!(quantiles(Vec::new()).is_empty());
    }

    #[test]
    fn a_long_timeline_keeps_its_peaks_in_few_points() {
        let mut timeline = Timeline::new(100);
        for index in 0..10_000 {
            timeline.on(&Event::Step(StepEvent {
                index,
                scheduled_ns: 0,
                start_ns: index * 1_000_000,
                end_ns: 0,
                step: Step::from(&[Request::decode(1)]),
                records: &[0],
                num_running: 1,
                num_waiting: if index == 7_777 { 9 } else { 0 },
                blocks_in_use: 50,
                cached_tokens: 0,
                preempted: &[],
            }));
        }
        let points = &timeline.points;
        assert!((200..=400).contains(&points.len()), "{}", points.len());
        assert_eq!(points.iter().map(|point| point.waiting).max(), Some(9));
        let peak = points.iter().rposition(|point| point.t_s <= 7.777).unwrap();
        assert_eq!((points[peak].waiting, points[peak].kv_used, points[0].t_s), (9, 0.5, 0.0));
        assert!(points.is_sorted_by(|one, next| one.t_s < next.t_s));
    }
}
