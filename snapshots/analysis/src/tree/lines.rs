//! The lines of call stacks, each text stored once, with the facts that a tree needs.

use hashbrown::HashMap;

use crate::frames::{is_allocating, is_python, leading_owner, user_line};
use crate::owners::LineOwner;
use highwater_snapshots::ids::{FrameId, StackId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::{SourceLine, Tables};

use super::Role;

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
    is_python: bool,
    is_allocating: bool,
    owner: LineOwner,
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
                kinds.push(Kind {
                    is_python: is_python(tables.string(line.file)),
                    is_allocating: is_allocating(tables, line),
                    owner: LineOwner::of(tables, line),
                });
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
                self.kinds.push(Kind { is_python: false, is_allocating: false, owner: LineOwner::Program });
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
        out: &mut Vec<(u32, Role)>,
    ) {
        out.clear();
        for frame in tables.stack_frames(stack) {
            self.learn(tables, frame);
            out.extend(self.of_frame[&frame].iter().map(|row| (*row, Role::Program)));
        }
        // In a stack with Python lines, all others are the framework's.
        let kinds = &self.kinds;
        let has_python = out.iter().any(|(row, _)| kinds[*row as usize].is_python);
        let owner_of = |row: u32| match kinds[row as usize] {
            Kind { is_python: false, .. } if has_python => LineOwner::Framework,
            kind => kind.owner,
        };
        let leading = leading_owner(out.iter().map(|(row, _)| owner_of(*row)));
        for (row, role) in &mut *out {
            *role = match kinds[*row as usize] {
                Kind { is_allocating: true, .. } => Role::Allocator,
                _ if Some(owner_of(*row)) == leading => Role::Program,
                _ => Role::Framework,
            };
        }
        if hides_internals && out.iter().any(|(_, role)| *role != Role::Program) {
            let first = out.first().copied();
            out.retain(|(_, role)| *role == Role::Program);
            if out.is_empty() {
                let told = self.user_line_of(tables, stack).map(|row| (row, Role::Framework));
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
