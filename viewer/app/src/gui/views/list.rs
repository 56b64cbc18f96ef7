//! The views at the side of the timeline and below it, with their names and commands.

use eframe::egui::Ui;

use crate::Command;
use crate::gui::views::block::BlockPanel;
use crate::gui::views::events::EventsView;
use crate::gui::views::explain::ExplainView;
use crate::gui::views::moment::MomentPanel;
use crate::gui::views::plan::PlanView;
use crate::gui::views::segments::SegmentsView;
use crate::gui::views::statistics::StatisticsView;
use crate::gui::views::view::RecordingView;
use crate::gui::views::whatif::WhatIfView;
use crate::gui::widgets::{computed, tabs_ui};

/// Declares the views of each pane of the window: an enum variant, the view's field, its name, and its command.
macro_rules! views {
    ($($(#[$doc:meta])* $pane:ident {
        $($(#[$view_doc:meta])* $view:ident($field:ident: $type:ty) = $name:literal, $command:ident;)+
    })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
            pub enum $pane { $($(#[$view_doc])* $view,)+ }

            impl Default for $pane {
                fn default() -> Self {
                    Self::ALL[0]
                }
            }

            impl $pane {
                /// All views of this pane.
                pub const ALL: &'static [Self] = &[$(Self::$view),+];

                /// The name on the view's tab.
                pub const fn name(self) -> &'static str {
                    match self { $(Self::$view => $name,)+ }
                }

                /// Returns the command that shows the view.
                pub const fn command(self) -> Command {
                    match self { $(Self::$view => Command::$command,)+ }
                }

                pub(crate) fn shown_by(command: Command) -> Option<Self> {
                    Self::ALL.iter().copied().find(|view| view.command() == command)
                }

                /// The view with this display name, case-insensitive.
                pub fn named(name: &str) -> Option<Self> {
                    Self::ALL.iter().copied().find(|view| view.name().eq_ignore_ascii_case(name))
                }

                pub(crate) fn names_ui(ui: &mut Ui, open: Option<Self>) -> Option<Self> {
                    tabs_ui(ui, Self::ALL, open, Self::name, |view| view.command().tooltip())
                }

                /// The view's state among all `views`.
                pub fn of(self, views: &mut Views) -> &mut dyn RecordingView {
                    match self { $(Self::$view => &mut views.$field,)+ }
                }
            }
        )+

        /// The state of every view of a recording.
        #[derive(Debug, Default)]
        pub struct Views { $($($(#[$view_doc])* pub $field: $type,)+)+ }

        impl Views {
            /// The view with this display name, case-insensitive.
            pub fn named(&mut self, name: &str) -> Option<&mut dyn RecordingView> {
                $(if let Some(view) = $pane::named(name) {
                    return Some(view.of(self));
                })+
                None
            }
        }

        computed!(Views: $($($field),+),+);
    };
}

views! {
    /// The view at the side of the timeline.
    Side {
        /// The memory in use at a moment.
        Moment(moment: MomentPanel) = "Moment", ShowMoment;
        /// Facts about a block.
        Block(block: BlockPanel) = "Block", ShowBlock;
        /// Statistics on steps, sizes, lifetimes and settings.
        Statistics(statistics: StatisticsView) = "Statistics", ShowStatistics;
    }
    /// The view below the timeline.
    Bottom {
        /// The addresses of blocks in device memory.
        Segments(segments: SegmentsView) = "Segments", ShowSegments;
        /// The list of events.
        Events(events: EventsView) = "Events", ShowEvents;
        /// The explanation of the peak.
        Explain(explain: ExplainView) = "Explain", ShowExplain;
        /// The memory predicted with other settings.
        WhatIf(whatif: WhatIfView) = "What-if", ShowWhatIf;
        /// The cheapest changes that fit a budget.
        Plan(plan: PlanView) = "Plan", ShowPlan;
    }
}
