//! Aligns the axes of two recordings at an event in each, and computes how far each recording extends from there.

use highwater_analysis::Moment;
use highwater_snapshots::{count_of, format_nanos};

use crate::{Axis, Recording, Selection};

highwater_snapshots::vocabulary!(
    /// The events at which two timelines are aligned.
    #[derive(Default)]
    Align {
        /// The starts of the steps that contain the compared moments.
        #[default]
        Step = "start of the step",
        /// The starts of the phases that contain the compared moments.
        Phase = "start of the phase",
        /// The compared moments.
        Moment = "compared moments",
        /// The first events of both devices.
        Start = "first events",
    }
);

/// Two recordings on a common axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The aligned moments of A and B.
    pub(super) origins: [usize; 2],
    pub(super) words: String,
}

impl Alignment {
    /// Aligns two recordings as `align` requests; at their first events if a compared moment is in no step or phase.
    pub(super) fn of(
        recordings: [&Recording; 2],
        selections: [&Selection; 2],
        moments: &[Moment],
        align: Align,
    ) -> Self {
        let of_side = |side: usize| {
            let trace = &recordings[side].trace;
            let moment = moments.get(side)?;
            match align {
                Align::Step => Some(trace.spans.step_range(moment.step?)?.start as usize),
                Align::Phase => trace.spans.at(moment.event?).map(|span| span.first.0 as usize),
                Align::Moment => Some(moment.position()),
                Align::Start => None,
            }
        };
        let (origins, how) = match (of_side(0), of_side(1)) {
            (Some(a), Some(b)) => ([a, b], how(align, moments)),
            _ => {
                let first = |side: usize| recordings[side].devices[selections[side].device].moments.start;
                let lacking: Vec<&str> =
                    [0, 1].into_iter().filter(|side| of_side(*side).is_none()).map(|side| ["A", "B"][side]).collect();
                let words = match (align, lacking.as_slice()) {
                    (Align::Start, _) => String::new(),
                    (_, [one]) => format!(", because the compared moment of {one} is in no step"),
                    _ => ", because the compared moments are in no step".to_owned(),
                };
                ([first(0), first(1)], format!("the first events{words}"))
            }
        };
        let left = [0, 1].map(|side| left(recordings[side], selections[side], origins[side]));
        let length = match left {
            [a, b] if a == b => format!("both continue for {a}"),
            [a, b] => format!("from there A continues for {a}, B for {b}"),
        };
        Self { origins, words: format!("Aligned at {how}; {length}.") }
    }
}

fn how(align: Align, moments: &[Moment]) -> String {
    let steps: Vec<u32> = moments.iter().filter_map(|moment| moment.step).collect();
    let of_steps = match steps[..] {
        [a, b] if a == b => format!("step {a}"),
        [a, b] => format!("step {a} of A and step {b} of B"),
        _ => "each".to_owned(),
    };
    match (align, moments) {
        (Align::Step, _) => format!("the start of {of_steps}"),
        (Align::Phase, [a, b]) if a.phase == b.phase => format!("the start of {} in {of_steps}", a.phase),
        (Align::Phase, [a, b]) => format!("the start of {} in A and of {} in B", a.phase, b.phase),
        _ => "the compared moments".to_owned(),
    }
}

/// Describes how much of a recording follows the moment `origin`: a number of events, or a duration.
fn left(recording: &Recording, selection: &Selection, origin: usize) -> String {
    let last = recording.devices[selection.device].moments.end.saturating_sub(1);
    match selection.axis() {
        Axis::Event => count_of(last.saturating_sub(origin) as u64, "event"),
        Axis::Time => {
            let time = |moment| selection.x_of(&recording.trace, moment);
            format_nanos((time(last) - time(origin)).max(0.0) as u64)
        }
    }
}
