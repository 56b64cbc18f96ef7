//! Finds the listed events whose text contains the searched text.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use highwater_analysis::{LeadingFrame, leading_frame};
use highwater_snapshots::yielding::tick;
use highwater_snapshots::{Category, EventId, EventKind, OpId, Phase, ScopeId, StackId, StringId, Subject, Trace};
use rayon::prelude::*;

use super::list::Listed;
use super::words::kind_name;
use crate::Recording;
use crate::figures::events::EventFacts;
use crate::gui::identity::Identity;
use crate::gui::widgets::Cancel;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sought {
    pub recording: Identity<Recording>,
    pub listed: Identity<Listed>,
    /// Case is ignored.
    pub text: String,
}

/// The rows whose text matches, as one bit for each row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    words: Vec<u64>,
    pub(super) count: u64,
}

impl Found {
    pub(super) fn contains(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Returns the rank of a matching row among the matches, from 1.
    pub(super) fn rank(&self, row: usize) -> Option<u64> {
        if !self.contains(row) {
            return None;
        }
        let before: u64 = self.words[..row / 64].iter().map(|word| u64::from(word.count_ones())).sum();
        Some(before + u64::from((self.words[row / 64] & (u64::MAX >> (63 - row % 64))).count_ones()))
    }

    /// Returns the first match after `row`, wrapping around, or from the start if `row` is `None`.
    pub(super) fn next(&self, row: Option<usize>) -> Option<usize> {
        let from = row.map_or(0, |row| row + 1);
        let masked = self.words.get(from / 64).map(|word| word & (u64::MAX << (from % 64)));
        let first = |from: usize, words: &[u64]| {
            let at = words.iter().position(|word| *word != 0)?;
            Some((from + at) * 64 + words[at].trailing_zeros() as usize)
        };
        let here = masked.filter(|word| *word != 0).map(|word| from / 64 * 64 + word.trailing_zeros() as usize);
        here.or_else(|| first(from / 64 + 1, self.words.get(from / 64 + 1..)?)).or_else(|| first(0, &self.words))
    }

    /// Returns the last match before `row`, wrapping around, or from the end if `row` is `None`.
    pub(super) fn previous(&self, row: Option<usize>) -> Option<usize> {
        let last = |words: &[u64]| {
            let at = words.iter().rposition(|word| *word != 0)?;
            Some(at * 64 + 63 - words[at].leading_zeros() as usize)
        };
        let before = row.and_then(|row| {
            let at = row / 64;
            let here = self.words.get(at)? & !(u64::MAX << (row % 64));
            let here = (here != 0).then(|| at * 64 + 63 - here.leading_zeros() as usize);
            here.or_else(|| last(&self.words[..at]))
        });
        before.or_else(|| last(&self.words))
    }
}

/// Number of rows per parallel task.
const RUN: usize = 1 << 16;

/// Data cached between searches: the line of user code of every stack of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    of: Identity<Recording>,
    /// The index into `lines` for each stack.
    codes: HashMap<StackId, u32>,
    lines: Vec<LeadingFrame>,
}

impl Memory {
    fn learn(&mut self, recording: &Arc<Recording>) {
        if self.of.is(recording) {
            return;
        }
        let trace = &recording.trace;
        let mut is_used = vec![false; trace.tables.stacks.len()];
        for stack in &trace.events.stack {
            if let Some(used) = stack.index().and_then(|index| is_used.get_mut(index)) {
                *used = true;
            }
        }
        let used: Vec<StackId> =
            (0_u32..).zip(is_used).filter(|(_, is_used)| *is_used).map(|(row, _)| StackId(row)).collect();
        let found: Vec<Option<LeadingFrame>> =
            used.par_iter().map(|stack| leading_frame(&trace.tables, *stack)).collect();
        let mut code_of: HashMap<LeadingFrame, u32> = HashMap::new();
        (self.codes, self.lines) = (HashMap::with_capacity(used.len()), Vec::new());
        for (stack, line) in used.into_iter().zip(found) {
            let Some(line) = line else { continue };
            let lines = &mut self.lines;
            let code = *code_of.entry(line).or_insert_with(|| {
                lines.push(line);
                lines.len() as u32 - 1
            });
            self.codes.insert(stack, code);
        }
        self.of = Identity::of(recording);
    }
}

/// The matching names, determined once per name rather than per event.
struct Terms {
    kinds: Vec<bool>,
    categories: Vec<bool>,
    ops: Vec<bool>,
    scopes: Vec<bool>,
    lines: Vec<bool>,
    marks: HashMap<StringId, bool>,
    phases: Vec<bool>,
    /// Events at which an annotation with a matching name begins.
    begins: HashSet<EventId>,
    /// The index of an event in the whole recording, if the text is a number.
    event: Option<u64>,
    /// The id of a block in the whole recording, if the text is `b` followed by a number.
    block: Option<u32>,
}

impl Terms {
    fn new(trace: &Trace, text: &str, lines: &[LeadingFrame]) -> Self {
        let needle = text.to_lowercase();
        let holds = |text: &str| text.to_lowercase().contains(&needle);
        let tables = &trace.tables;
        let mut names: HashMap<StringId, bool> = HashMap::new();
        let mut named = |id: StringId| *names.entry(id).or_insert_with(|| holds(tables.string(id)));
        let ops = tables.ops.iter().map(|op| named(op.name)).collect();
        let marks = trace.events.kind.iter().zip(&trace.events.subject);
        let marks = marks.filter(|(kind, _)| **kind == EventKind::Mark).map(|(_, subject)| StringId(*subject));
        let marks = marks.map(|id| (id, named(id))).collect();
        let begins = trace.annotations.iter().filter(|annotation| named(annotation.name));
        let digits = needle.replace(',', "");
        Self {
            kinds: EventKind::ALL.iter().map(|kind| holds(kind.name()) || holds(&kind_name(*kind))).collect(),
            categories: Category::ALL.iter().map(|category| holds(category.name())).collect(),
            phases: Phase::ALL.iter().map(|phase| holds(phase.name())).collect(),
            begins: begins.map(|annotation| annotation.first).collect(),
            scopes: (0..tables.scopes.len() as u32)
                .into_par_iter()
                .map(|row| holds(&tables.scope_path(ScopeId(row))))
                .collect(),
            lines: lines.par_iter().map(|line| holds(&line.text(tables))).collect(),
            ops,
            marks,
            event: digits.parse().ok(),
            block: digits.strip_prefix('b').and_then(|digits| digits.parse().ok()),
        }
    }

    fn hold(&self, trace: &Trace, memory: &Memory, id: EventId) -> bool {
        let Some(facts) = EventFacts::of(trace, id) else { return false };
        let (kind, stack) = (trace.events.kind[id.0 as usize], trace.events.stack[id.0 as usize]);
        let at = |list: &[bool], index: Option<usize>| index.and_then(|index| list.get(index)) == Some(&true);
        let is_named = || match trace.subject(id) {
            Subject::Mark(text) => self.marks.get(&text) == Some(&true),
            Subject::Phase(phase) => at(&self.phases, Some(phase as usize)),
            _ => false,
        };
        self.kinds[kind as usize]
            || at(&self.categories, facts.category.map(|category| category as usize))
            || at(&self.ops, OpId::index(facts.op))
            || at(&self.scopes, ScopeId::index(facts.scope))
            || at(&self.lines, memory.codes.get(&stack).map(|code| *code as usize))
            || self.event == Some(trace.number(id))
            || self.block.is_some_and(|block| facts.block.is_some_and(|id| trace.block_number(id).0 == block))
            || (!self.begins.is_empty() && self.begins.contains(&id))
            || is_named()
    }
}

/// Checks every listed event; `None` if cancelled.
pub(super) fn search(sought: &Sought, memory: &mut Memory, cancel: &Cancel) -> Option<Found> {
    let (recording, listed) = (sought.recording.get()?, sought.listed.get()?);
    memory.learn(&recording);
    if cancel.is_cancelled() {
        return None;
    }
    let (trace, memory) = (&recording.trace, &*memory);
    let terms = Terms::new(trace, &sought.text, &memory.lines);
    let rows = listed.len();
    let mut words = vec![0_u64; rows.div_ceil(64)];
    let count = words.par_chunks_mut(RUN / 64).enumerate().map(|(run, words)| {
        if cancel.is_cancelled() {
            return None;
        }
        let mut count = 0;
        for row in run * RUN..rows.min((run + 1) * RUN) {
            tick();
            if listed.event(row).is_some_and(|id| terms.hold(trace, memory, id)) {
                words[(row - run * RUN) / 64] |= 1 << (row % 64);
                count += 1;
            }
        }
        Some(count)
    });
    let count = count.try_reduce(|| 0, |a: u64, b| Some(a + b))?;
    Some(Found { words, count })
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;
    use highwater_snapshots::BlockId;

    use super::*;

    #[test]
    fn numbers_in_a_part_are_those_of_the_whole_recording() {
        let part = trace_from_text("alloc a 10\nalloc b 10\nfree a\n").unwrap().edited(|trace| {
            trace.start.events = 1000;
            trace.start.blocks = vec![BlockId(70), BlockId(71)];
        });
        let found = |text: &str| -> Vec<u32> {
            let terms = Terms::new(&part, text, &[]);
            (0..3).filter(|row| terms.hold(&part, &Memory::default(), EventId(*row))).collect()
        };
        assert_eq!((found("1,001"), found("1"), found("b70"), found("b0")), (vec![1], vec![], vec![0, 2], vec![]));
    }

    #[test]
    fn rows_found_are_walked_in_both_directions_and_around_the_ends() {
        let rows = [3_usize, 64, 127, 200];
        let mut words = vec![0_u64; 5];
        rows.iter().for_each(|row| words[row / 64] |= 1 << (row % 64));
        let found = Found { words, count: 4 };
        let mut walked = Vec::new();
        let mut at = None;
        for _ in 0..5 {
            at = found.next(at);
            walked.extend(at);
        }
        assert_eq!(walked, [3, 64, 127, 200, 3]);
        let back: Vec<usize> =
            std::iter::successors(found.previous(None), |row| found.previous(Some(*row))).take(5).collect();
        assert_eq!(back, [200, 127, 64, 3, 200]);
        assert_eq!(rows.map(|row| found.rank(row)), [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!((found.rank(5), found.next(Some(319)), found.next(Some(5000))), (None, Some(3), Some(3)));
        assert_eq!((Found::default().next(None), Found::default().previous(Some(7))), (None, None));
    }
}
