//! The lines of call stacks, each text stored once, with the facts that a tree needs.

use hashbrown::HashMap;

use crate::frames::{LineKind, is_allocating, leading_owner, owners_in_stack, user_line};
use highwater_snapshots::ids::{FrameId, StackId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::{SourceLine, Tables};

use super::LineRole;

/// The lines seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    texts: Interner<String>,
    kinds: Vec<Kind>,
    of_line: HashMap<SourceLine, u32>,
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

    fn row_of_line(&mut self, tables: &Tables, line: &SourceLine) -> u32 {
        let (texts, kinds) = (&mut self.texts, &mut self.kinds);
        *self.of_line.entry(*line).or_insert_with(|| {
            let row = texts.intern(tables.line_text(line));
            if row as usize == kinds.len() {
                kinds.push(Kind { is_allocating: is_allocating(tables, line), line: LineKind::of(tables, line) });
            }
            row
        })
    }

    /// Adds the lines of a frame, once.
    fn learn(&mut self, tables: &Tables, frame: FrameId) {
        if self.of_frame.contains_key(&frame) {
            return;
        }
        let mut rows: Vec<u32> = Vec::new();
        for line in tables.frame_lines(frame) {
            rows.push(self.row_of_line(tables, line));
        }
        if rows.is_empty() {
            let row = self.texts.intern(tables.address_text(frame));
            if row as usize == self.kinds.len() {
                self.kinds.push(Kind { is_allocating: false, line: LineKind::UNRESOLVED });
            }
            rows.push(row);
        }
        self.of_frame.insert(frame, rows.into_boxed_slice());
    }

    /// The lines of a stack, innermost first, each with its role; without framework and allocator lines if
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
        let owners = owners_in_stack(out.iter().map(|(row, _)| kinds[*row as usize].line));
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
                let told = self.user_line_of(tables, stack).map(|row| (row, LineRole::Framework));
                out.extend(told.or(first));
            }
        }
    }

    /// The user line of a stack.
    pub(super) fn user_line_of(&mut self, tables: &Tables, stack: StackId) -> Option<u32> {
        user_line(tables, stack).map(|line| self.row_of_line(tables, &line))
    }

    /// Whether `line` is one of the lines of `stack`; all frames of the stack must have been added.
    pub(super) fn has_line(&self, tables: &Tables, stack: StackId, line: u32) -> bool {
        tables.stack_frames(stack).any(|frame| self.of_frame.get(&frame).is_some_and(|rows| rows.contains(&line)))
    }

    /// Adds every frame of `stack`.
    pub(super) fn meet(&mut self, tables: &Tables, stack: StackId) {
        for frame in tables.stack_frames(stack) {
            self.learn(tables, frame);
        }
    }
}
