//! The views at the side of the timeline and below it.

use crate::command::Command;

/// Declares a place of the window and the views that take turns in it.
macro_rules! places {
    ($($(#[$doc:meta])* $place:ident { $($(#[$view_doc:meta])* $view:ident = $name:literal, $command:ident;)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
            pub enum $place { $($(#[$view_doc])* $view,)+ }

            impl $place {
                /// Every view that can stand there.
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
        /// What is using memory at a moment.
        Moment = "Moment", ShowMoment;
        /// All facts about a block.
        Block = "Block", ShowBlock;
        /// Steps, sizes, lifetimes, settings.
        Statistics = "Statistics", ShowStatistics;
    }
    /// The view below the timeline.
    Bottom {
        /// Where in the device's memory blocks lie.
        Segments = "Segments", ShowSegments;
        /// The list of events.
        Events = "Events", ShowEvents;
        /// Why the peak is so high.
        Explain = "Explain", ShowExplain;
        /// What would have been with something changed.
        WhatIf = "What-if", ShowWhatIf;
    }
}
