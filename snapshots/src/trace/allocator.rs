//! The allocator that served a recorded device, on which advice depends.

use super::Trace;
use crate::ids::DeviceId;

/// Name and value of the device setting that marks recordings of CUDA driver calls.
pub const DRIVER_CALLS: (&str, &str) = ("recorded", "calls of the CUDA driver");

/// The allocator of a recorded device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// PyTorch's caching allocator, or one with the same rules, such as this project's.
    Caching,
    /// The CUDA driver itself, which is called once per block.
    Driver,
    /// Another allocator, such as an arena, with or without segments.
    Other,
}

impl Allocator {
    /// Returns whether the allocator has the settings of PyTorch's allocator, such as expandable segments.
    pub fn has_settings(self) -> bool {
        self == Self::Caching
    }

    /// Returns the assumption made by a replay of the allocator's requests, as a clause; `None` if the replay follows
    /// the allocator's own rules.
    pub fn assumption(self) -> Option<&'static str> {
        match self {
            Self::Caching => None,
            Self::Driver => Some(
                "the replay serves blocks like PyTorch's caching allocator, although the recorded program called the \
                 driver for each",
            ),
            Self::Other => Some(
                "the replay serves blocks like PyTorch's caching allocator, although the recorded program used \
                 another allocator",
            ),
        }
    }
}

impl Trace {
    /// The allocator that served `device`.
    pub fn allocator(&self, device: DeviceId) -> Allocator {
        let settings = self.device_facts(device).map_or(&[][..], |facts| &facts.settings);
        if settings.iter().any(|(name, value)| (name.as_str(), value.as_str()) == DRIVER_CALLS) {
            return Allocator::Driver;
        }
        let is_set = settings.iter().any(|(name, _)| name.to_ascii_lowercase().ends_with("alloc_conf"));
        // An allocator that reports to this project's recorder and follows PyTorch's rules has their settings.
        let has_segments = || !self.header.recorder.starts_with("highwater") && self.segments.device.contains(&device);
        if is_set || self.header.recorder.starts_with("PyTorch") || has_segments() {
            return Allocator::Caching;
        }
        Allocator::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::TraceBuilder;
    use crate::category::Pool;
    use crate::event::{Event, Range, What};
    use crate::ids::{StackId, StreamId};
    use crate::trace::{DeviceFacts, Header};

    #[test]
    fn the_allocator_follows_from_the_recorder_the_settings_and_the_segments() {
        let of = |has_segment: bool, recorder: &str, settings: &[(&str, &str)]| {
            let mut builder = TraceBuilder::default();
            let (device, stack) = (DeviceId(0), StackId::NONE);
            let what = match has_segment {
                true => {
                    What::SegmentAlloc(Range { address: 0, bytes: 2 << 20, stream: StreamId(0), pool: Pool::Small })
                }
                false => What::DeviceUsed(512),
            };
            builder.push(&Event { time_ns: 0, device, stack, what });
            builder.set_header(Header { recorder: recorder.to_owned(), ..Header::default() });
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            builder.set_device(DeviceFacts { settings, ..DeviceFacts::default() });
            builder.finish().allocator(device)
        };
        assert_eq!(of(false, "highwater 0.1.0", &[]), Allocator::Other);
        assert_eq!(of(false, "highwater 0.1.0", &[("alloc_conf", "")]), Allocator::Caching);
        assert_eq!(of(false, "PyTorch 2.9", &[]), Allocator::Caching);
        assert_eq!(of(true, "", &[]), Allocator::Caching);
        assert_eq!(of(true, "highwater 0.1.0", &[]), Allocator::Other, "an arena with segments");
        assert_eq!(of(true, "highwater 0.1.0", &[("alloc_conf", "")]), Allocator::Caching);
        assert_eq!(of(true, "highwater 0.1.0", &[DRIVER_CALLS]), Allocator::Driver);
    }
}
