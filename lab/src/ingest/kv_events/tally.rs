//! Counts KV events: by name and medium, transfers in pairs, blocks that return from the CPU, and hash chains that disagree.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::event::EventBatch;
use crate::ingest::hash_chains::HashChains;
use crate::ingest::kv_counts::{EventCount, KvEvents};
use crate::ingest::kv_transfers::{Pairing, TransferEvent, TransferLog};

/// Most sizes of blocks that are distinguished; a server has one.
const MOST_BLOCK_SIZES: usize = 16;

/// The counts of a file so far.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Tally {
    counts: BTreeMap<(String, Option<String>), EventCount>,
    pairing: Pairing,
    chains: HashChains,
    /// Blocks that the CPU holds.
    on_cpu: HashSet<u64>,
    block_sizes: BTreeSet<u64>,
    found: KvEvents,
    first_s: Option<f64>,
    last_s: Option<f64>,
}

impl Tally {
    /// Adds a batch.
    pub(in crate::ingest) fn add(&mut self, batch: EventBatch<'_>) {
        self.found.batches += 1;
        if let Some(seconds) = batch.seconds {
            let first_s = *self.first_s.get_or_insert(seconds);
            self.found.duration_s = self.found.duration_s.max(seconds - first_s);
            self.found.batches_back_in_time += u64::from(self.last_s.is_some_and(|last_s| seconds < last_s));
            self.last_s = Some(seconds);
            self.pairing.add_notice(seconds, batch.step);
        }
        for event in batch.events {
            let key = (event.name.to_owned(), event.medium.map(str::to_owned));
            let count = self.counts.entry(key).or_default();
            count.count += 1;
            count.blocks = count.blocks.saturating_add(event.num_blocks);
            count.tokens += event.num_tokens;
            if self.block_sizes.len() < MOST_BLOCK_SIZES {
                self.block_sizes.extend(event.block_size);
            }
            let transfer = event.transfer.map(|of| TransferEvent { step: batch.step.or(of.step), ..of });
            match (event.name, transfer) {
                ("BlockStored", _) => {
                    self.move_blocks(event.medium, &event.hashes);
                    self.store(event.parent, &event.hashes);
                }
                ("BlockRemoved", _) if is_cpu(event.medium) => {
                    for hash in &event.hashes {
                        self.on_cpu.remove(hash);
                    }
                }
                ("AllBlocksCleared", _) => self.on_cpu.clear(),
                ("TransferInitiated", Some(transfer)) => self.pairing.begin(transfer, batch.seconds),
                ("TransferCompleted", Some(transfer)) => self.pairing.complete(transfer, batch.seconds),
                ("TransferInitiated" | "TransferCompleted", None) => self.pairing.add_incomplete(),
                _ => {}
            }
        }
    }

    /// Keeps which blocks the CPU holds, and counts those that the GPU stores while it does.
    fn move_blocks(&mut self, medium: Option<&str>, hashes: &[u64]) {
        if is_cpu(medium) {
            self.on_cpu.extend(hashes);
        } else if medium.is_some_and(|medium| medium.eq_ignore_ascii_case("GPU")) {
            let held = hashes.iter().filter(|hash| self.on_cpu.contains(hash)).count();
            self.found.blocks_back_from_cpu += held as u64;
        }
    }

    /// Follows a chain of hashes, each of which is the parent of the next.
    fn store(&mut self, parent: Option<u64>, hashes: &[u64]) {
        self.found.unknown_parents += u64::from(parent.is_some_and(|parent| !self.chains.has(parent)));
        self.found.other_parents += self.chains.add(parent, hashes);
    }

    /// Counts batches that are missing between two numbers.
    pub(super) fn add_lost(&mut self, batches: u64) {
        self.found.lost_batches = self.found.lost_batches.saturating_add(batches);
    }

    /// The counts, and the transfers where there are any.
    pub(in crate::ingest) fn finish(self) -> (KvEvents, Option<TransferLog>) {
        let events = self.counts.into_iter().map(|((event, medium), count)| EventCount { event, medium, ..count });
        let found =
            KvEvents { events: events.collect(), block_sizes: self.block_sizes.into_iter().collect(), ..self.found };
        (found, self.pairing.finish())
    }
}

fn is_cpu(medium: Option<&str>) -> bool {
    medium.is_some_and(|medium| medium.eq_ignore_ascii_case("CPU"))
}

#[cfg(test)]
mod tests {
    use super::super::event::batch;
    use super::*;
    use crate::ingest::kv_transfers::DirectionLog;
    use crate::ingest::unknown_names::UnknownNames;
    use serde_json::{Value, json};

    fn tally(batches: &[Value]) -> (KvEvents, Option<TransferLog>) {
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
        let log = transfers.unwrap();
        assert_eq!(log.directions[0], DirectionLog { count: 3, failed: 1, blocks: 12 });
        assert_eq!((log.faults.without_end, log.faults.without_begin, log.faults.failed), (1, 1, 1));
        // 250 and 750 ms; the second failed and only holds its queue.
        let of = |at: usize| (log.transfers[at].begun_us, log.transfers[at].noticed_us, log.transfers[at].is_fitted);
        assert_eq!((log.transfers.len(), of(0), of(1)), (2, (0.0, 250_000.0, true), (0.0, 750_000.0, false)));
        assert!((log.transfers[1].unfinished_us - 250_000.0).abs() < 1e-6);
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

    #[test]
    fn blocks_that_return_from_the_cpu_are_counted() {
        let event = |name: &str, hashes: &[u64], medium: &str| match name {
            "BlockStored" => json!([name, hashes, null, [], 16, null, medium]),
            _ => json!([name, hashes, medium]),
        };
        let (found, _) = tally(&[
            json!([2.0, [event("BlockStored", &[1, 2, 3], "GPU"), event("BlockStored", &[1, 2], "CPU")]]),
            json!([1.0, [event("BlockRemoved", &[1, 2, 3], "GPU"), event("BlockRemoved", &[2], "CPU")]]),
            // 1 comes back, 2 and 3 are computed again.
            json!([3.0, [event("BlockStored", &[1, 2, 3], "GPU")]]),
        ]);
        assert_eq!((found.blocks_back_from_cpu, found.batches_back_in_time), (1, 1));
        assert_eq!(found.block_sizes, [16]);
    }
}
