//! The order of SGLang's waiting requests: `SchedulePolicy.calc_priority` (`managers/schedule_policy.py`, 0.5.9). It stays until the next one, so
//! that equal requests keep it.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::super::super::radix_tree::ROOT;
use super::super::super::waiting::Rank;
use super::Scheduler;
use crate::SglangPolicy;

/// Waiting requests beyond which `lpm` leaves the order as it is.
const MOST_MATCHED: usize = 128;
/// Cached tokens up to which a request is compared with those before it (`IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD`).
const FEW_CACHED: u32 = 32;

/// A waiting request, and what the tree has of it.
struct Matched {
    waiting: (Rank, u32),
    cached: u32,
    node: u32,
    /// One before it has the same first tokens, and brings them to the cache.
    waits_for_another: bool,
}

/// Sorts the waiting requests.
pub(super) fn calc_priority(of: &mut Scheduler<'_>, policy: SglangPolicy) {
    let sorted = match policy {
        SglangPolicy::Fcfs => return,
        SglangPolicy::Lof => {
            let mut all = of.waiting.entries();
            all.sort_by_key(|(_, slot)| Reverse(of.slots[*slot as usize].num_output_tokens));
            all
        }
        // Without a tree, both are `fcfs`.
        SglangPolicy::Lpm | SglangPolicy::DfsWeight if of.cache.radix.is_none() => return,
        SglangPolicy::Lpm if of.waiting.queue.len() > MOST_MATCHED => return,
        SglangPolicy::Lpm => {
            let mut all = match_all(of);
            all.sort_by_key(|of| (of.waits_for_another, Reverse(if of.waits_for_another { 0 } else { of.cached })));
            all.iter().map(|matched| matched.waiting).collect()
        }
        SglangPolicy::DfsWeight => by_weight(of),
    };
    of.waiting.reorder(&sorted);
}

/// Looks up every waiting request, in their order (`_compute_prefix_matches`).
fn match_all(of: &mut Scheduler<'_>) -> Vec<Matched> {
    let mut heads = HashSet::new();
    let mut all = Vec::with_capacity(of.waiting.queue.len());
    for waiting in of.waiting.entries() {
        let state = &of.slots[waiting.1 as usize];
        let (cached, node) = of.cache.match_known(state);
        let waits_for_another = cached <= FEW_CACHED && state.known_head().is_some_and(|head| !heads.insert(head));
        all.push(Matched { waiting, cached, node, waits_for_another });
    }
    all
}

/// Requests as a walk through the tree comes to their last nodes, children before their parent, and those first behind which most requests
/// are (`_sort_by_dfs_weight`).
fn by_weight(of: &mut Scheduler<'_>) -> Vec<(Rank, u32)> {
    let all = match_all(of);
    let Some(radix) = &of.cache.radix else { return Vec::new() };
    // Weight of each node that is on a request's path, and the children of each that are.
    let mut weights: HashMap<u32, u32> = HashMap::new();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut requests: HashMap<u32, Vec<(Rank, u32)>> = HashMap::new();
    for matched in &all {
        requests.entry(matched.node).or_default().push(matched.waiting);
        let mut node = matched.node;
        while node != ROOT {
            let parent = radix.tree.parent_and_place(node).0;
            let weight = weights.entry(node).or_default();
            *weight += 1;
            if *weight == 1 {
                children.entry(parent).or_default().push(node);
            }
            node = parent;
        }
    }
    // In the reverse order of the walk, which comes to a node behind its children.
    let (mut sorted, mut open) = (Vec::with_capacity(all.len()), vec![ROOT]);
    while let Some(node) = open.pop() {
        sorted.extend(requests.remove(&node).unwrap_or_default().into_iter().rev());
        let mut below = children.remove(&node).unwrap_or_default();
        below.sort_by_key(|child| (Reverse(weights.get(child).copied()), radix.tree.parent_and_place(*child).1));
        open.extend(below);
    }
    sorted.reverse();
    sorted
}
