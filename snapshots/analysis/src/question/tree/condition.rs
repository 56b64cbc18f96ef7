//! Builds the `--where` condition that selects exactly the blocks of one node of a tree.

use highwater_snapshots::ids::{ScopeId, StackId};
use highwater_snapshots::trace::Trace;

use super::build::{Chain, Level};
use super::{NodeId, Part, Tree};
use crate::grouping::condition::{MAX_VALUES, any_of, of_paths, quoted};
use crate::grouping::dimension::NO_VALUE;

/// Maximum number of stack lines in one condition.
const MAX_LINES: usize = 4;

impl Tree {
    /// Returns the condition that selects exactly the blocks of node `id` in this tree; `None` if `--where` cannot
    /// express it in readable length, and for the root, which needs no condition.
    pub fn condition(&self, trace: &Trace, id: NodeId) -> Option<String> {
        self.condition_of(trace, &[id])
    }

    /// Returns the condition that selects exactly the blocks of all nodes `ids`, which may differ only in their module
    /// paths.
    pub fn condition_of(&self, trace: &Trace, ids: &[NodeId]) -> Option<String> {
        let paths: Vec<Vec<NodeId>> = ids.iter().map(|id| self.path(*id)).collect();
        let deepest = self.node(*paths.first()?.last()?).level;
        let mut terms = Vec::new();
        let mut starts = vec![NodeId::ROOT];
        for row in 0..=deepest {
            let level = self.levels.get(usize::from(row))?;
            let last_of = |path: &Vec<NodeId>| path.iter().rev().find(|at| self.node(**at).level == row).copied();
            let lasts = paths.iter().map(last_of).collect::<Option<Vec<NodeId>>>()?;
            let (mut members, mut others) = (Vec::new(), Vec::new());
            for chain in level.chains.iter().filter(|chain| starts.contains(&chain.start)) {
                // A path that continues to the next level has ended here for this level.
                let is_end = |last: &NodeId| {
                    if row < deepest { chain.end == *last } else { self.is_within(chain.end, *last) }
                };
                if lasts.iter().any(is_end) { members.push(chain) } else { others.push(chain) }
            }
            terms.push(self.term(trace, level, *lasts.first()?, &members, &others)?);
            starts = lasts;
        }
        Some(terms.join(" "))
    }

    fn term(
        &self,
        trace: &Trace,
        level: &Level,
        last: NodeId,
        members: &[&Chain],
        others: &[&Chain],
    ) -> Option<String> {
        let tables = &trace.tables;
        match self.node(last).part {
            Part::All | Part::Beside(_) | Part::FreeIn(_) | Part::Block(_) => None,
            Part::Value(key, Some(number)) => {
                Some(format!("{}={}", key.name(), quoted(&(key.dimension().word)(tables, number))?))
            }
            Part::Value(key, None) => {
                let numbers: Vec<String> = others
                    .iter()
                    .filter(|chain| chain.number != NO_VALUE)
                    .map(|chain| chain.number.to_string())
                    .collect();
                // Blocks without a value match no number, so all numbers are excluded.
                let listed = if numbers.is_empty() { u32::MAX.to_string() } else { numbers.join(",") };
                (numbers.len() <= MAX_VALUES).then(|| format!("{}!={listed}", key.name()))
            }
            Part::Scope(_) => scope_term(trace, members, others),
            Part::Line(_) if !level.line_of.is_empty() => self.frame_term(trace, level, members),
            Part::Line(_) => self.stack_term(trace, last, members, others),
        }
    }

    /// Returns the condition for blocks whose user line is that of `members`. Excludes the lines of other groups further
    /// out in the stack.
    fn frame_term(&self, trace: &Trace, level: &Level, members: &[&Chain]) -> Option<String> {
        let tables = &trace.tables;
        let number = members.first()?.number;
        if number == NO_VALUE {
            let is_right = |(stack, of): (&StackId, &u64)| (*of == NO_VALUE) == is_empty(trace, *stack);
            return level.line_of.iter().all(is_right).then(|| "stack=".to_owned());
        }
        let line = number as u32;
        let mut denied: Vec<u32> = Vec::new();
        for (stack, of) in &level.line_of {
            if *of != number && self.lines.has_line(tables, *stack, line) {
                denied.push((*of != NO_VALUE).then_some(*of as u32)?);
            }
        }
        denied.sort_unstable();
        denied.dedup();
        let own = || level.line_of.iter().filter(|(_, of)| **of == number).map(|(stack, _)| *stack);
        let is_own = |denied: &u32| own().any(|stack| self.lines.has_line(tables, stack, *denied));
        if denied.len() > MAX_LINES || denied.iter().any(is_own) {
            return None;
        }
        let term = format!("frame={}", quoted(self.lines.text(line))?);
        if denied.is_empty() {
            return Some(term);
        }
        Some(format!("{term} {}", any_of("frame!=", denied.iter().map(|line| self.lines.text(*line)))?))
    }

    /// Returns the condition for blocks whose stacks contain `last`: its line, with as few neighbouring lines as make
    /// it unique, or otherwise the whole stack.
    fn stack_term(&self, trace: &Trace, last: NodeId, members: &[&Chain], others: &[&Chain]) -> Option<String> {
        let tables = &trace.tables;
        let stack_of = |chain: &Chain| StackId(chain.row());
        if self.node(last).part == Part::Line(None) {
            let is_right = others.iter().all(|chain| !is_empty(trace, stack_of(chain)));
            return is_right.then(|| "stack=".to_owned());
        }
        let level = self.node(last).level;
        let mut left: Vec<StackId> = others.iter().map(|chain| stack_of(chain)).collect();
        let mut terms = Vec::new();
        for at in self.path(last).into_iter().rev().take_while(|at| self.node(*at).level == level) {
            let Part::Line(Some(line)) = self.node(at).part else {
                return None;
            };
            let before = left.len();
            left.retain(|stack| self.lines.has_line(tables, *stack, line));
            if terms.is_empty() || left.len() < before {
                terms.push(format!("frame={}", quoted(self.lines.text(line))?));
            }
            if left.is_empty() || terms.len() == MAX_LINES {
                break;
            }
        }
        if left.is_empty() {
            return Some(terms.join(" "));
        }
        // Lines are unordered in conditions, whole stacks are not.
        let [only] = members else {
            return None;
        };
        let whole = tables.stack_text(stack_of(only));
        let is_other = others.iter().any(|chain| tables.stack_text(stack_of(chain)) == whole);
        if is_other { None } else { Some(format!("stack={}", quoted(&whole.join("\n"))?)) }
    }
}

fn is_empty(trace: &Trace, stack: StackId) -> bool {
    trace.tables.stack_frames(stack).next().is_none()
}

/// The condition for the module paths of `members` but none of `others`.
fn scope_term(trace: &Trace, members: &[&Chain], others: &[&Chain]) -> Option<String> {
    let path = |chain: &&Chain| trace.tables.scope_path(ScopeId(chain.row()));
    of_paths(members.iter().map(path).collect(), &others.iter().map(path).collect::<Vec<_>>())
}
