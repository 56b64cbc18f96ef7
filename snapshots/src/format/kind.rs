//! The kinds of sections and the codes stored in files.

macro_rules! section_kinds {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $text:literal,)+) => {
        /// The content of a section.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum SectionKind { $($(#[$doc])* $variant = $code,)+ }

        impl SectionKind {
            /// All kinds, ordered by code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the code stored in files.
            pub const fn code(self) -> u16 {
                self as u16
            }

            /// The name used in the specification and in messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the section kind with this code; `None` if this version does not support it.
            pub fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

section_kinds! {
    /// The origin of the recording: one [`Header`](crate::trace::Header).
    Header = 1 "header",
    /// One device: a [`DeviceFacts`](crate::trace::DeviceFacts).
    Device = 2 "device",
    /// Rows of text.
    Strings = 3 "strings",
    /// Rows of binaries and shared libraries.
    Modules = 4 "modules",
    /// Rows of frames, without their source lines.
    Frames = 5 "frames",
    /// Source lines of frames; the last row for a frame applies.
    Symbols = 6 "symbols",
    /// Rows of the stack tree.
    Stacks = 7 "stacks",
    /// Rows of the scope tree.
    Scopes = 8 "scopes",
    /// Rows of forward operations.
    Ops = 9 "ops",
    /// The blocks and segments of a device before its first event, or one part of them.
    StartingState = 10 "starting_state",
    /// Events in columns.
    Events = 11 "events",
    /// The limits of accuracy, as an [`EndFacts`](super::EndFacts). Its presence means that the recording was finished.
    End = 12 "end",
    /// The location of every section.
    Footer = 13 "footer",
    /// Rows of named ranges of events. Since version 1.1.
    Annotations = 14 "annotations",
    /// Rows of extra facts about events, and about blocks and segments of the baseline. Since version 1.1.
    Attributes = 15 "attributes",
    /// Rows of summaries of events. Since version 1.4.
    Summaries = 16 "summaries",
    /// The live state after some number of events, or one part of it. Since version 1.4.
    Checkpoint = 17 "checkpoint",
    /// Rows with the steps in which each device is active. Since version 1.5.
    StepActivity = 18 "step_activity",
    /// Facts of the header that are known only at the end of the recording. Since version 1.7.
    Facts = 19 "facts",
    /// Texts of source files: rows of [`SourceText`](crate::trace::SourceText). Since version 1.8.
    Sources = 20 "sources",
}

impl SectionKind {
    /// Returns whether the content can be derived from other sections, so that its loss is harmless.
    pub const fn is_repeated(self) -> bool {
        matches!(self, Self::Footer | Self::Summaries | Self::Checkpoint | Self::StepActivity)
    }
}

/// Returns the name of the kind, such as `strings`, or `kind 77` for a code that this version does not know.
pub(super) fn kind_text(code: u16) -> String {
    SectionKind::from_code(code).map_or_else(|| format!("kind {code}"), |kind| kind.name().to_owned())
}
