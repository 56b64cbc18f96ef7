//! The devices on which the program has allocated, each with an id in recordings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_recorder::api::{self, DeviceClaim};
use highwater_recorder::snapshots::StartingState;
use highwater_recorder::snapshots::trace::{DRIVER_CALLS, DeviceFacts, PINNED_DEVICE, PINNED_DRIVER};
use highwater_recorder::{DeviceId, Source, Throttle};

use crate::driver::Driver;
use crate::ledger::Ledger;
use crate::session;

pub(crate) static LEDGER: Mutex<Ledger> = Mutex::new(Ledger::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A device, by the driver's ordinal.
    Device(i32),
    Pinned,
}

#[derive(Debug)]
pub(crate) struct DeviceSource {
    claim: DeviceClaim,
    facts: DeviceFacts,
    sampling: Throttle,
}

impl Source for DeviceSource {
    fn facts(&self) -> DeviceFacts {
        self.facts.clone()
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        let ledger = LEDGER.lock().unwrap_or_else(PoisonError::into_inner);
        read(ledger.state(self.claim.id()));
    }
}

static KNOWN: Mutex<BTreeMap<Owner, Arc<DeviceSource>>> = Mutex::new(BTreeMap::new());

/// Returns a device, which is registered with the recorder on first use. Must not be called while the ledger is locked.
pub(crate) fn registered(owner: Owner, driver: &Driver) -> Arc<DeviceSource> {
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&owner) {
        return Arc::clone(known);
    }
    let known = Arc::new(DeviceSource::new(owner, driver));
    all.insert(owner, Arc::clone(&known));
    let source: Arc<dyn Source> = known.clone();
    if session::is_asked_for() {
        api::register_alone(&source);
    } else {
        api::register(&source);
    }
    known
}

pub(crate) fn seen(owner: Owner) -> Option<Arc<DeviceSource>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&owner).cloned()
}

/// Returns the memory size of this machine in bytes, or 0 if it is unknown.
fn host_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

impl DeviceSource {
    fn new(owner: Owner, driver: &Driver) -> Self {
        let (wish, name, capacity_bytes, called) = match owner {
            Owner::Device(ordinal) => {
                let name = driver.name(ordinal).unwrap_or_else(|| format!("CUDA device {ordinal}"));
                let wish = u16::try_from(ordinal).map_or(DeviceId(0), DeviceId);
                (wish, name, driver.total_bytes(ordinal).unwrap_or(0), driver.version())
            }
            Owner::Pinned => (PINNED_DEVICE, "pinned host memory".to_owned(), host_bytes(), PINNED_DRIVER.to_owned()),
        };
        let claim = DeviceClaim::new(Some(wish));
        let (name_of_setting, calls) = DRIVER_CALLS;
        let settings = vec![(name_of_setting.to_owned(), calls.to_owned())];
        let facts = DeviceFacts { device: claim.id(), name, capacity_bytes, driver: called, settings };
        Self { claim, facts, sampling: Throttle::new() }
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.claim.id()
    }

    /// Records the memory in use on this device, and returns the free bytes. Unless it `is_due`, skips a sample soon
    /// after another one. Returns `None` if nothing was recorded. The device must be that of the thread's current
    /// context.
    pub(crate) fn sample(&self, driver: &Driver, is_due: bool) -> Option<u64> {
        let query = || if api::is_recording() { driver.free_and_total() } else { None };
        let (free, total) = self.sampling.run(is_due, query)?;
        api::device_used(self.id(), total.saturating_sub(free));
        Some(free)
    }
}
