//! The host's blocks compared with vLLM's rules in their plain form: one list, in which every use of a chain moves each of its blocks.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::kv_cache::hash_of;
use crate::slot::Slot;

/// A request without blocks that others can share, but for the first `hashes`.
fn request(record: u32, hashes: &[BlockHash]) -> Slot {
    let mut state = Slot { hashes: hashes.to_vec(), ..Slot::default() };
    state.rank.record = record;
    state
}

/// Blocks by hash, the least recently used one first: whether each is written, its loads and its serial number.
#[derive(Default)]
struct Plain {
    capacity: usize,
    order: Vec<(BlockHash, bool, u32, u64)>,
    next_serial: u64,
}

impl Plain {
    fn find(&mut self, hash: BlockHash) -> Option<&mut (BlockHash, bool, u32, u64)> {
        self.order.iter_mut().find(|block| block.0 == hash)
    }

    fn touch(&mut self, hashes: &[BlockHash]) {
        for hash in hashes.iter().rev() {
            if let Some(at) = self.order.iter().position(|block| block.0 == *hash) {
                let block = self.order.remove(at);
                self.order.push(block);
            }
        }
    }

    fn lookup(&mut self, hashes: &[BlockHash]) -> Option<u32> {
        let mut hits = 0;
        for hash in hashes {
            match self.find(*hash) {
                Some((_, true, 0, _)) => hits += 1,
                Some((_, true, _, _)) => return None,
                _ => break,
            }
        }
        Some(hits)
    }

    fn offer(&mut self, hashes: &[BlockHash]) -> Option<(Vec<BlockHash>, Vec<u64>)> {
        let missing: Vec<BlockHash> = hashes.iter().copied().filter(|hash| self.find(*hash).is_none()).collect();
        let leaving = (self.order.len() + missing.len()).saturating_sub(self.capacity);
        let can_go = |block: &&(BlockHash, bool, u32, u64)| block.1 && block.2 == 0 && !hashes.contains(&block.0);
        let gone: Vec<u64> = self.order.iter().filter(can_go).take(leaving).map(|block| block.3).collect();
        if gone.len() < leaving {
            return None;
        }
        self.order.retain(|block| !gone.contains(&block.3));
        for hash in &missing {
            self.order.push((*hash, false, 0, self.next_serial));
            self.next_serial += 1;
        }
        Some((missing, gone))
    }
}

/// A request of both, and what is under way for it.
struct Pair {
    state: Slot,
    storing: Vec<u32>,
    storing_hashes: Vec<BlockHash>,
    loading: Vec<u32>,
    loading_hashes: Vec<BlockHash>,
    num_known: u32,
}

impl Pair {
    fn new(record: u32, hashes: &[BlockHash]) -> Self {
        let (storing, loading) = (Vec::new(), Vec::new());
        let (storing_hashes, loading_hashes) = (Vec::new(), Vec::new());
        Pair { state: request(record, hashes), storing, storing_hashes, loading, loading_hashes, num_known: 0 }
    }

    fn hashes(&self, positions: Range<u32>) -> Vec<BlockHash> {
        positions.map(|at| hash_of(&self.state, at as usize)).collect()
    }

    fn end_transfers(&mut self, host: &mut HostBlocks, plain: &mut Plain) {
        host.update(&self.storing, |block| block.is_written = true);
        let expected = self.storing_hashes.iter().filter_map(|hash| {
            let block = plain.find(*hash)?;
            block.1 = true;
            Some(block.3)
        });
        assert_eq!(host.serials(&self.storing), expected.collect::<Vec<_>>());
        host.update(&self.loading, |block| block.num_loads -= 1);
        for hash in &self.loading_hashes {
            if let Some(block) = plain.find(*hash) {
                block.2 -= 1;
            }
        }
        self.storing.clear();
        self.storing_hashes.clear();
        self.loading.clear();
        self.loading_hashes.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Requests share beginnings of three families; each operation is one of a request that grows, waits, loads, stores or ends.
    #[test]
    fn runs_keep_the_order_of_single_blocks(
        capacity in 1_u32..30,
        requests in vec((0_u64..3, 0_usize..9, 0_u64..3, 0_usize..9), 1..7),
        operations in vec((0_usize..9, 0_u32..6, 0_u32..8, 0_u32..12), 1..120),
    ) {
        let content = |(family, common, branch, own): (u64, usize, u64, usize)| -> Vec<BlockHash> {
            let first = (0..common).map(|at| 1_000 * (family + 1) + at as u64);
            first.chain((0..own).map(|at| 100_000 * (family + 1) + 10_000 * branch + 100 * common as u64 + at as u64)).collect()
        };
        let mut host = HostBlocks::new(capacity);
        let mut plain = Plain { capacity: capacity as usize, ..Plain::default() };
        let mut next_record = requests.len() as u32;
        let mut pairs: Vec<Pair> =
            requests.iter().enumerate().map(|(record, of)| Pair::new(record as u32, &content(*of))).collect();
        (0..pairs.len()).for_each(|slot| host.begin(slot));
        for (slot, action, from, length) in operations {
            let slot = slot % pairs.len();
            let pair = &mut pairs[slot];
            match action {
                0 | 1 => {
                    let positions = from..from + length;
                    host.know(slot, &pair.state, positions.end);
                    pair.num_known = pair.num_known.max(positions.end);
                    let before = pair.storing.len();
                    let stored = host.offer(slot, positions.clone(), &mut pair.storing).ok();
                    let removed = std::mem::take(&mut host.removed);
                    let expected = plain.offer(&pair.hashes(positions.clone()));
                    prop_assert_eq!(stored, expected.as_ref().map(|(missing, _)| missing.len() as u32));
                    prop_assert_eq!(pair.storing.len() - before, stored.unwrap_or(0) as usize);
                    if let Some((missing, gone)) = expected {
                        prop_assert_eq!(removed, gone);
                        pair.storing_hashes.extend(&missing);
                        if !missing.is_empty() {
                            host.touch(slot, positions.end);
                            plain.touch(&pair.hashes(0..positions.end));
                        }
                    }
                }
                2 | 3 => {
                    let number = from + length;
                    host.know(slot, &pair.state, number);
                    pair.num_known = pair.num_known.max(number);
                    host.touch(slot, number);
                    plain.touch(&pair.hashes(0..number));
                    let hits = host.lookup(slot, from..number);
                    prop_assert_eq!(hits, plain.lookup(&pair.hashes(from..number)));
                    let hits = hits.unwrap_or(0);
                    if action == 3 && hits > 0 {
                        host.begin_load(slot, from..from + hits, &mut pair.loading);
                        let hashes = pair.hashes(from..from + hits);
                        for hash in &hashes {
                            plain.find(*hash).into_iter().for_each(|block| block.2 += 1);
                        }
                        pair.loading_hashes.extend(hashes);
                    }
                }
                4 => pair.end_transfers(&mut host, &mut plain),
                5 | 6 => {
                    let position = pair.num_known;
                    if host.append(slot, &pair.state, position, &mut pair.storing) {
                        let removed = std::mem::take(&mut host.removed);
                        pair.num_known += 1;
                        let (missing, gone) = plain.offer(&pair.hashes(position..position + 1)).unwrap_or_default();
                        prop_assert_eq!((missing.len(), removed), (1, gone));
                        pair.storing_hashes.extend(missing);
                        host.touch(slot, position + 1);
                        plain.touch(&pair.hashes(0..position + 1));
                    }
                }
                _ => {
                    pair.end_transfers(&mut host, &mut plain);
                    host.end(slot);
                    *pair = Pair::new(next_record, &content(requests[(from as usize) % requests.len()]));
                    next_record += 1;
                    host.begin(slot);
                }
            }
            prop_assert_eq!(host.len() as usize, plain.order.len());
            prop_assert!(host.len() <= capacity);
        }
        // Without requests and transfers, only runs that hold blocks are left.
        for (slot, pair) in pairs.iter_mut().enumerate() {
            pair.end_transfers(&mut host, &mut plain);
            host.end(slot);
        }
        let held: u32 = host.heads.values().map(|run| host.runs[*run as usize].num_held).sum();
        prop_assert_eq!(held, host.len());
        prop_assert_eq!(host.num_idle, host.len());
    }
}

/// A host with one request for each list of hashes.
fn host_with(capacity: u32, chains: &[&[BlockHash]]) -> (HostBlocks, Vec<Slot>) {
    let mut host = HostBlocks::new(capacity);
    let states: Vec<Slot> = chains.iter().enumerate().map(|(record, hashes)| request(record as u32, hashes)).collect();
    for (slot, state) in states.iter().enumerate() {
        host.begin(slot);
        host.know(slot, state, state.hashes.len() as u32);
    }
    (host, states)
}

/// Stores a whole chain, and uses it. Returns the number of blocks that were stored, and the serial numbers of those that had to go.
fn store(host: &mut HostBlocks, slot: usize, number: u32) -> Option<(u32, Vec<u64>)> {
    let mut stored = Vec::new();
    let num_stored = host.offer(slot, 0..number, &mut stored).ok()?;
    host.touch(slot, number);
    host.update(&stored, |block| block.is_written = true);
    Some((num_stored, std::mem::take(&mut host.removed)))
}

#[test]
fn the_least_recently_used_block_makes_room() {
    let (mut host, _) = host_with(3, &[&[1, 2, 3], &[4], &[5], &[1, 2]]);
    assert_eq!(store(&mut host, 0, 3), Some((3, vec![])));
    host.touch(3, 2);
    // 3 was used longest ago, then 2, as the end of a chain goes before its beginning.
    assert_eq!(store(&mut host, 1, 1), Some((1, vec![2])));
    assert_eq!(store(&mut host, 2, 1), Some((1, vec![1])));
    assert_eq!((host.lookup(0, 0..3), host.lookup(1, 0..1), host.len()), (Some(1), Some(1), 3));
}

#[test]
fn blocks_that_are_read_or_written_or_offered_stay() {
    let (mut host, _) = host_with(2, &[&[1], &[2], &[3], &[1, 4], &[1, 4, 5]]);
    let (mut loading, mut storing) = (Vec::new(), Vec::new());
    assert_eq!(store(&mut host, 0, 1), Some((1, vec![])));
    host.begin_load(0, 0..1, &mut loading);
    assert_eq!(host.offer(1, 0..1, &mut storing), Ok(1));
    // 1 is read and 2 not written yet.
    assert_eq!(store(&mut host, 2, 1), None);
    assert_eq!((host.lookup(1, 0..1), host.lookup(3, 0..2)), (Some(0), None));
    assert_eq!(host.serials(&storing), [1]);
    host.update(&storing, |block| block.is_written = true);
    host.update(&loading, |block| block.num_loads -= 1);
    // 1 is the oldest, but it is in the offer.
    assert_eq!(store(&mut host, 3, 2), Some((1, vec![1])));
    assert_eq!(store(&mut host, 4, 3), None);
    assert_eq!(host.lookup(3, 0..2), Some(2));
}
