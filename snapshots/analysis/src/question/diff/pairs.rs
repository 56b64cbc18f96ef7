//! Matches the call stacks of two recordings. Lines and files may have moved; functions may have been inserted or
//! removed between two others, or renamed while their callees stayed the same.
//!
//! Both trees of functions are traversed from the outermost functions inwards, level by level. Functions of the same
//! name match. Among the remaining functions, one that calls, directly or through a few others, an unmatched function
//! of the other side is considered inserted, and is skipped. Two functions that call mostly the same functions are
//! considered renamed. Each change is thus found once, for all stacks that pass through it. The traversal takes time
//! linear in the trees, except for the unmatched functions called from the same function, which are compared with each
//! other and whose number is limited.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use highwater_snapshots::ids::StackId;
use highwater_snapshots::tables::Tables;

use super::MatchKind;
use super::paths::{Names, Paths};

/// Maximum number of unmatched functions with the same caller that are compared with each other.
const MAX_LEFT: usize = 64;
/// Maximum number of nested inserted functions that are skipped.
const MAX_PUT_IN: usize = 4;

/// The nodes of one tree, by function name.
type ByName = BTreeMap<u32, Vec<u32>>;

/// Functions of both sides with the same caller.
struct Level {
    a: Vec<u32>,
    b: Vec<u32>,
    match_kind: MatchKind,
}

/// Returns, for each stack of A with a match in B, that match and its kind. Each stack of B is matched at most once.
pub(super) fn pair_stacks(
    tables: [&Tables; 2],
    stacks: [&HashSet<StackId>; 2],
) -> HashMap<StackId, (StackId, MatchKind)> {
    let mut names = Names::default();
    let mut paths = |side: usize| {
        let mut sorted: Vec<StackId> = stacks[side].iter().copied().collect();
        sorted.sort_unstable();
        Paths::of(tables[side], sorted.into_iter(), &mut names)
    };
    let trees = [paths(0), paths(1)];
    let mut walk = Walk { tables, trees: &trees, levels: Vec::new(), partners: HashMap::new() };
    walk.enter(&[0], &[0], MatchKind::Equal);
    while let Some(level) = walk.levels.pop() {
        walk.compare(&level);
    }
    walk.partners
}

struct Walk<'a> {
    tables: [&'a Tables; 2],
    trees: &'a [Paths; 2],
    levels: Vec<Level>,
    partners: HashMap<StackId, (StackId, MatchKind)>,
}

impl Walk<'_> {
    /// Matches the functions `a` and `b`: pairs the stacks that end in them, and continues with the functions called
    /// from them.
    fn enter(&mut self, a: &[u32], b: &[u32], match_kind: MatchKind) {
        self.join_ends(a, b, match_kind);
        let level = Level { a: self.callees(0, a), b: self.callees(1, b), match_kind };
        if !level.a.is_empty() && !level.b.is_empty() {
            self.levels.push(level);
        }
    }

    fn compare(&mut self, level: &Level) {
        let (mut left_a, mut left_b) = (self.by_name(0, &level.a), self.by_name(1, &level.b));
        let shared: Vec<u32> = left_a.keys().filter(|name| left_b.contains_key(name)).copied().collect();
        for name in shared {
            if let (Some(a), Some(b)) = (left_a.remove(&name), left_b.remove(&name)) {
                self.enter(&a, &b, level.match_kind);
            }
        }
        if left_a.is_empty() || left_b.is_empty() || left_a.len().max(left_b.len()) > MAX_LEFT {
            return;
        }
        // Functions inserted in B around functions of A, and the reverse.
        for name in left_b.keys().copied().collect::<Vec<u32>>() {
            if let Some(inner) = self.inside(1, &left_b[&name], &left_a) {
                left_b.remove(&name);
                let a = self.take_shared(&mut left_a, 1, &inner);
                self.levels.push(Level { a, b: inner, match_kind: MatchKind::Alike });
            }
        }
        for name in left_a.keys().copied().collect::<Vec<u32>>() {
            if let Some(inner) = self.inside(0, &left_a[&name], &left_b) {
                left_a.remove(&name);
                let b = self.take_shared(&mut left_b, 0, &inner);
                self.levels.push(Level { a: inner, b, match_kind: MatchKind::Alike });
            }
        }
        for a in left_a.values() {
            let alike = left_b.iter().find(|(_, b)| self.were_renamed(a, b)).map(|(name, _)| *name);
            // The only unmatched function of each side was renamed, even if they call different functions.
            let alone = || (left_b.len() == 1 && left_a.len() == 1).then(|| left_b.keys().next().copied()).flatten();
            if let Some(b) = alike.or_else(alone).and_then(|name| left_b.remove(&name)) {
                self.enter(a, &b, MatchKind::Alike);
            }
        }
    }

    /// Returns direct or indirect callees of one side's `nodes`, at the first depth that contains one of `others`.
    fn inside(&self, side: usize, nodes: &[u32], others: &ByName) -> Option<Vec<u32>> {
        let mut inner = nodes.to_vec();
        for _ in 0..MAX_PUT_IN {
            inner = self.callees(side, &inner);
            if inner.iter().any(|&node| others.contains_key(&self.trees[side].nodes[node as usize].name)) {
                return Some(inner);
            }
        }
        None
    }

    /// Removes from `left` the functions that share a name with `nodes` of the other side.
    fn take_shared(&self, left: &mut ByName, side: usize, nodes: &[u32]) -> Vec<u32> {
        let names: BTreeSet<u32> = nodes.iter().map(|&node| self.trees[side].nodes[node as usize].name).collect();
        names.into_iter().filter_map(|name| left.remove(&name)).flatten().collect()
    }

    /// Returns whether at least half of the functions called by either are called by both, which indicates that the
    /// function was renamed.
    fn were_renamed(&self, a: &[u32], b: &[u32]) -> bool {
        let names = |side: usize, nodes: &[u32]| -> BTreeSet<u32> {
            self.callees(side, nodes).iter().map(|&node| self.trees[side].nodes[node as usize].name).collect()
        };
        let (a, b) = (names(0, a), names(1, b));
        let both = a.intersection(&b).count();
        both > 0 && both * 2 >= a.union(&b).count()
    }

    fn callees(&self, side: usize, nodes: &[u32]) -> Vec<u32> {
        let of = |&node: &u32| self.trees[side].nodes[node as usize].calls.values().copied();
        let mut callees: Vec<u32> = nodes.iter().flat_map(of).collect();
        callees.sort_unstable();
        callees
    }

    fn by_name(&self, side: usize, nodes: &[u32]) -> ByName {
        let mut by_name = ByName::new();
        for &node in nodes {
            by_name.entry(self.trees[side].nodes[node as usize].name).or_default().push(node);
        }
        by_name
    }

    /// Pairs the stacks that end at these nodes: equal stacks first, then the others, ordered by line.
    fn join_ends(&mut self, a: &[u32], b: &[u32], match_kind: MatchKind) {
        let ends = |side: usize, nodes: &[u32]| -> Vec<StackId> {
            nodes.iter().flat_map(|&node| self.trees[side].nodes[node as usize].ends.iter().copied()).collect()
        };
        let (of_a, of_b) = (ends(0, a), ends(1, b));
        if of_a.is_empty() || of_b.is_empty() {
            return;
        }
        let text = |side: usize, stack: StackId| self.tables[side].stack_text(stack);
        let mut by_text: HashMap<Vec<String>, Vec<StackId>> = HashMap::new();
        for &stack in of_b.iter().rev() {
            by_text.entry(text(1, stack)).or_default().push(stack);
        }
        let (mut left, mut taken) = (Vec::new(), HashSet::new());
        for stack in of_a {
            match by_text.get_mut(&text(0, stack)).and_then(Vec::pop) {
                Some(partner) => {
                    taken.insert(partner);
                    self.partners.insert(stack, (partner, match_kind));
                }
                None => left.push(stack),
            }
        }
        let others = of_b.into_iter().filter(|stack| !taken.contains(stack));
        let match_kind = match_kind.max(MatchKind::Moved);
        self.partners.extend(left.into_iter().zip(others).map(|(stack, partner)| (stack, (partner, match_kind))));
    }
}
