//! Stacks: a snapshot's lists of frames as paths in the tree of stacks.

use hashbrown::HashMap;

use super::super::raw::RawFrame;
use super::super::sequences::Sequences;
use highwater_snapshots::ids::{FrameId, ModuleId, StackId, StringId};
use highwater_snapshots::tables::{Frame, SourceLine, Stack, Tables};

/// Frames kept of a stack, the innermost: readers of a trace follow no more than 1024.
pub(super) const MOST_FRAMES: usize = 1023;

/// Where each list of frames ends in the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    /// By the list's number.
    ids: Vec<StackId>,
    nodes: HashMap<Stack, StackId>,
    /// Lists that were longer than what is kept.
    pub(super) cut: u64,
}

/// Puts the frames into the tables; each keeps its row. Where torch.fx generated the code, the node that it stands for
/// is told as if it were inlined.
pub(super) fn take_frames(tables: &mut Tables, frames: &[RawFrame]) {
    tables.frames.reserve(frames.len());
    tables.lines.reserve(frames.len());
    for frame in frames {
        let first_line = tables.lines.len() as u32;
        if frame.fx.is_some() {
            tables.lines.push(SourceLine { function: frame.fx, file: StringId::NONE, line: 0 });
        }
        tables.lines.push(SourceLine { function: frame.name, file: frame.file, line: frame.line });
        let line_count = tables.lines.len() as u32 - first_line;
        tables.frames.push(Frame { module: ModuleId::NONE, address: 0, first_line, line_count });
    }
}

impl Stacks {
    /// Puts every list into the tables' tree. The lists have their innermost frame first.
    pub(super) fn take(tables: &mut Tables, lists: &Sequences) -> Self {
        let mut stacks = Self { ids: Vec::with_capacity(lists.len()), ..Self::default() };
        // Lists that follow each other share most of their outer frames: those need no look-up.
        let mut path: Vec<(u32, StackId)> = Vec::new();
        for number in 0..lists.len() {
            let list = lists.get(number as u32);
            let kept = &list[..list.len().min(MOST_FRAMES)];
            stacks.cut += u64::from(kept.len() < list.len());
            let shared = kept.iter().rev().zip(&path).take_while(|(frame, known)| **frame == known.0).count();
            path.truncate(shared);
            for &frame in kept.iter().rev().skip(shared) {
                let parent = path.last().map_or(StackId::NONE, |known| known.1);
                path.push((frame, stacks.node(tables, parent, FrameId(frame))));
            }
            stacks.ids.push(path.last().map_or(StackId::NONE, |known| known.1));
        }
        stacks
    }

    /// The stack of list `number`; none for no list.
    #[inline]
    pub(super) fn id(&self, number: u32) -> StackId {
        self.ids.get(number as usize).copied().unwrap_or(StackId::NONE)
    }

    /// The stack of `frame` called from `parent`, made when it is new.
    pub(super) fn node(&mut self, tables: &mut Tables, parent: StackId, frame: FrameId) -> StackId {
        let node = Stack { parent, frame };
        *self.nodes.entry(node).or_insert_with(|| {
            tables.stacks.push(node);
            StackId::from_index(tables.stacks.len() - 1)
        })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut lists = Sequences::default();
        for list in [&[3, 2, 1][..], &[4, 2, 1], &[2, 1], &[9], &[3, 2, 1]] {
            lists.intern(list);
        }
        let mut tables = Tables::default();
        let stacks = Stacks::take(&mut tables, &lists);
        assert_eq!(tables.stacks.len(), 5);
        let frames = |number| tables.stack_frames(stacks.id(number)).map(|frame| frame.0).collect::<Vec<_>>();
        assert_eq!(frames(0), [3, 2, 1]);
        assert_eq!(frames(1), [4, 2, 1]);
        assert_eq!(frames(2), [2, 1]);
        assert_eq!(frames(3), [9]);
        assert_eq!(stacks.id(Sequences::NONE), StackId::NONE);
        assert_eq!(stacks.cut, 0);
    }

    #[test]
    fn of_very_deep_stacks_the_innermost_frames_are_kept() {
        let mut lists = Sequences::default();
        let deep: Vec<u32> = (0..3000).collect();
        lists.intern(&deep);
        let mut tables = Tables::default();
        let stacks = Stacks::take(&mut tables, &lists);
        let frames: Vec<u32> = tables.stack_frames(stacks.id(0)).map(|frame| frame.0).collect();
        assert_eq!(frames, deep[..MOST_FRAMES]);
        assert_eq!(stacks.cut, 1);
    }

    #[test]
    fn a_generated_frame_names_its_node_first() {
        let strings = ["forward", "<eval_with_key>.3", "relu: model.py:7"].map(String::from).to_vec();
        let mut tables = Tables { strings, ..Tables::default() };
        let frame = RawFrame { name: StringId(0), file: StringId(1), line: 5, fx: StringId(2) };
        take_frames(&mut tables, &[RawFrame { fx: StringId::NONE, ..frame }, frame]);
        let texts = |frame| tables.frame_lines(frame).iter().map(|line| tables.line_text(line)).collect::<Vec<_>>();
        assert_eq!(texts(FrameId(0)), ["<eval_with_key>.3:5 forward"]);
        assert_eq!(texts(FrameId(1)), ["relu: model.py:7", "<eval_with_key>.3:5 forward"]);
    }
}
