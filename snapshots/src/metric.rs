//! The five memory totals: requested, allocated, active, reserved and device used.

use serde::{Deserialize, Serialize};

/// A memory total. Each total has its own peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bytes requested for live blocks, before rounding. A block is live until its free is requested.
    #[default]
    Requested,
    /// Bytes of the same blocks after the allocator's rounding.
    Allocated,
    /// Allocated bytes, plus the bytes of freed blocks that another stream still uses.
    Active,
    /// Bytes reserved from the driver as segments and mapped pages.
    Reserved,
    /// Bytes in use on the whole device, as reported by the driver.
    DeviceUsed,
}

impl Metric {
    /// All metrics, from the program's requests to the whole device.
    pub const ALL: [Self; 5] = [Self::Requested, Self::Allocated, Self::Active, Self::Reserved, Self::DeviceUsed];

    /// The metrics that are sums over blocks.
    pub const OF_BLOCKS: [Self; 3] = [Self::Requested, Self::Allocated, Self::Active];

    /// The name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Allocated => "allocated",
            Self::Active => "active",
            Self::Reserved => "reserved",
            Self::DeviceUsed => "device_used",
        }
    }

    /// The metric with this name, if any.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Whether this metric is a sum over blocks.
    pub fn is_of_blocks(self) -> bool {
        Self::OF_BLOCKS.contains(&self)
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The five totals of a device at one point, in bytes. `device_used` is the last sample, or 0 before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// See [`Metric::Requested`].
    pub requested: u64,
    /// See [`Metric::Allocated`].
    pub allocated: u64,
    /// See [`Metric::Active`].
    pub active: u64,
    /// See [`Metric::Reserved`].
    pub reserved: u64,
    /// See [`Metric::DeviceUsed`].
    pub device_used: u64,
}

impl Totals {
    /// The value of `metric`.
    #[inline]
    pub fn get(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Requested => self.requested,
            Metric::Allocated => self.allocated,
            Metric::Active => self.active,
            Metric::Reserved => self.reserved,
            Metric::DeviceUsed => self.device_used,
        }
    }

    /// Returns the larger value of each total.
    #[inline]
    pub fn max(&self, other: &Self) -> Self {
        Self {
            requested: self.requested.max(other.requested),
            allocated: self.allocated.max(other.allocated),
            active: self.active.max(other.active),
            reserved: self.reserved.max(other.reserved),
            device_used: self.device_used.max(other.device_used),
        }
    }
}
