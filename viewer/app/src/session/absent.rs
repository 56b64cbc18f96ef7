//! Determines the keys for which some or all blocks of a recording have no value.

use highwater_analysis::GroupKey;
use highwater_snapshots::Trace;

/// The keys without a value in any block of a recording, each with the reason, and the keys without a value only in
/// blocks from before the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absent {
    reasons: Vec<(GroupKey, &'static str)>,
    only_before: Vec<GroupKey>,
}

const NO_OPS: &str = "No block has an operation: PyTorch's snapshots do not record them.";
const NO_SCOPES: &str = "No block has a module. Group by frame, or record PyTorch with the Python \
                         package highwater, which records modules.";
const NO_STEPS: &str = "The recording has no steps. In PyTorch, wrap each step in \
                        torch.profiler.record_function(\"ProfilerStep#0\"), \"ProfilerStep#1\" …";
const NO_PHASES: &str = "The recording has no phases such as forward and backward.";
const NO_STACKS: &str = "The recording has no stacks.";

impl Absent {
    /// Returns the keys without values in `trace`. Examines each block at most once per key.
    pub fn of(trace: &Trace, has_steps: bool) -> Self {
        let blocks = &trace.blocks;
        let has_stacks = blocks.stack.iter().any(|stack| stack.is_some());
        let checks = [
            (GroupKey::Op, blocks.op.iter().any(|op| op.is_some()), NO_OPS),
            (GroupKey::Scope, blocks.scope.iter().any(|scope| scope.is_some()), NO_SCOPES),
            (GroupKey::Step, has_steps, NO_STEPS),
            (GroupKey::Phase, !trace.spans.is_all_setup(), NO_PHASES),
            (GroupKey::Stack, has_stacks, NO_STACKS),
            (GroupKey::Frame, has_stacks, NO_STACKS),
        ];
        let absent = checks.into_iter().filter(|(_, is_there, _)| !is_there);
        let reasons = absent.map(|(key, _, reason)| (key, reason)).collect();
        // Before a part of a recording, its own blocks without a value may be live.
        let is_before = |row: usize| trace.start.events == 0 && blocks.alloc[row].index().is_none();
        let mut only_before = Vec::new();
        if blocks.op.iter().enumerate().all(|(row, op)| op.is_some() || is_before(row)) {
            only_before.push(GroupKey::Op);
        }
        if blocks.scope.iter().enumerate().all(|(row, scope)| scope.is_some() || is_before(row)) {
            only_before.push(GroupKey::Scope);
        }
        if blocks.stack.iter().enumerate().all(|(row, stack)| stack.is_some() || is_before(row)) {
            only_before.extend([GroupKey::Stack, GroupKey::Frame]);
        }
        Self { reasons, only_before }
    }

    /// Returns whether all blocks without a value for `key` are from before the recording.
    pub(crate) fn is_only_before(&self, key: GroupKey) -> bool {
        self.only_before.iter().any(|before| before.name() == key.name())
    }

    /// Returns the reason no block has a value for `key`; `None` if some blocks have one.
    pub fn reason(&self, key: GroupKey) -> Option<&'static str> {
        // Without modules, there are no truncated module paths either.
        self.reasons.iter().find(|(absent, _)| absent.name() == key.name()).map(|(_, reason)| *reason)
    }

    /// The most informative key to start with: the line of code if the recording has only call stacks, like PyTorch's
    /// snapshots, otherwise the category.
    pub(crate) fn leading_key(&self) -> GroupKey {
        let has = |key| self.reason(key).is_none();
        let is_of_lines = has(GroupKey::Frame) && !has(GroupKey::Scope) && !has(GroupKey::Op);
        if is_of_lines { GroupKey::Frame } else { GroupKey::Category }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn a_key_is_absent_where_no_block_has_a_value_for_it() {
        let absent = |text: &str, has_steps| {
            let absent = Absent::of(&trace_from_text(text).unwrap(), has_steps);
            GroupKey::ALL.iter().copied().filter(|key| absent.reason(*key).is_some()).collect::<Vec<_>>()
        };
        let all = [GroupKey::Op, GroupKey::Scope, GroupKey::Phase, GroupKey::Step, GroupKey::Stack, GroupKey::Frame];
        assert_eq!(absent("alloc a 1", false), all);
        let none = Absent::of(&trace_from_text("alloc a 1").unwrap(), false);
        assert_eq!(none.reason(GroupKey::ScopeTo(2)), none.reason(GroupKey::Scope));
        assert_eq!(absent("step 0\nalloc a 1 #add < f (m.py:1)\nalloc b 2 @net", true), []);
    }

    #[test]
    fn blocks_from_before_the_recording_are_told_from_others_without_a_value() {
        let absent = Absent::of(&trace_from_text("baseline w 1\nalloc a 1 @net < f\nalloc b 1 < f").unwrap(), false);
        let keys = [GroupKey::Frame, GroupKey::Stack, GroupKey::Scope, GroupKey::ScopeTo(1), GroupKey::Op];
        assert_eq!(keys.map(|key| absent.is_only_before(key)), [true, true, false, false, false]);
    }
}
