//! Reasons a verdict about a run cannot be confirmed, because the recording does not contain all that the run needs.

use highwater_snapshots::Result;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_count;

use super::source::Source;

/// A reason the recording may not show all the memory that the run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The recording has no events, only the state at one point in time.
    NoEvents,
    /// The recording has no memory of a device that is checked.
    NoMemory(DeviceId),
    /// The recording ends in an out-of-memory error on a device.
    OutOfMemory(DeviceId),
    /// The recording ends before the program finished it.
    CutOff,
    /// Part of the file could not be read.
    Damaged,
    /// Number of missing events. A full ring buffer drops the earliest events.
    EventsLost(u64),
    /// The recording is an excerpt of another one.
    Excerpt,
    /// Number of events that are missing because no allocator was registered for their device.
    Unregistered(u64),
}

impl Doubt {
    /// Returns the reasons for doubt that apply to a check of `devices`; exactly one if the recording has no events.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn of(source: &Source<'_>, devices: &[DeviceId]) -> Result<Vec<Self>> {
        let trace = source.facts();
        let unregistered =
            Some(trace.header.unregistered_events()).filter(|events| *events > 0).map(Self::Unregistered);
        let cut = if trace.trust.unfinished { Self::CutOff } else { Self::Damaged };
        let cut = (trace.is_partial() && !trace.lacks_index_only()).then_some(cut);
        if trace.event_count() == 0 {
            let why = [unregistered, cut].into_iter().flatten();
            return Ok(why.chain([Self::NoEvents]).take(1).collect());
        }
        let without = devices.iter().filter(|device| !trace.has_memory(**device)).map(|device| Self::NoMemory(*device));
        let ran_out = source.final_oom()?.map(|(_, device)| Self::OutOfMemory(device));
        let lost = Some(trace.trust.events_lost).filter(|lost| *lost > 0).map(Self::EventsLost);
        let is_excerpt = trace.header.excerpt().is_some();
        let parts = is_excerpt.then_some(Self::Excerpt).into_iter().chain(cut);
        Ok(without.chain(ran_out).chain(parts).chain(lost).chain(unregistered).collect())
    }

    /// Returns the first reason the result of a replay for `device` cannot be confirmed. Failed requests do not count,
    /// since they are part of the replay.
    ///
    /// # Errors
    /// Fails like [`Self::of`].
    pub fn of_replay(source: &Source<'_>, device: DeviceId) -> Result<Option<Self>> {
        let all = Self::of(source, &[device])?;
        Ok(all.into_iter().find(|doubt| !matches!(doubt, Self::OutOfMemory(_))))
    }

    /// The device that the reason concerns; `None` if it concerns the whole recording.
    pub fn device(self) -> Option<DeviceId> {
        match self {
            Self::NoMemory(device) | Self::OutOfMemory(device) => Some(device),
            Self::NoEvents
            | Self::CutOff
            | Self::Damaged
            | Self::EventsLost(_)
            | Self::Excerpt
            | Self::Unregistered(_) => None,
        }
    }

    /// Returns the reason as the beginning of a sentence, to which a device may be appended.
    pub fn text(self, trace: &Trace) -> String {
        match self {
            Self::NoEvents => "the recording has no events, only the state at its end".to_owned(),
            Self::NoMemory(_) => "the recording has no blocks".to_owned(),
            Self::OutOfMemory(_) => "the recording ends in an out-of-memory error".to_owned(),
            Self::Excerpt => {
                format!("the recording is an excerpt of another one, {}", trace.header.excerpt().unwrap_or_default())
            }
            Self::CutOff => "the recording was cut off, or is still being written".to_owned(),
            Self::Damaged => "the recording is damaged, and part of it could not be read".to_owned(),
            Self::Unregistered(1) => "1 event of an allocator that was not registered is missing".to_owned(),
            Self::Unregistered(events) => {
                format!("{} events of allocators that were not registered are missing", format_count(events))
            }
            Self::EventsLost(1) => "1 event is missing".to_owned(),
            Self::EventsLost(lost) => format!("{} events are missing", format_count(lost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;
    use highwater_snapshots::trace::EXCERPT;

    use super::*;

    fn of(trace: Trace) -> Vec<Doubt> {
        Doubt::of(&Source::in_memory(trace), &[DeviceId(0)]).unwrap()
    }

    #[test]
    fn a_recording_that_lacks_a_part_of_its_run_is_in_doubt() {
        let whole = trace_from_text("alloc a 1024\nfree a\n").unwrap();
        assert_eq!(of(whole.clone()), []);
        assert_eq!(of(Trace::default()), [Doubt::NoEvents]);
        let excerpt = whole
            .clone()
            .edited(|excerpt| excerpt.header.facts.push((EXCERPT.to_owned(), "events 5 to 9 of 20".to_owned())));
        assert_eq!(of(excerpt.clone()), [Doubt::Excerpt]);
        let text = "the recording is an excerpt of another one, events 5 to 9 of 20";
        assert_eq!(Doubt::Excerpt.text(&excerpt), text);
        let lossy = whole.edited(|trace| trace.trust.events_lost = 7);
        assert_eq!(of(lossy), [Doubt::EventsLost(7)]);
    }

    #[test]
    fn a_failed_request_is_part_of_a_replay() {
        let failed = trace_from_text("alloc a 1024\noom 2048 free=0\n").unwrap();
        assert_eq!(of(failed.clone()), [Doubt::OutOfMemory(DeviceId(0))]);
        let of_replay = |trace: &Trace| Doubt::of_replay(&Source::in_memory(trace), DeviceId(0)).unwrap();
        assert_eq!(of_replay(&failed), None);
        let failed = failed.edited(|trace| trace.trust.unfinished = true);
        assert_eq!(of_replay(&failed), Some(Doubt::CutOff));
    }
}
