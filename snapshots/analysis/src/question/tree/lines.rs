//! The lines of call stacks, with each text stored once, and the properties that a tree needs.

use hashbrown::HashMap;

use crate::stacks::frames::{LeadingFrame, LineKind, is_allocating, leading_frame, leading_owner, owners_in_stack};
use crate::stacks::leading::entries_of;
use highwater_snapshots::ids::{FrameId, StackId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::Tables;

use super::LineRole;

#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    texts: Interner<String>,
    kinds: Vec<Kind>,
    of_entry: HashMap<LeadingFrame, u32>,
    of_frame: HashMap<FrameId, Box<[u32]>>,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    is_allocating: bool,
    line: LineKind,
}

impl Lines {
    pub(super) fn text(&self, line: u32) -> &str {
        self.texts.rows().get(line as usize).map_or("", String::as_str)
    }

    fn row_of(&mut self, tables: &Tables, frame: FrameId, entry: LeadingFrame) -> u32 {
        let (texts, kinds) = (&mut self.texts, &mut self.kinds);
        *self.of_entry.entry(entry).or_insert_with(|| {
            let row = texts.intern(entry.text(tables));
            if row as usize == kinds.len() {
                let is_allocating = entry.line().is_some_and(|line| is_allocating(tables, &line));
                kinds.push(Kind { is_allocating, line: LineKind::of(tables, frame, entry) });
            }
            row
        })
    }

    /// Adds the lines of a frame, unless they were added before.
    fn learn(&mut self, tables: &Tables, frame: FrameId) {
        if self.of_frame.contains_key(&frame) {
            return;
        }
        let rows = entries_of(tables, frame).map(|entry| self.row_of(tables, frame, entry)).collect();
        self.of_frame.insert(frame, rows);
    }

    /// Returns the lines of a stack with their roles, innermost first, without framework and allocator lines if
    /// `hides_internals`.
    pub(super) fn of_stack(
        &mut self,
        tables: &Tables,
        stack: StackId,
        hides_internals: bool,
        out: &mut Vec<(u32, LineRole)>,
    ) {
        out.clear();
        for frame in tables.stack_frames(stack) {
            self.learn(tables, frame);
            out.extend(self.of_frame[&frame].iter().map(|row| (*row, LineRole::Program)));
        }
        let kinds = &self.kinds;
        let owners = owners_in_stack(tables, stack, out.iter().map(|(row, _)| kinds[*row as usize].line));
        let leading = leading_owner(owners.iter().copied());
        for ((row, role), owner) in out.iter_mut().zip(owners) {
            *role = match kinds[*row as usize] {
                Kind { is_allocating: true, .. } => LineRole::Allocator,
                _ if Some(owner) == leading => LineRole::Program,
                _ => LineRole::Framework,
            };
        }
        if hides_internals && out.iter().any(|(_, role)| *role != LineRole::Program) {
            let first = out.first().copied();
            out.retain(|(_, role)| *role == LineRole::Program);
            if out.is_empty() {
                let leading = self.leading_of(tables, stack).map(|row| (row, LineRole::Framework));
                out.extend(leading.or(first));
            }
        }
    }

    /// Returns the row of the frame that represents a stack. All frames of the stack must have been added.
    pub(super) fn leading_of(&mut self, tables: &Tables, stack: StackId) -> Option<u32> {
        self.of_entry.get(&leading_frame(tables, stack)?).copied()
    }

    /// Whether `line` is one of the lines of `stack`; all frames of the stack must have been added.
    pub(super) fn has_line(&self, tables: &Tables, stack: StackId, line: u32) -> bool {
        tables.stack_frames(stack).any(|frame| self.of_frame.get(&frame).is_some_and(|rows| rows.contains(&line)))
    }

    pub(super) fn add_stack(&mut self, tables: &Tables, stack: StackId) {
        for frame in tables.stack_frames(stack) {
            self.learn(tables, frame);
        }
    }
}
