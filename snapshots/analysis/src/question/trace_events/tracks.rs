//! The tracks of a trace: rows of slices, and counters.

use highwater_snapshots::Category;
use highwater_snapshots::ids::DeviceId;

use crate::metric::Metric;

/// A track of a trace: a row of slices, or a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    Steps,
    Phases,
    /// Marks of the program.
    Marks,
    /// Regions marked by the program, by row.
    Regions(u8),
    /// The peak and failed requests of a device.
    Device(DeviceId),
    Total(DeviceId, Metric),
    /// The live bytes of a category on a device.
    Live(DeviceId, Category),
}

impl Track {
    /// Returns an id that is unique among tracks, and not 0.
    pub(super) fn id(self) -> u64 {
        let of = |device: DeviceId| (u64::from(device.0) + 1) << 16;
        match self {
            Self::Steps => 1,
            Self::Phases => 2,
            Self::Marks => 3,
            Self::Regions(row) => 4 + u64::from(row),
            Self::Device(device) => of(device),
            Self::Total(device, metric) => of(device) + 1 + metric as u64,
            Self::Live(device, category) => of(device) + 16 + category as u64,
        }
    }

    pub(super) fn device(self) -> Option<DeviceId> {
        match self {
            Self::Device(device) | Self::Total(device, _) | Self::Live(device, _) => Some(device),
            _ => None,
        }
    }

    pub(super) fn is_counter(self) -> bool {
        matches!(self, Self::Total(..) | Self::Live(..))
    }

    /// Returns the name, without parts that depend on the recording, such as a device's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Steps => "Steps",
            Self::Phases => "Phases",
            Self::Marks => "Marks",
            Self::Regions(_) => "Regions",
            Self::Device(_) => "Device",
            Self::Total(_, metric) => metric.name(),
            Self::Live(_, category) => category.name(),
        }
    }
}
