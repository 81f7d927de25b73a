//! Pairs the two events of each transfer by its id.

use std::collections::{BTreeMap, HashMap, HashSet};

use ridgepoint::units::US_PER_S;

use super::faults::TransferFaults;
use super::log::{DirectionLog, TransferLog};
use crate::transfers::{Direction, Notice, Notices, PairedTransfer};

/// Most transfers that are remembered by their id, under way or completed.
const MOST_IDS: usize = 1 << 20;

/// Width of an end that is exact, µs: times of day in seconds have steps of 0.24 µs.
const EXACT_US: f64 = 1.0;

/// An event of a transfer.
#[derive(Debug, Clone, Copy)]
pub(in crate::ingest) struct TransferEvent<'e> {
    pub(in crate::ingest) id: u64,
    pub(in crate::ingest) from: &'e str,
    pub(in crate::ingest) to: &'e str,
    /// `None` where the event does not report them.
    pub(in crate::ingest) blocks: Option<u64>,
    pub(in crate::ingest) step: Option<u64>,
    pub(in crate::ingest) has_failed: bool,
    /// Whether its time is that of the copy, not of the step that noticed it.
    pub(in crate::ingest) is_exact: bool,
}

impl<'e> TransferEvent<'e> {
    /// An event with what every event of a transfer reports; `None` if one of them is missing.
    pub(in crate::ingest) fn new(id: Option<u64>, from: Option<&'e str>, to: Option<&'e str>) -> Option<Self> {
        let (id, from, to) = (id?, from?, to?);
        Some(TransferEvent { id, from, to, blocks: None, step: None, has_failed: false, is_exact: false })
    }
}

/// A transfer under way.
#[derive(Debug, Clone, Copy)]
struct Open {
    direction: Direction,
    blocks: Option<u64>,
    begun: Notice,
    /// How often its id was begun again.
    again: u64,
}

/// A transfer with both events.
#[derive(Debug, Clone, Copy)]
struct Pair {
    direction: Direction,
    blocks: u64,
    begun: Notice,
    noticed: Notice,
    is_exact: bool,
    is_fitted: bool,
}

/// The transfers of a file so far.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Pairing {
    open: HashMap<u64, Open>,
    completed: HashSet<u64>,
    pairs: Vec<Pair>,
    notices: Vec<Notice>,
    directions: [DirectionLog; 2],
    other_media: BTreeMap<String, u64>,
    faults: TransferFaults,
    /// Time of the first batch, from which all times count: seconds since 1970 lose digits as microseconds.
    first_s: Option<f64>,
}

impl Pairing {
    /// Takes the time of a batch, at which ended transfers are noticed.
    pub(in crate::ingest) fn add_notice(&mut self, seconds: f64, step: Option<u64>) {
        let notice = self.notice(seconds, step);
        // A file without transfers needs none of the earlier ones.
        if self.open.is_empty() && self.pairs.is_empty() {
            self.notices.clear();
        }
        self.notices.push(notice);
    }

    fn notice(&mut self, seconds: f64, step: Option<u64>) -> Notice {
        let first_s = *self.first_s.get_or_insert(seconds);
        Notice { at_us: (seconds - first_s) * US_PER_S, step }
    }

    /// Counts an event of a transfer that lacks what a pair needs.
    pub(in crate::ingest) fn add_incomplete(&mut self) {
        self.faults.incomplete += 1;
    }

    /// Takes the beginning of a transfer.
    pub(in crate::ingest) fn begin(&mut self, event: TransferEvent<'_>, seconds: Option<f64>) {
        let Some((direction, begun)) = self.sound(event, seconds) else { return };
        if let Some(open) = self.open.get_mut(&event.id) {
            open.again += 1;
            self.faults.doubled_ids += 1;
        } else if self.open.len() < MOST_IDS {
            self.open.insert(event.id, Open { direction, blocks: event.blocks, begun, again: 0 });
        }
    }

    /// Takes the end of a transfer.
    pub(in crate::ingest) fn complete(&mut self, event: TransferEvent<'_>, seconds: Option<f64>) {
        let Some((direction, noticed)) = self.sound(event, seconds) else { return };
        if let Some(of) = self.directions.get_mut(direction as usize) {
            of.count += 1;
            of.failed += u64::from(event.has_failed);
            of.blocks = of.blocks.saturating_add(event.blocks.unwrap_or(0));
        }
        self.faults.failed += u64::from(event.has_failed);
        let Some(open) = self.open.get_mut(&event.id) else {
            let is_doubled = self.completed.contains(&event.id);
            let count = if is_doubled { &mut self.faults.doubled_ids } else { &mut self.faults.without_begin };
            *count += 1;
            return;
        };
        if open.again > 0 {
            // Which beginning it ends is not known.
            open.again -= 1;
            self.faults.doubled_ids += 1;
            return;
        }
        let open = *open;
        self.open.remove(&event.id);
        if self.completed.len() < MOST_IDS {
            self.completed.insert(event.id);
        }
        self.pair(direction, &open, noticed, event);
    }

    fn pair(&mut self, direction: Direction, open: &Open, noticed: Notice, event: TransferEvent<'_>) {
        let (begun, faults) = (open.begun, &mut self.faults);
        let blocks = event.blocks.or(open.blocks).unwrap_or(0);
        let differs = open.blocks.is_some_and(|before| before != blocks) || open.direction != direction;
        let fault = match () {
            () if differs => &mut faults.contradictory,
            () if noticed.at_us < begun.at_us => &mut faults.end_before_begin,
            () if noticed.step < begun.step && noticed.step.is_some() => &mut faults.steps_backwards,
            () if noticed.at_us <= begun.at_us => &mut faults.within_a_step,
            () => {
                faults.without_blocks += u64::from(blocks == 0);
                let is_fitted = blocks > 0 && !event.has_failed;
                return self.pairs.push(Pair {
                    direction,
                    blocks,
                    begun,
                    noticed,
                    is_exact: event.is_exact,
                    is_fitted,
                });
            }
        };
        *fault += 1;
    }

    /// The direction and the time of an event; `None` where one is of no use, which is counted.
    fn sound(&mut self, event: TransferEvent<'_>, seconds: Option<f64>) -> Option<(Direction, Notice)> {
        let Some(direction) = Direction::between(event.from, event.to) else {
            self.faults.other_media += 1;
            // Names of media come from the file, so their number has a limit.
            let name = format!(
                "{}->{}",
                ridgepoint::unstable::error::cut(event.from),
                ridgepoint::unstable::error::cut(event.to)
            );
            if self.other_media.len() < 16 || self.other_media.contains_key(&name) {
                *self.other_media.entry(name).or_default() += 1;
            }
            return None;
        };
        let Some(seconds) = seconds else {
            self.faults.without_time += 1;
            return None;
        };
        Some((direction, self.notice(seconds, event.step)))
    }

    /// The transfers; `None` where the file has none.
    pub(in crate::ingest) fn finish(mut self) -> Option<TransferLog> {
        self.faults.without_end = self.open.values().map(|open| 1 + open.again).sum();
        let is_numbered = self.notices.iter().all(|of| of.step.is_some());
        let notices = Notices::new(self.notices);
        let paired = |of: &Pair| {
            let (at_us, half_us) = (of.noticed.at_us, 0.5 * EXACT_US);
            let ((unfinished_us, unfinished_sd_us), noticed_us) = if of.is_exact {
                ((at_us - half_us, 0.0), at_us + half_us)
            } else {
                (notices.before(of.noticed), at_us)
            };
            PairedTransfer {
                direction: of.direction,
                begun_us: of.begun.at_us,
                unfinished_us: unfinished_us.max(of.begun.at_us),
                unfinished_sd_us,
                noticed_us,
                blocks: of.blocks,
                is_fitted: of.is_fitted,
            }
        };
        let transfers: Vec<PairedTransfer> = self.pairs.iter().map(paired).collect();
        let is_empty = self.faults == TransferFaults::default() && self.directions.iter().all(|of| of.count == 0);
        (!is_empty).then(|| TransferLog {
            transfers,
            directions: self.directions,
            other_media: self.other_media,
            faults: self.faults,
            is_numbered,
            ..TransferLog::default()
        })
    }
}
