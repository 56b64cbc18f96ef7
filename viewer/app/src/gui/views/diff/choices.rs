//! The settings of a comparison: moments, grouping keys, and how the difference is shown.

use highwater_analysis::diff::DiffAt;
use highwater_analysis::{GroupKey, Metric};

use super::alignment::Align;
use crate::session::Recording;

/// How the difference is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiffLook {
    /// Groups as a table.
    #[default]
    Groups,
    /// Groups as a flame graph.
    Flame,
    /// Step by step and phase by phase.
    Phases,
    /// The peak of each total.
    Totals,
    /// The facts recorded about the recordings.
    Settings,
}

impl DiffLook {
    /// Every look.
    pub const ALL: [Self; 5] = [Self::Groups, Self::Flame, Self::Phases, Self::Totals, Self::Settings];

    /// Its display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Groups => "Groups",
            Self::Flame => "Flame",
            Self::Phases => "Phases",
            Self::Totals => "Totals",
            Self::Settings => "Settings",
        }
    }

    /// Its tooltip.
    pub const fn tooltip(self) -> &'static str {
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
    /// The total.
    pub metric: Metric,
    /// The moments of A and B.
    pub at: [DiffAt; 2],
    /// The grouping keys, at least one.
    pub keys: Vec<GroupKey>,
    /// The alignment of the timelines.
    pub align: Align,
    /// Whether stacks leave out internal frames.
    pub hides_internals: bool,
    /// How the difference is shown.
    pub look: DiffLook,
}

impl DiffChoices {
    /// The default: the peaks of two recordings by category; for one recording, the ends of its last two whole steps.
    pub fn usual(recordings: [&Recording; 2], metric: Metric) -> Self {
        let is_one = std::ptr::eq(recordings[0], recordings[1]);
        let of_one = || {
            let last = DiffAt::last_steps(&recordings[0].source, recordings[0].trace.main_device());
            last.ok().flatten().unwrap_or([DiffAt::Peak, DiffAt::End])
        };
        let at = if is_one { of_one() } else { [DiffAt::Peak; 2] };
        Self {
            metric,
            at,
            keys: vec![GroupKey::Category],
            align: Align::default(),
            hides_internals: true,
            look: DiffLook::default(),
        }
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
