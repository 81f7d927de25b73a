//! SGLang's tree of cached prefixes. A node holds the pages behind its parent's, a lock keeps all pages up to a node, and the leaf that was used
//! least recently is evicted whole.
//!
//! Mirrors `RadixCache` and `TreeNode` (`mem_cache/radix_cache.py`, 0.5.9) under the eviction policy `lru`. A page's hash covers all pages
//! before it, so that equal hashes are equal prefixes.
#![expect(clippy::indexing_slicing, reason = "nodes are numbered within their list")]

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

use super::block_pool::{AlreadyHashed, BlockHash};

/// The node without pages that all others are behind.
pub(super) const ROOT: u32 = 0;

/// A page of the tree: the hash of its tokens and of all before it, and the block that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) hash: BlockHash,
    pub(super) block: u32,
}

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    pages: Vec<Page>,
    num_children: u32,
    /// Requests that use its pages.
    locks: u32,
    /// When it was last used.
    used: u64,
    /// Its place among its parent's children: when the first of its pages came there.
    place: u64,
}

impl Node {
    /// Whether the node, which is number `own`, is a leaf that no request uses.
    fn is_evictable_leaf(&self, own: u32) -> bool {
        self.num_children == 0 && self.locks == 0 && own != ROOT
    }
}

/// The tree.
#[derive(Debug)]
pub(super) struct RadixTree {
    nodes: Vec<Node>,
    unused: Vec<u32>,
    /// Nodes by the hash of their first page.
    by_first: HashMap<BlockHash, u32, BuildHasherDefault<AlreadyHashed>>,
    /// Leaves that could be evicted, least recently used first.
    leaves: BTreeSet<(u64, u32)>,
    clock: u64,
    /// Pages that no request uses, and those that one does.
    pub(super) num_evictable: u32,
    pub(super) num_protected: u32,
}

impl RadixTree {
    pub(super) fn new() -> Self {
        RadixTree {
            nodes: vec![Node::default()],
            unused: Vec::new(),
            by_first: HashMap::default(),
            leaves: BTreeSet::new(),
            clock: 0,
            num_evictable: 0,
            num_protected: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Walks on from a node along the prefix that the tree shares with `hashes`, which uses the nodes up to its end, and splits a node that has more
    /// pages than it. Appends its blocks. Returns the last node.
    fn walk(&mut self, start: u32, hashes: &[BlockHash], blocks: &mut Vec<u32>) -> u32 {
        let used = self.tick();
        let mut before = start;
        while before != ROOT {
            self.set_used(before, used);
            before = self.nodes[before as usize].parent;
        }
        let (mut node, mut left) = (start, hashes);
        while let Some(child) = left.first().and_then(|first| self.by_first.get(first)).copied() {
            self.set_used(child, used);
            let pages = &self.nodes[child as usize].pages;
            let equal = pages.iter().zip(left).take_while(|(page, hash)| page.hash == **hash).count();
            blocks.extend(pages[..equal].iter().map(|page| page.block));
            left = &left[equal..];
            node = if equal < pages.len() { self.split(child, equal) } else { child };
        }
        node
    }

    /// Appends the blocks of the longest prefix of `hashes` that the tree holds, and returns its last node.
    pub(super) fn match_prefix(&mut self, hashes: &[BlockHash], blocks: &mut Vec<u32>) -> u32 {
        self.walk(ROOT, hashes, blocks)
    }

    /// Adds pages behind a node. Appends to `held` the blocks of those that the tree held already, and returns the node of the last page.
    pub(super) fn insert(&mut self, start: u32, hashes: &[BlockHash], blocks: &[u32], held: &mut Vec<u32>) -> u32 {
        let before = held.len();
        let parent = self.walk(start, hashes, held);
        let new = hashes.iter().zip(blocks).skip(held.len() - before);
        let pages: Vec<Page> = new.map(|(hash, block)| Page { hash: *hash, block: *block }).collect();
        let Some(first) = pages.first().map(|page| page.hash) else { return parent };
        self.num_evictable += u32::try_from(pages.len()).unwrap_or(u32::MAX);
        let used = self.tick();
        let node = self.add(Node { parent, pages, used, place: used, ..Node::default() });
        self.by_first.insert(first, node);
        if self.nodes[parent as usize].is_evictable_leaf(parent) {
            self.leaves.remove(&(self.nodes[parent as usize].used, parent));
        }
        self.nodes[parent as usize].num_children += 1;
        self.leaves.insert((used, node));
        node
    }

    /// Keeps the pages up to a node for one more request.
    pub(super) fn lock(&mut self, mut node: u32) {
        while node != ROOT {
            let state = &mut self.nodes[node as usize];
            if state.locks == 0 {
                let pages = u32::try_from(state.pages.len()).unwrap_or(u32::MAX);
                self.num_evictable -= pages;
                self.num_protected += pages;
                if state.num_children == 0 {
                    self.leaves.remove(&(state.used, node));
                }
            }
            state.locks += 1;
            node = state.parent;
        }
    }

    /// Gives back what [`RadixTree::lock`] took.
    pub(super) fn unlock(&mut self, mut node: u32) {
        while node != ROOT {
            let state = &mut self.nodes[node as usize];
            state.locks -= 1;
            if state.locks == 0 {
                let pages = u32::try_from(state.pages.len()).unwrap_or(u32::MAX);
                self.num_evictable += pages;
                self.num_protected -= pages;
                if state.num_children == 0 {
                    self.leaves.insert((state.used, node));
                }
            }
            node = state.parent;
        }
    }

    /// Takes out the leaf that was used least recently and that no request uses, and returns its pages.
    pub(super) fn evict_leaf(&mut self) -> Option<Vec<Page>> {
        let (_, node) = self.leaves.pop_first()?;
        let Node { parent, pages, .. } = std::mem::take(&mut self.nodes[node as usize]);
        self.unused.push(node);
        if let Some(first) = pages.first() {
            self.by_first.remove(&first.hash);
        }
        self.num_evictable -= u32::try_from(pages.len()).unwrap_or(u32::MAX);
        let state = &mut self.nodes[parent as usize];
        state.num_children -= 1;
        if state.is_evictable_leaf(parent) {
            self.leaves.insert((state.used, parent));
        }
        Some(pages)
    }

    /// A node's parent, and its place among that one's children. The root is its own parent.
    pub(super) fn parent_and_place(&self, node: u32) -> (u32, u64) {
        let Node { parent, place, .. } = self.nodes[node as usize];
        (parent, place)
    }

    fn add(&mut self, node: Node) -> u32 {
        match self.unused.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
            }
        }
    }

    /// Puts the first pages of a node into one of their own before it, which is returned.
    fn split(&mut self, child: u32, num_pages: usize) -> u32 {
        let used = self.tick();
        let state = &mut self.nodes[child as usize];
        let behind = state.pages.split_off(num_pages);
        let before = std::mem::replace(&mut state.pages, behind);
        let Node { parent, locks, .. } = *state;
        let place = std::mem::replace(&mut state.place, used);
        let firsts = [before.first(), state.pages.first()].map(|page| page.map(|page| page.hash));
        let node = self.add(Node { parent, pages: before, num_children: 1, locks, used, place });
        self.nodes[child as usize].parent = node;
        for (first, of) in firsts.into_iter().zip([node, child]) {
            self.by_first.extend(first.map(|first| (first, of)));
        }
        node
    }

    fn set_used(&mut self, node: u32, used: u64) {
        let state = &mut self.nodes[node as usize];
        let before = std::mem::replace(&mut state.used, used);
        if state.is_evictable_leaf(node) {
            self.leaves.remove(&(before, node));
            self.leaves.insert((used, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tree: &mut RadixTree, hashes: &[BlockHash]) -> (Vec<u32>, u32) {
        let mut blocks = Vec::new();
        let node = tree.match_prefix(hashes, &mut blocks);
        (blocks, node)
    }

    fn insert(tree: &mut RadixTree, hashes: &[BlockHash], blocks: &[u32]) -> Vec<u32> {
        let mut held = Vec::new();
        tree.insert(ROOT, hashes, blocks, &mut held);
        held
    }

    #[test]
    fn a_prefix_is_found_and_the_leaf_that_was_used_least_recently_is_evicted_whole() {
        let mut tree = RadixTree::new();
        assert!(insert(&mut tree, &[1, 2, 3], &[10, 11, 12]).is_empty());
        assert_eq!(insert(&mut tree, &[1, 2, 4], &[20, 21, 22]), [10, 11], "the pages of the first stay");
        assert_eq!(found(&mut tree, &[1, 2, 4, 9]).0, [10, 11, 22]);
        assert_eq!(found(&mut tree, &[7]), (vec![], ROOT));
        assert_eq!(tree.num_evictable, 4);
        let blocks =
            |pages: Option<Vec<Page>>| pages.map(|pages| pages.iter().map(|page| page.block).collect::<Vec<_>>());
        assert_eq!(blocks(tree.evict_leaf()), Some(vec![12]));
        assert_eq!(blocks(tree.evict_leaf()), Some(vec![22]));
        assert_eq!(blocks(tree.evict_leaf()), Some(vec![10, 11]), "a parent is a leaf once its children are gone");
        assert_eq!((blocks(tree.evict_leaf()), tree.num_evictable), (None, 0));
    }

    #[test]
    fn a_lock_keeps_the_pages_up_to_its_node() {
        let mut tree = RadixTree::new();
        insert(&mut tree, &[1, 2, 3], &[10, 11, 12]);
        let (_, node) = found(&mut tree, &[1, 2]);
        tree.lock(node);
        assert_eq!((tree.num_evictable, tree.num_protected), (1, 2));
        // The part that a split puts before a locked node is locked, too.
        let (_, front) = found(&mut tree, &[1]);
        assert_eq!((tree.num_evictable, tree.num_protected), (1, 2));
        assert_eq!(tree.parent_and_place(node).0, front);
        assert_eq!(tree.evict_leaf().map(|pages| pages.len()), Some(1));
        assert_eq!(tree.evict_leaf(), None);
        tree.unlock(node);
        assert_eq!((tree.num_evictable, tree.num_protected), (2, 0));
        assert_eq!(tree.evict_leaf().map(|pages| pages.len()), Some(1));
    }
}
