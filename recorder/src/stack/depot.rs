//! Stores every distinct stack once, as a node of a tree shared by all threads.
//!
//! A node consists of a return address and the node of the calling stack, so that stacks share their outer frames. A
//! new stack of a training step adds about four nodes, not forty. Keys are assigned in order of creation, so a parent's
//! key is always smaller than its children's, and nodes can be written to a file in that order.
//!
//! Each thread has a cache (`Front`) of the nodes that it has used, whose lookups take no lock and allocate nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_snapshots::intern::Interner;

use super::losses;
use crate::reentrancy;

/// Identifies a stack in the whole process and for its whole life. 0 means no stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct StackKey(u32);

impl StackKey {
    /// No stack.
    pub const NONE: Self = Self(0);

    /// Returns whether this identifies a stack.
    #[inline]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// Returns the index of the stack's node in order of creation, from 0, or `None` for [`Self::NONE`].
    #[inline]
    pub fn index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }

    fn from_index(index: usize) -> Self {
        Self(u32::try_from(index + 1).expect("the depot holds more than MAX_NODES nodes"))
    }
}

/// A node of the tree, with a return address and the stack of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Stack of the caller, or [`StackKey::NONE`] at the outermost frame.
    pub parent: StackKey,
    /// Return address, which is that of the instruction after the call.
    pub address: u64,
}

/// Maximum number of nodes in the depot (about 800 MB). A program with endlessly many different stacks, for example
/// from recursion over its data, loses stacks instead of running out of memory.
pub const MAX_NODES: usize = 1 << 24;

static NODES: Mutex<Option<Interner<Node>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Interner<Node>>> {
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the key of `node`, adding it if it is new. Returns [`StackKey::NONE`] when the depot is full.
fn intern(node: Node) -> StackKey {
    let mut nodes = lock();
    let nodes = nodes.get_or_insert_default();
    if nodes.rows().len() >= MAX_NODES {
        return nodes.position(&node).map_or(StackKey::NONE, |index| StackKey::from_index(index as usize));
    }
    StackKey::from_index(nodes.intern(node) as usize)
}

/// Returns the number of nodes.
pub fn len() -> usize {
    let _guard = reentrancy::enter();
    lock().as_ref().map_or(0, |nodes| nodes.rows().len())
}

/// Returns the node of `key`; `None` if there is none.
pub fn node(key: StackKey) -> Option<Node> {
    let _guard = reentrancy::enter();
    let nodes = lock();
    nodes.as_ref()?.rows().get(key.index()?).copied()
}

/// Returns the nodes after the first `known` nodes, in order of creation, so the key of the first has index `known`. A
/// file writer that passes the number of nodes already written gets each node exactly once, parents first.
pub fn nodes_since(known: usize) -> Vec<Node> {
    let _guard = reentrancy::enter();
    lock().as_ref().and_then(|nodes| nodes.rows().get(known..)).map_or_else(Vec::new, <[Node]>::to_vec)
}

/// Returns the return addresses of a stack, innermost first, or an empty list for [`StackKey::NONE`].
pub fn frames(key: StackKey) -> Vec<u64> {
    let _guard = reentrancy::enter();
    let nodes = lock();
    let rows = nodes.as_ref().map_or(&[][..], Interner::rows);
    let row = |key: StackKey| rows.get(key.index()?);
    std::iter::successors(row(key), |node| row(node.parent)).map(|node| node.address).collect()
}

pub(super) const ROOT: u64 = 0x1234_5678_9abc_def1;

/// Returns the fingerprint of the stack with fingerprint `parent` after one more frame.
///
/// For a given parent, different addresses give different fingerprints, since each of the three operations is
/// invertible. A fingerprint together with the parent's key therefore identifies the stack as exactly as the address
/// itself.
#[inline(always)]
pub(super) fn fingerprint(parent: u64, address: u64) -> u64 {
    let product = (parent ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

#[derive(Clone, Copy, Default)]
struct Entry {
    fingerprint: u64,
    parent: StackKey,
    key: StackKey,
}

/// A thread's cache of the depot, a growing hash table with open addressing, from parent and fingerprint to key.
///
/// The slot depends only on the fingerprint, not on the parent's key, so that the processor can overlap the lookups of
/// consecutive frames. Whether an entry matches is determined exactly.
pub(super) struct Front {
    entries: Box<[Entry]>,
    used: usize,
    /// Number of bits by which the fingerprint is shifted right to give the first slot to probe.
    shift: u32,
}

impl Front {
    pub(super) fn new() -> Self {
        Self::with_bits(8)
    }

    fn with_bits(bits: u32) -> Self {
        Self { entries: vec![Entry::default(); 1 << bits].into_boxed_slice(), used: 0, shift: u64::BITS - bits }
    }

    /// Returns the key of the stack `parent` with the innermost frame `address`, whose fingerprint is `print`. Returns
    /// [`StackKey::NONE`] when the depot is full.
    #[inline(always)]
    pub(super) fn key(&mut self, parent: StackKey, address: u64, print: u64) -> StackKey {
        let last = self.entries.len() - 1;
        let mut at = (print >> self.shift) as usize;
        loop {
            let entry = self.entries[at & last];
            if entry.fingerprint == print && entry.parent == parent && entry.key.is_some() {
                return entry.key;
            }
            if !entry.key.is_some() {
                return self.learn(Node { parent, address }, print);
            }
            at += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, node: Node, print: u64) -> StackKey {
        let key = intern(node);
        if !key.is_some() {
            losses::count_refused();
            return key;
        }
        if (self.used + 1) * 2 > self.entries.len() {
            let larger = Self::with_bits(u64::BITS - self.shift + 1);
            let former = std::mem::replace(self, larger);
            for entry in former.entries.iter().filter(|entry| entry.key.is_some()) {
                self.put(*entry);
            }
        }
        self.put(Entry { fingerprint: print, parent: node.parent, key });
        key
    }

    fn put(&mut self, entry: Entry) {
        let last = self.entries.len() - 1;
        let mut at = (entry.fingerprint >> self.shift) as usize;
        while self.entries[at & last].key.is_some() {
            at += 1;
        }
        self.entries[at & last] = entry;
        self.used += 1;
    }

    /// Returns the key of a whole stack, whose frames are given innermost first.
    pub(super) fn key_of(&mut self, frames: &[u64]) -> StackKey {
        let mut parent = StackKey::NONE;
        let mut print = ROOT;
        for &address in frames.iter().rev() {
            print = fingerprint(print, address);
            parent = self.key(parent, address, print);
            if !parent.is_some() {
                return StackKey::NONE;
            }
        }
        parent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_come_back_as_they_went_in_and_share_their_outer_frames() {
        let (mut one, mut other) = (Front::new(), Front::new());
        let stacks: Vec<Vec<u64>> = (0..2000).map(|i| vec![0x9000 + i, 0x8000 + i / 10, 0x7000, 0x7000]).collect();
        let keys: Vec<StackKey> = stacks.iter().map(|frames| one.key_of(frames)).collect();
        for (frames, &key) in stacks.iter().zip(&keys) {
            assert_eq!(super::frames(key), *frames);
            assert_eq!(other.key_of(frames), key, "another thread gets the same key");
            assert!(node(key).is_some_and(|node| node.parent < key));
        }
        assert_eq!(one.used, 2000 + 200 + 2);
        assert_eq!(node(keys[0]).map(|node| node.parent), node(keys[9]).map(|node| node.parent));
        let rows = nodes_since(0);
        assert_eq!(keys[7].index().map(|index| rows[index].address), Some(0x9007));
    }
}
