//! Finds call stacks that have the same source lines although they were captured at different addresses.
//!
//! A compiler may inline a function twice into one line, or unroll a loop: the addresses differ, the lines do not, and
//! both show as one stack.

use std::collections::HashMap;

use highwater_snapshots::ids::{ModuleId, StackId};
use highwater_snapshots::tables::{SourceLine, Tables};

/// The part of a frame that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Seen<'a> {
    Lines(&'a [SourceLine]),
    Address(ModuleId, u64),
    Nothing,
}

/// For each stack, the first stack with the same lines.
#[derive(Debug)]
pub(super) struct AlikeStacks {
    first: Vec<StackId>,
}

impl AlikeStacks {
    /// Compares all stacks of `tables` in one pass.
    pub(super) fn of(tables: &Tables) -> Self {
        let mut frame_codes: HashMap<Seen<'_>, u32> = HashMap::new();
        let mut seen: HashMap<(StackId, u32), StackId> = HashMap::new();
        let mut first: Vec<StackId> = Vec::with_capacity(tables.stacks.len());
        for (row, stack) in tables.stacks.iter().enumerate() {
            let lines = tables.frame_lines(stack.frame);
            let frame = stack.frame.index().and_then(|frame| tables.frames.get(frame));
            let text = match frame {
                Some(_) if !lines.is_empty() => Seen::Lines(lines),
                Some(frame) => Seen::Address(frame.module, frame.address),
                None => Seen::Nothing,
            };
            let next = frame_codes.len() as u32;
            let code = *frame_codes.entry(text).or_insert(next);
            // A parent precedes its children. In a damaged file it may not; then it counts as itself.
            let parent = stack.parent.index().and_then(|parent| first.get(parent)).copied().unwrap_or(stack.parent);
            first.push(*seen.entry((parent, code)).or_insert(StackId(row as u32)));
        }
        Self { first }
    }

    /// The first stack with the lines of `stack`; `stack` itself if the recording has no such row.
    pub(super) fn first(&self, stack: StackId) -> StackId {
        stack.index().and_then(|row| self.first.get(row)).copied().unwrap_or(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::{FrameId, StringId};
    use highwater_snapshots::tables::{Frame, Stack};

    #[test]
    fn stacks_at_other_addresses_with_the_same_lines_are_one() {
        let line = |line| SourceLine { function: StringId(0), file: StringId(1), line };
        let frame = |address, first_line, line_count| Frame { module: ModuleId(0), address, first_line, line_count };
        let tables = Tables {
            lines: vec![line(7), line(7), line(8)],
            frames: vec![frame(1, 0, 1), frame(2, 1, 1), frame(3, 2, 1), frame(4, 0, 0), frame(5, 0, 0)],
            stacks: [
                (StackId::NONE, 0), // 7
                (StackId::NONE, 1), // 7 at another address
                (StackId(0), 2),    // 8 < 7
                (StackId(1), 2),    // 8 < the other 7
                (StackId(0), 3),    // an address < 7
                (StackId(1), 4),    // another address < 7
                (StackId(1), 3),    // the same address < 7
            ]
            .map(|(parent, frame)| Stack { parent, frame: FrameId(frame) })
            .to_vec(),
            ..Tables::default()
        };
        let alike = AlikeStacks::of(&tables);
        let first: Vec<u32> = (0..7).map(|row| alike.first(StackId(row)).0).collect();
        assert_eq!(first, [0, 0, 2, 2, 4, 5, 4]);
        assert_eq!((alike.first(StackId::NONE), alike.first(StackId(99))), (StackId::NONE, StackId(99)));
    }
}
