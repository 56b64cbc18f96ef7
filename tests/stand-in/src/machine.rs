//! The devices of the process, behind one lock.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::failure::{Code, Result, fail};
use crate::mapping::Fresh;
use crate::memory::{Blocks, Budget, CONTEXT_BYTES};
use crate::pages::Pages;
use crate::programs::Programs;
use crate::settings::Settings;
use crate::streams::Streams;

/// The state of the simulated driver.
pub(crate) struct Machine {
    pub(crate) settings: Settings,
    /// Number of times that each device's context is retained.
    retained: Vec<u32>,
    pub(crate) budget: Budget,
    pub(crate) blocks: Blocks,
    pub(crate) pinned: Blocks,
    pub(crate) pages: Pages,
    pub(crate) streams: Streams,
    pub(crate) programs: Programs,
}

static MACHINE: OnceLock<Result<Mutex<Machine>, String>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<Option<u16>> = const { Cell::new(None) };
}

/// The first context's handle; the others follow.
const CONTEXTS: u64 = 0x4300_0000_0000;

/// Reads the settings and creates the devices, once.
pub(crate) fn start() -> Result<()> {
    let made = MACHINE.get_or_init(|| {
        let settings = Settings::read()?;
        let devices = usize::from(settings.devices);
        let fresh = if settings.is_idle { Fresh::Zeros } else { Fresh::NoNumber };
        Ok(Mutex::new(Machine {
            retained: vec![0; devices],
            budget: Budget::new(devices, settings.memory_bytes),
            blocks: Blocks::new(fresh),
            pinned: Blocks::new(fresh),
            pages: Pages::new(fresh),
            streams: Streams::new(devices, settings.is_lazy, settings.is_idle),
            programs: Programs::default(),
            settings,
        }))
    });
    made.as_ref().map(drop).or_else(|words| fail(Code::InvalidValue, words.as_str()))
}

/// Locks the machine for the duration of a call. Work also runs under this lock.
pub(crate) fn machine() -> Result<MutexGuard<'static, Machine>> {
    match MACHINE.get() {
        Some(Ok(machine)) => Ok(machine.lock().unwrap_or_else(PoisonError::into_inner)),
        _ => fail(Code::NotInitialized, "cuInit was not called"),
    }
}

/// Sets the current context of this thread; 0 for none.
pub(crate) fn set_current(context: u64) -> Result<()> {
    let device = match context {
        0 => None,
        context => Some(machine()?.device_of_context(context)? as u16),
    };
    CURRENT.set(device);
    Ok(())
}

/// The current context of this thread; 0 for none.
pub(crate) fn current_context() -> u64 {
    CURRENT.get().map_or(0, |device| CONTEXTS + u64::from(device) * 16)
}

/// The machine, and the device of this thread's current context.
pub(crate) fn current() -> Result<(MutexGuard<'static, Machine>, usize)> {
    let machine = machine()?;
    match CURRENT.get().map(usize::from) {
        Some(device) if machine.retained.get(device).is_some_and(|&retained| retained > 0) => Ok((machine, device)),
        Some(device) => fail(Code::InvalidContext, format!("the context of device {device} is not held any more")),
        None => fail(Code::InvalidContext, "no context is current on this thread"),
    }
}

impl Machine {
    /// The device with this number.
    pub(crate) fn device(&self, number: i32) -> Result<usize> {
        match usize::try_from(number) {
            Ok(device) if device < self.retained.len() => Ok(device),
            _ => fail(Code::InvalidDevice, format!("there is no device {number}: there are {}", self.retained.len())),
        }
    }

    /// The device of a context.
    pub(crate) fn device_of_context(&self, context: u64) -> Result<usize> {
        let device = (0..self.retained.len()).find(|&device| context == CONTEXTS + device as u64 * 16);
        device.map_or_else(|| fail(Code::InvalidContext, format!("there is no context {context:#x}")), Ok)
    }

    /// Retains a device's context, and returns its handle.
    pub(crate) fn hold(&mut self, device: usize) -> Result<u64> {
        if self.retained[device] == 0 {
            self.budget.take(device, CONTEXT_BYTES)?;
        }
        self.retained[device] += 1;
        Ok(CONTEXTS + device as u64 * 16)
    }

    /// Releases a device's context. The last release destroys everything that was created in the context.
    pub(crate) fn release_context(&mut self, device: usize) -> Result<()> {
        match self.retained[device] {
            0 => return fail(Code::InvalidContext, format!("the context of device {device} is not held")),
            1 => {
                self.reset(device);
                self.budget.give_back(device, CONTEXT_BYTES);
            }
            _ => {}
        }
        self.retained[device] -= 1;
        Ok(())
    }

    /// Destroys everything that was created in a device's context.
    pub(crate) fn reset(&mut self, device: usize) {
        // What fails in the last work has nobody to be told.
        let _ = self.streams.drain_device(device);
        self.streams.reset(device);
        self.programs.reset(device);
        self.blocks.reset(&mut self.budget, device);
        self.pinned.reset(&mut self.budget, device);
    }

    /// Whether a device's context is retained.
    pub(crate) fn is_retained(&self, device: usize) -> bool {
        self.retained.get(device).is_some_and(|&retained| retained > 0)
    }

    /// Fails unless all these bytes are memory of a device.
    pub(crate) fn check_device(&self, address: u64, bytes: usize) -> Result<()> {
        let place = address as usize;
        if self.blocks.hold(place, bytes) || self.pages.hold(place, bytes) || self.pinned.hold(place, bytes) {
            return Ok(());
        }
        fail(Code::InvalidValue, format!("{bytes} bytes from {address:#x} on are not memory that was handed out"))
    }
}
