//! Counts KV events: by name and medium, transfers by direction, and hash chains that disagree.

use std::collections::{BTreeMap, HashMap};

use super::event::Batch;
use crate::ingest::kv_counts::{EventCount, KvEvents, Transfer};
use crate::stats::median;

/// Most transfers under way whose beginning is remembered.
const MOST_OPEN: usize = 1 << 20;

/// The counts of a file so far.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Tally {
    counts: BTreeMap<(String, Option<String>), EventCount>,
    directions: BTreeMap<String, Direction>,
    /// When transfers began, by id.
    open: HashMap<u64, f64>,
    /// The parent of each block.
    parents: HashMap<u64, Option<u64>>,
    found: KvEvents,
    first_s: Option<f64>,
}

#[derive(Debug, Default)]
struct Direction {
    blocks: u64,
    count: u64,
    failed: u64,
    latencies_us: Vec<f64>,
}

impl Tally {
    /// Adds a batch.
    pub(in crate::ingest) fn add(&mut self, batch: Batch<'_>) {
        const US_PER_S: f64 = ridgepoint::internals::units::US_PER_S;
        self.found.batches += 1;
        let first_s = *self.first_s.get_or_insert(batch.seconds);
        self.found.duration_s = self.found.duration_s.max(batch.seconds - first_s);
        for event in batch.events {
            let key = (event.name.to_owned(), event.medium.map(str::to_owned));
            let count = self.counts.entry(key).or_default();
            count.count += 1;
            count.blocks = count.blocks.saturating_add(event.num_blocks);
            count.tokens += event.num_tokens;
            match (event.name, event.transfer) {
                ("BlockStored", _) => self.store(event.parent, &event.hashes),
                ("TransferInitiated", Some((id, ..))) if self.open.len() < MOST_OPEN => {
                    self.open.insert(id, batch.seconds);
                }
                ("TransferCompleted", Some((id, from, to))) => {
                    let direction = self.directions.entry(format!("{from}->{to}")).or_default();
                    direction.count += 1;
                    direction.blocks = direction.blocks.saturating_add(event.num_blocks);
                    direction.failed += u64::from(event.has_failed);
                    match self.open.remove(&id) {
                        Some(since_s) if batch.seconds >= since_s => {
                            direction.latencies_us.push((batch.seconds - since_s) * US_PER_S);
                        }
                        _ => self.found.transfers_without_beginning += 1,
                    }
                }
                _ => {}
            }
        }
    }

    /// Follows a chain of hashes, each of which is the parent of the next.
    fn store(&mut self, parent: Option<u64>, hashes: &[u64]) {
        if parent.is_some_and(|parent| !self.parents.contains_key(&parent)) {
            self.found.unknown_parents += 1;
        }
        let mut parent = parent;
        for hash in hashes {
            let known = self.parents.entry(*hash).or_insert(parent);
            self.found.other_parents += u64::from(*known != parent);
            parent = Some(*hash);
        }
    }

    /// Counts batches that are missing between two numbers.
    pub(super) fn add_lost(&mut self, batches: u64) {
        self.found.lost_batches = self.found.lost_batches.saturating_add(batches);
    }

    /// The counts, and the transfers by direction.
    pub(in crate::ingest) fn finish(self) -> (KvEvents, Vec<Transfer>) {
        let events = self.counts.into_iter().map(|((event, medium), count)| EventCount { event, medium, ..count });
        let transfer = |(direction, of): (String, Direction)| Transfer {
            direction,
            count: of.count,
            blocks: Some(of.blocks),
            failed: of.failed,
            latency_us: median(of.latencies_us),
            ..Transfer::default()
        };
        let transfers = self.directions.into_iter().map(transfer).collect();
        let unfinished_transfers = self.open.len() as u64;
        (KvEvents { events: events.collect(), unfinished_transfers, ..self.found }, transfers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::batch;
    use super::*;
    use crate::ingest::unknown_names::UnknownNames;
    use serde_json::{Value, json};

    fn tally(batches: &[Value]) -> (KvEvents, Vec<Transfer>) {
        let mut tally = Tally::default();
        batches.iter().for_each(|value| tally.add(batch(value, &mut UnknownNames::default()).unwrap()));
        tally.finish()
    }

    #[test]
    fn transfers_are_timed_from_their_beginning() {
        let begun = |id: &str| json!(["TransferInitiated", id, "r", "GPU", "CPU", 4, 7]);
        let done = |id: &str, success: bool| json!(["TransferCompleted", id, "r", "GPU", "CPU", 4, success, 9]);
        let (found, transfers) = tally(&[
            json!([10.0, [begun("a"), begun("b"), begun("c")]]),
            json!([10.25, [done("a", true), done("x", true)]]),
            json!([10.75, [done("b", false)]]),
        ]);
        assert_eq!(transfers.len(), 1);
        let Transfer { direction, count, blocks, failed, latency_us, .. } = &transfers[0];
        assert_eq!((direction.as_str(), *count, *blocks, *failed), ("GPU->CPU", 3, Some(12), 1));
        // 250 and 750 ms.
        assert_eq!(*latency_us, Some(500_000.0));
        assert_eq!((found.unfinished_transfers, found.transfers_without_beginning), (1, 1));
        assert_eq!((found.batches, found.duration_s), (3, 0.75));
    }

    #[test]
    fn chains_that_disagree_are_counted() {
        let stored = |hashes: &[u64], parent: Option<u64>| json!(["BlockStored", hashes, parent, [], 16, null, "GPU"]);
        let (found, _) = tally(&[json!([
            1.0,
            [
                stored(&[1, 2], None),
                // Known, as is the same chain once more.
                stored(&[3], Some(2)),
                stored(&[2, 3], Some(1)),
                // A parent that was never stored.
                stored(&[5], Some(4)),
                // Another parent for 3.
                stored(&[3], Some(1)),
            ]
        ])]);
        assert_eq!((found.unknown_parents, found.other_parents), (1, 1));
        assert_eq!((found.events[0].count, found.events[0].blocks), (5, 7));
    }
}
