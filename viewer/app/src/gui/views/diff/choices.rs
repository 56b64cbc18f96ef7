//! The settings of a comparison: moments, grouping keys, and how the difference is shown.

use highwater_analysis::diff::DiffAt;
use highwater_analysis::{GroupKey, Metric};

use super::alignment::Align;
use crate::session::Recording;

highwater_snapshots::vocabulary!(
    /// The form in which the difference is shown.
    #[derive(Default)]
    DiffLook {
        /// Groups as a table.
        #[default]
        Groups = "Groups",
        /// Groups as a flame graph.
        Flame = "Flame",
        /// Step by step and phase by phase.
        Phases = "Phases",
        /// The peak of each total.
        Totals = "Totals",
        /// The facts recorded about the recordings.
        Settings = "Settings",
    }
);

impl DiffLook {
    /// The tooltip of the button that chooses this form.
    pub(crate) const fn tooltip(self) -> &'static str {
        match self {
            Self::Groups => "Groups by difference. Double click or Enter restricts both sides to a group.",
            Self::Flame => "The same groups as a flame graph; a bar is as wide as its larger side.",
            Self::Phases => "The peak of each phase of each step, side by side.",
            Self::Totals => "The peak of each total over the whole recordings.",
            Self::Settings => "Program, device and allocator settings of both sides.",
        }
    }
}

/// The settings of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffChoices {
    /// The total whose moments are compared.
    pub metric: Metric,
    /// The moments of A and B.
    pub at: [DiffAt; 2],
    /// The grouping keys, at least one.
    pub keys: Vec<GroupKey>,
    /// The alignment of the timelines.
    pub align: Align,
    /// Whether stacks leave out frames of libraries and frameworks.
    pub hides_internals: bool,
    /// The form in which the difference is shown.
    pub look: DiffLook,
}

impl DiffChoices {
    /// The default: the peaks of two recordings by what tells most about both; for one recording, the ends of its last
    /// two whole steps. If the peaks of `metric` are alike but not those of reserved memory, these by pool.
    pub fn usual(recordings: [&Recording; 2], metric: Metric) -> Self {
        let is_one = std::ptr::eq(recordings[0], recordings[1]);
        let of_one = || {
            let last = DiffAt::last_steps(&recordings[0].source, recordings[0].trace.main_device());
            last.ok().flatten().unwrap_or([DiffAt::Peak, DiffAt::End])
        };
        let at = if is_one { of_one() } else { [DiffAt::Peak; 2] };
        let [a, b] = recordings.map(|recording| recording.absent.leading_key());
        let key = if a == b { a } else { GroupKey::Category };
        let is_of_reserved = !is_one && !differs(recordings, metric) && differs(recordings, Metric::Reserved);
        let (metric, key) = if is_of_reserved { (Metric::Reserved, GroupKey::Pool) } else { (metric, key) };
        Self { metric, at, keys: vec![key], align: Align::default(), hides_internals: true, look: DiffLook::default() }
    }

    /// The same moments, `by` steps later where they refer to steps.
    pub(super) fn shift(&mut self, by: i32) {
        for at in &mut self.at {
            if let DiffAt::Step(step) | DiffAt::StepEnd(step) = at {
                *step = step.saturating_add_signed(by);
            }
        }
    }
}

/// Whether the peaks of the main devices differ by a hundredth or more.
fn differs(recordings: [&Recording; 2], metric: Metric) -> bool {
    let peak = |recording: &Recording| {
        let main = recording.trace.main_device();
        let index = recording.devices.iter().find(|index| index.device == main);
        index.map_or(0, |index| index.peak(&recording.trace, metric).bytes)
    };
    let [a, b] = recordings.map(peak);
    a.abs_diff(b) > a.max(b) / 100
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::text::trace_from_text;

    use super::*;

    #[test]
    fn two_recordings_that_differ_only_in_reserved_memory_are_compared_by_it() {
        let recording = |text: &str| Recording::new("test", None, trace_from_text(text).unwrap());
        let small = recording("segment_alloc 0x10000000 4194304 large\nalloc a 2097152 large");
        let large = recording("segment_alloc 0x10000000 8388608 large\nalloc a 2097152 large");
        let of = |a: &Recording, b: &Recording, metric| {
            let choices = DiffChoices::usual([a, b], metric);
            (choices.metric, choices.keys)
        };
        let same = recording("segment_alloc 0x10000000 4194304 large\nalloc a 2097152 large");
        assert_eq!(of(&small, &large, Metric::Requested), (Metric::Reserved, vec![GroupKey::Pool]));
        assert_eq!(of(&small, &same, Metric::Requested), (Metric::Requested, vec![GroupKey::Category]));
        let more = recording("segment_alloc 0x10000000 8388608 large\nalloc a 4194304 large < f (m.py:1)");
        assert_eq!(of(&small, &more, Metric::Requested).0, Metric::Requested);
        assert_eq!(of(&more, &more, Metric::Requested).1, [GroupKey::Frame]);
    }
}
