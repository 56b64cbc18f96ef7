//! A checksum over a snapshot's events, used to detect whether a file was edited after it was written.

use super::raw::{Action, RawEvent, RawSnapshot};

/// Computes the CRC-32 of a snapshot's events, trace by trace.
///
/// Each event contributes its action's code (its index among the known actions, or 255 for any other action),
/// `address`, `size`, `stream` and `time_us`. Each trace that has events ends with its device's ordinal and its event
/// count. All values except the action's code are little-endian `u64`.
#[derive(Clone, Debug, Default)]
pub struct EventDigest {
    crc: crc32fast::Hasher,
    events: u64,
}

impl EventDigest {
    /// The ordinal of pinned host memory, whose trace comes last.
    pub const HOST: u64 = u64::MAX;

    pub(crate) fn take(&mut self, event: &RawEvent) {
        let mut bytes = [0; 33];
        bytes[0] = if event.action == Action::Unknown { u8::MAX } else { event.action as u8 };
        let words = [event.address, event.size, event.stream, event.time_us];
        for (place, word) in bytes[1..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.crc.update(&bytes);
        self.events += 1;
    }

    /// Traces must be added in order of their devices.
    pub(crate) fn end_trace(&mut self, device: u64) {
        if self.events > 0 {
            self.crc.update(&device.to_le_bytes());
            self.crc.update(&self.events.to_le_bytes());
            self.events = 0;
        }
    }

    pub(crate) fn finish(self) -> u32 {
        self.crc.finalize()
    }

    pub(crate) fn of(raw: &RawSnapshot) -> u32 {
        let mut digest = Self::default();
        let traces = raw.traces.iter().enumerate().map(|(device, events)| (device as u64, events));
        for (device, events) in traces.chain([(Self::HOST, &raw.host_trace)]) {
            events.iter().for_each(|event| digest.take(event));
            digest.end_trace(device);
        }
        digest.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequences::Sequences;

    fn event(address: u64) -> RawEvent {
        let (stack, extras, action) = (Sequences::NONE, 0, Action::Alloc);
        RawEvent { address, size: 512, time_us: 9, stream: 0, stack, extras, action }
    }

    #[test]
    fn any_change_of_events_changes_the_digest_and_a_change_of_stacks_does_not() {
        let raw = RawSnapshot { traces: vec![vec![event(1), event(2)], vec![event(3)]], ..RawSnapshot::default() };
        let whole = EventDigest::of(&raw);
        let changed = |change: &dyn Fn(&mut RawSnapshot)| {
            let mut raw = raw.clone();
            change(&mut raw);
            EventDigest::of(&raw) != whole
        };
        assert!(changed(&|raw| raw.traces[0][0].size = 513));
        assert!(changed(&|raw| raw.traces[0][0].action = Action::Unknown));
        assert!(changed(&|raw| raw.traces[0].swap(0, 1)));
        assert!(changed(&|raw| raw.traces[0].truncate(1)));
        assert!(changed(&|raw| raw.host_trace = raw.traces.remove(1)));
        assert!(changed(&|raw| {
            let moved = raw.traces[1].remove(0);
            raw.traces[0].push(moved);
        }));
        assert!(!changed(&|raw| raw.traces[0][0].stack = 7));
        assert!(!changed(&|raw| raw.traces.push(Vec::new())));
    }
}
