//! Device: where tensors live. A cheap handle to an allocator and to the way arithmetic is done.

pub mod accounting;
pub mod cpu;

use std::fmt;
use std::sync::Arc;

use highwater_recorder::api::DeviceClaim;
use highwater_recorder::{DeviceId, Source, StreamId, api};

use crate::alloc::{AllocConfig, CachingAllocator, Driver};
use crate::error::Result;

/// How a device does arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loops over host memory.
    Cpu,
    /// Not at all: only memory is counted. Called `meta` on the command line.
    Accounting,
}

/// A place for tensors: an allocator over a driver. Clones are the same device; two calls of a constructor make two
/// devices, whose tensors cannot meet in one operation.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    kind: Kind,
    allocator: Arc<CachingAllocator>,
    /// Outlives the allocator, whose last events carry its number.
    claim: DeviceClaim,
}

impl Device {
    /// Host memory, with the allocator's default settings.
    pub fn cpu() -> Self {
        Self::cpu_with(AllocConfig::default())
    }

    /// Host memory, with these settings of the allocator.
    pub fn cpu_with(config: AllocConfig) -> Self {
        Self::over(Kind::Cpu, Box::new(cpu::CpuDriver::new()), config)
    }

    /// Host memory of which at most `capacity` bytes may be taken, and no more than the host has.
    pub fn cpu_with_capacity(capacity: u64, config: AllocConfig) -> Self {
        Self::over(Kind::Cpu, Box::new(cpu::CpuDriver::with_capacity(capacity)), config)
    }

    /// A device that counts memory, has `capacity` bytes of it, and computes nothing.
    pub fn accounting(capacity: u64) -> Self {
        Self::accounting_with(capacity, AllocConfig::default())
    }

    /// Like [`Self::accounting`], with these settings of the allocator.
    pub fn accounting_with(capacity: u64, config: AllocConfig) -> Self {
        Self::over(Kind::Accounting, Box::new(accounting::AccountingDriver::new(capacity)), config)
    }

    fn over(kind: Kind, driver: Box<dyn Driver>, config: AllocConfig) -> Self {
        let claim = DeviceClaim::new(None);
        let allocator = CachingAllocator::new(driver, claim.id(), config);
        let source: Arc<dyn Source> = allocator.clone();
        api::register(&source);
        Self(Arc::new(Inner { kind, allocator, claim }))
    }

    /// How it does arithmetic.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Its number in recordings.
    pub fn id(&self) -> DeviceId {
        self.0.claim.id()
    }

    /// The stream on which its operations run.
    pub fn stream(&self) -> StreamId {
        StreamId::default()
    }

    /// Its allocator, with the statistics.
    pub fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.0.allocator
    }

    /// Whether tensors here have values that can be read.
    pub fn has_values(&self) -> bool {
        self.kind() != Kind::Accounting
    }

    /// Fails where other work on this device has failed unseen. Operations of the cpu and accounting devices are done
    /// when they return.
    pub fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

impl PartialEq for Device {
    /// Whether both are handles to the same device.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind() {
            Kind::Cpu => "cpu",
            Kind::Accounting => "meta",
        })
    }
}
