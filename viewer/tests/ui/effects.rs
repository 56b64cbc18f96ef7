//! For each command, a starting state in which it applies, and its effect there.

use highwater_analysis::{GroupKey, Metric};
use highwater_app::colour_by::ColourBy;
use highwater_app::command::Command;
use highwater_app::gui::{Bottom, MomentLook, Side, Stacking};
use highwater_app::selection::Axis;

use super::seen::Seen;

/// The app's state before a command is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// One recording with steps, modules, failed requests, streams and two devices.
    One,
    /// The same, in a file.
    File,
    /// A file that its program is still writing.
    Unfinished,
    /// Three recordings; the last is in front.
    Three,
    /// One recording, with conditions in the search box.
    Searched,
    /// The middle part of a long recording.
    Part,
    /// A folder of three ranks, of which the first is open and in front.
    Ranks,
}

/// The state, the preparation, and whether the second snapshot differs from the first as expected.
pub(crate) struct Effect(pub(crate) Stage, pub(crate) &'static [Command], pub(crate) fn(&Seen, &Seen) -> bool);

/// The effect of each command; a command without one does not compile.
pub(crate) fn effect(command: Command) -> Effect {
    use Command as C;
    use Stage::{File, One, Part, Ranks, Searched, Three, Unfinished};
    match command {
        C::Open => Effect(One, &[], |_, is| is.shows("Open a recording") && is.is_typing),
        C::OpenFolder => Effect(One, &[], |_, is| is.shows("Open a folder of recordings") && is.is_typing),
        C::SavePicture => Effect(One, &[], |_, is| is.shows("Save a picture") && is.is_typing),
        C::ShowKeys => Effect(One, &[], |was, is| !was.shows("Every command") && is.shows("keys move, Enter opens")),
        C::About => Effect(One, &[], |_, is| is.shows("Licence: ")),
        C::Reload => Effect(File, &[], |was, is| is.recording != was.recording && is.file == was.file),
        C::Close => Effect(One, &[], |_, is| is.file.is_none() && is.shows("Open a recording")),
        C::Quit => Effect(One, &[], |_, is| is.asks("Close")),
        C::Palette => Effect(One, &[], |_, is| is.is_typing && is.shows("Find a command")),
        C::GoToPeak => Effect(One, &[], |was, is| {
            (is.left() + is.right() - 2.0 * is.peak as f64 - 1.0).abs() < 1e-9 && is.width() < was.width()
        }),
        C::FitAll => Effect(One, &[C::GoToPeak], |_, is| (is.left(), is.right()) == (0.0, LENGTH)),
        C::ZoomIn => Effect(One, &[], |was, is| is.width() * 2.0 == was.width()),
        C::ZoomOut => Effect(One, &[C::ZoomIn, C::ZoomIn], |was, is| is.width() == was.width() * 2.0),
        C::ZoomInBytes => Effect(One, &[], |was, is| is.height() * 2.0 == was.height() && is.width() == was.width()),
        C::ZoomOutBytes => Effect(One, &[C::ZoomInBytes], |was, is| is.height() == was.height() * 2.0),
        C::PanLeft => Effect(One, &[C::ZoomIn], |was, is| is.left() < was.left() && same_size(was, is)),
        C::PanRight => Effect(One, &[C::ZoomIn], |was, is| is.left() > was.left() && same_size(was, is)),
        C::PanUp => Effect(One, &[C::ZoomInBytes], |was, is| is.bottom() > was.bottom() && same_size(was, is)),
        C::PanDown => {
            Effect(One, &[C::ZoomInBytes, C::PanUp], |was, is| is.bottom() < was.bottom() && same_size(was, is))
        }
        C::PreviousStep => Effect(One, &[C::NextStep, C::NextStep], |was, is| is.right() == was.left()),
        C::NextStep => Effect(One, &[C::PreviousStep], |was, is| is.left() == was.right()),
        C::GoToStep => Effect(One, &[], |_, is| is.shows("Go to step") && is.is_typing),
        C::PreviousPart => Effect(Part, &[], |_, is| is.shows("events 0 to 9 of 30 are shown")),
        C::NextPart => Effect(Part, &[], |_, is| is.shows("events 20 to 29 of 30 are shown")),
        C::PreviousPeak => Effect(One, &[], |was, is| is.moment < was.moment && is.shows(PINNED)),
        C::NextPeak => Effect(One, &[C::PreviousPeak], |was, is| is.moment > was.moment && is.moment == is.peak),
        C::PreviousOom => Effect(One, &[C::NextOom, C::NextOom], |_, is| is.moment == FIRST_OOM),
        C::NextOom => Effect(One, &[], |_, is| is.moment == FIRST_OOM && is.shows(PINNED)),
        C::PreviousEvent => Effect(One, &[], |was, is| is.moment + 1 == was.moment),
        C::NextEvent => Effect(One, &[], |was, is| is.moment == was.moment + 1),
        C::Undo => Effect(One, &[C::GoToPeak], |_, is| (is.left(), is.right()) == (0.0, LENGTH)),
        C::Redo => Effect(One, &[C::GoToPeak, C::Undo], |was, is| is.width() < was.width()),
        C::MarkA => Effect(One, &[], |_, is| is.marks() == [Some(is.peak), None]),
        C::MarkB => Effect(One, &[], |_, is| is.marks() == [None, Some(is.peak)]),
        C::Unmark => Effect(One, &[C::MarkA], |was, is| was.marks()[0].is_some() && is.marks() == [None; 2]),
        C::ShowRange => Effect(One, &[C::MarkB, C::PreviousEvent, C::PreviousEvent, C::MarkA], |was, is| {
            let range = is.marks().map(|mark| mark.unwrap_or(0) as f64);
            is.width() < was.width() && is.left() < range[0] && is.right() > range[1]
        }),
        C::LargestBlock => Effect(One, &[], |_, is| is.block() == Some(0) && is.settings.side == Side::Block),
        C::BlockAbove => Effect(One, &[C::LargestBlock], |_, is| is.block().is_some_and(|block| block > 0)),
        C::BlockBelow => Effect(One, &[C::LargestBlock, C::BlockAbove], |was, is| is.block() < was.block()),
        C::ZoomToBlock => Effect(One, &[C::LargestBlock, C::BlockAbove], |was, is| {
            is.width() < was.width() && is.left() <= is.moment as f64 && is.right() >= is.moment as f64
        }),
        C::Unpin => Effect(One, &[C::LargestBlock], |was, is| was.block().is_some() && is.block().is_none()),
        C::ToggleFit => Effect(One, &[], |was, is| fits(is) != fits(was)),
        C::ToggleAxis => Effect(One, &[], |_, is| selection(is).axis() == Axis::Time && is.right() > 1000.0),
        C::NextMetric => {
            Effect(One, &[], |_, is| selection(is).metric == Metric::Allocated && is.shows("Total allocated"))
        }
        C::NextDevice => Effect(One, &[], |was, is| selection(is).device != selection(was).device),
        C::ColourByCategory => Effect(One, &[C::ColourByOp], |_, is| coloured(is, GroupKey::Category, "parameter 27%")),
        C::ColourByScope => Effect(One, &[], |_, is| coloured(is, GroupKey::ScopeTo(1), "net 100%")),
        C::ColourByOp => Effect(One, &[], |_, is| coloured(is, GroupKey::Op, "adam 53%")),
        C::ColourByCallSite => Effect(One, &[], |_, is| coloured(is, GroupKey::Frame, "step 53%")),
        C::ColourByLifetime => Effect(One, &[], |_, is| coloured(is, GroupKey::Lifetime, "within a step 20%")),
        C::ColourByStream => Effect(One, &[], |_, is| coloured(is, GroupKey::Stream, "stream 0 100%")),
        C::ColourByPool => Effect(One, &[], |_, is| coloured(is, GroupKey::Pool, "large 100%")),
        C::DeeperScope => Effect(One, &[C::ColourByScope], |_, is| coloured(is, GroupKey::Scope, "net.fc1 100%")),
        C::ShallowerScope => {
            Effect(One, &[C::ColourByScope, C::DeeperScope], |_, is| coloured(is, GroupKey::ScopeTo(1), "net 100%"))
        }
        C::ToggleStacking => {
            Effect(One, &[], |_, is| is.settings.paint.stacking == Stacking::Colour && is.shows("Stack by colour"))
        }
        C::ToggleLines => Effect(One, &[], |was, is| !is.settings.paint.has_lines && is.shapes < was.shapes),
        C::Search => Effect(One, &[], |was, is| is.is_typing && !was.is_typing),
        C::ClearSearch => Effect(Searched, &[], |was, is| !was.search.is_empty() && is.search.is_empty()),
        C::ToggleHide => Effect(Searched, &[], |was, is| is.settings.paint.is_hiding && !was.settings.paint.is_hiding),
        C::ShowMoment => {
            Effect(One, &[C::ShowStatistics], |_, is| is.settings.side == Side::Moment && is.shows("At the peak"))
        }
        C::ToggleSide => Effect(One, &[], |was, is| was.shows("Total of") && !is.shows("Total of")),
        C::NextLook => Effect(One, &[], |was, is| {
            was.settings.choices.look == MomentLook::Table
                && is.settings.choices.look == MomentLook::Treemap
                && is.shows("Treemap")
        }),
        C::NextKey => Effect(One, &[], |was, is| is.settings.choices.first != was.settings.choices.first),
        C::ShowBlock => Effect(One, &[], |_, is| is.settings.side == Side::Block && is.shows("Click a band")),
        C::ShowStatistics => {
            Effect(One, &[], |_, is| is.settings.side == Side::Statistics && is.shows("Steps: 2 rows"))
        }
        C::ShowKept => Effect(One, &[], |_, is| is.settings.side == Side::Statistics && is.shows("Kept: 2 rows")),
        C::ShowSegments => {
            Effect(One, &[], |_, is| is.settings.bottom == Some(Bottom::Segments) && is.shows("No segments are known"))
        }
        C::ShowEvents => Effect(One, &[], |_, is| is.settings.bottom == Some(Bottom::Events) && is.shows("Events: ")),
        C::ShowExplain => Effect(One, &[], |_, is| {
            is.settings.bottom == Some(Bottom::Explain) && is.shows("Go to the explained peak")
        }),
        C::ShowWhatIf => {
            Effect(One, &[], |_, is| is.settings.bottom == Some(Bottom::WhatIf) && is.shows("Replay with the change"))
        }
        C::ShowPlan => Effect(One, &[], |_, is| is.settings.bottom == Some(Bottom::Plan) && is.shows("Suggested: ")),
        C::ShowRanks => Effect(Ranks, &[], |was, is| {
            was.shows("Timeline of") && is.shows("Ranks of the folder: 3 rows") && !is.shows("Timeline of")
        }),
        C::NextFile => Effect(Three, &[], |was, is| is_named(was, "third") && is_named(is, "first")),
        C::PreviousFile => Effect(Three, &[], |was, is| is_named(was, "third") && is_named(is, "second")),
        C::Compare => Effect(Three, &[], |was, is| {
            !was.shows("third : first") && is.shows("third : first") && is.shows("Groups: ")
        }),
        C::ToggleFollow => {
            Effect(Unfinished, &[], |was, is| was.told.contains("following") && !is.told.contains("following"))
        }
        C::ScaleUp => Effect(One, &[], |was, is| is.scale > was.scale),
        C::ScaleDown => Effect(One, &[], |was, is| is.scale < was.scale),
        C::ScaleReset => Effect(One, &[C::ScaleDown], |was, is| was.scale < 1.0 && is.scale == 1.0),
        C::ToggleContrast => Effect(One, &[], |_, is| is.settings.has_contrast),
        C::ToggleTheme => Effect(One, &[], |was, is| is.is_dark != was.is_dark),
        C::CopyTable => Effect(One, &[], |_, is| is.asks("\"total\"") && is.asks("optimizer_state")),
        // To write a file, the system's dialog asks for the path.
        C::SaveTable => Effect(One, &[C::ShowBlock], |_, is| is.shows("Block has no table")),
        C::SaveBelow => Effect(One, &[], |_, is| is.shows("There is no view below the timeline")),
        C::Screenshot => Effect(One, &[], |_, is| is.asks("Screenshot")),
    }
}

/// Moments of the device in front: one more than there are events.
const LENGTH: f64 = 28.0;
/// The moment after the first request that failed.
const FIRST_OOM: usize = 25;
const PINNED: &str = "At the pinned moment";

fn selection(seen: &Seen) -> &highwater_app::selection::Selection {
    seen.selection.as_ref().expect("a recording is open")
}

fn fits(seen: &Seen) -> bool {
    selection(seen).fits_bytes()
}

fn same_size(was: &Seen, is: &Seen) -> bool {
    (is.width() - was.width()).abs() < 1e-9 && (is.height() - was.height()).abs() < 1e-9
}

fn coloured(seen: &Seen, by: GroupKey, legend: &str) -> bool {
    seen.settings.paint.colour_by == ColourBy(by) && seen.told.contains(legend)
}

fn is_named(seen: &Seen, name: &str) -> bool {
    seen.file.as_deref() == Some(name)
}
