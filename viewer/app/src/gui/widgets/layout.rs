//! The views at the side of the timeline and below it.

use crate::command::Command;

/// Declares a pane of the window and the views that it can show.
macro_rules! places {
    ($($(#[$doc:meta])* $place:ident { $($(#[$view_doc:meta])* $view:ident = $name:literal, $command:ident;)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
            pub enum $place { $($(#[$view_doc])* $view,)+ }

            impl $place {
                /// Every view of this pane.
                pub const ALL: &'static [Self] = &[$(Self::$view),+];

                /// Its display name.
                pub const fn name(self) -> &'static str {
                    match self { $(Self::$view => $name,)+ }
                }

                /// The command that shows it.
                pub const fn command(self) -> Command {
                    match self { $(Self::$view => Command::$command,)+ }
                }
            }
        )+
    };
}

places! {
    /// The view at the side of the timeline.
    Side {
        /// Memory in use at a moment.
        Moment = "Moment", ShowMoment;
        /// The facts about a block.
        Block = "Block", ShowBlock;
        /// Steps, sizes, lifetimes, settings.
        Statistics = "Statistics", ShowStatistics;
    }
    /// The view below the timeline.
    Bottom {
        /// The addresses of blocks in device memory.
        Segments = "Segments", ShowSegments;
        /// The list of events.
        Events = "Events", ShowEvents;
        /// The explanation of the peak.
        Explain = "Explain", ShowExplain;
        /// A prediction with something changed.
        WhatIf = "What-if", ShowWhatIf;
        /// The cheapest changes that fit a budget.
        Plan = "Plan", ShowPlan;
    }
}
