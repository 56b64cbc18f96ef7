//! Streams: queues of work by number, and events in them.
//!
//! Stream 0 is the default one, on which work runs unless told otherwise. Numbers are not used again.
#![expect(unsafe_code, reason = "calls the driver's streams and events")]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::{result, sys};

use super::Gpu;
use super::handles::Handle;
use crate::error::{Error, Result, ToResult};

/// The streams of a device, and its events.
#[derive(Debug)]
pub(super) struct Streams {
    default: Handle<sys::CUstream_st>,
    others: RwLock<Vec<Handle<sys::CUstream_st>>>,
    events: Mutex<Events>,
}

#[derive(Debug, Default)]
struct Events {
    next: u64,
    recorded: HashMap<u64, Handle<sys::CUevent_st>>,
    // Making an event costs more than recording one.
    unused: Vec<Handle<sys::CUevent_st>>,
}

impl Streams {
    /// For the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { default: new_stream()?, others: RwLock::default(), events: Mutex::default() })
    }

    /// The driver's handle of stream `number`; the default one for a number that was never given out.
    pub(super) fn handle(&self, number: u64) -> sys::CUstream {
        let Some(place) = number.checked_sub(1) else { return self.default.0 };
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        others.get(place as usize).map_or(self.default.0, |stream| stream.0)
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that waits for the legacy default stream, on which other libraries may work.
fn new_stream() -> Result<Handle<sys::CUstream_st>> {
    Ok(Handle(result::stream::create(StreamKind::Default).told("cuStreamCreate")?))
}

impl Gpu {
    /// Makes a stream, and gives its number.
    pub fn new_stream(&self) -> Result<u64> {
        self.bind()?;
        let stream = new_stream()?;
        let mut others = self.streams.others.write().unwrap_or_else(PoisonError::into_inner);
        others.push(stream);
        Ok(others.len() as u64)
    }

    /// Marks the point behind all work that `stream` has been given so far. The number is spent once
    /// [`query`](Self::query) or [`wait`](Self::wait) said that the point was reached.
    pub fn record_event(&self, stream: u64) -> Result<u64> {
        self.bind()?;
        let mut events = self.streams.events();
        let event = match events.unused.pop() {
            Some(event) => event,
            None => {
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
                Handle(result::event::create(flags).told("cuEventCreate")?)
            }
        };
        // SAFETY: both handles are alive; the event is nobody else's.
        let recorded = unsafe { result::event::record(event.0, self.streams.handle(stream)) };
        if let Err(error) = recorded {
            events.unused.push(event);
            return Err(error).told("cuEventRecord");
        }
        events.next += 1;
        let number = events.next;
        events.recorded.insert(number, event);
        Ok(number)
    }

    /// Whether the stream has reached the event. Never waits.
    pub fn query(&self, event: u64) -> Result<bool> {
        self.bind()?;
        let mut events = self.streams.events();
        let handle = known(&events, event)?;
        // SAFETY: the event is alive and recorded.
        match unsafe { result::event::query(handle.0) } {
            Ok(()) => {
                events.spend(event);
                Ok(true)
            }
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(error).told("cuEventQuery"),
        }
    }

    /// Waits until the stream has reached the event.
    pub fn wait(&self, event: u64) -> Result<()> {
        self.bind()?;
        let handle = known(&self.streams.events(), event)?;
        // SAFETY: the event is alive and recorded; others may record and query meanwhile, but not this one.
        unsafe { result::event::synchronize(handle.0) }.told("cuEventSynchronize")?;
        self.streams.events().spend(event);
        Ok(())
    }

    /// Lets all work that `stream` is given from now on wait for what stream `awaited` of `other`, perhaps another device,
    /// has been given so far.
    pub fn follow(&self, stream: u64, other: &Self, awaited: u64) -> Result<()> {
        let number = other.record_event(awaited)?;
        let mut events = other.streams.events();
        let handle = known(&events, number)?;
        self.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are alive. The driver keeps what it needs of the event.
        let told = unsafe { result::stream::wait_event(self.streams.handle(stream), handle.0, flags) };
        events.spend(number);
        told.told("cuStreamWaitEvent")
    }

    /// Waits until all work that `stream` has been given is done.
    pub fn synchronize(&self, stream: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.streams.handle(stream)) }.told("cuStreamSynchronize")
    }

    /// Waits until all work on the device is done.
    pub fn synchronize_all(&self) -> Result<()> {
        self.bind()?;
        result::ctx::synchronize().told("cuCtxSynchronize")
    }
}

fn known(events: &Events, event: u64) -> Result<Handle<sys::CUevent_st>> {
    let missing = || Error::Driver {
        doing: "an event".to_owned(),
        message: format!("event {event} was reached before, or never recorded"),
    };
    events.recorded.get(&event).copied().ok_or_else(missing)
}

impl Events {
    fn spend(&mut self, event: u64) {
        self.unused.extend(self.recorded.remove(&event));
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let events = self.events.get_mut().unwrap_or_else(PoisonError::into_inner);
        for event in events.recorded.values().chain(&events.unused) {
            // SAFETY: made by `record_event`; nobody knows it any more.
            let _ = unsafe { result::event::destroy(event.0) };
        }
        let others = self.others.get_mut().unwrap_or_else(PoisonError::into_inner);
        for stream in others.iter().chain([&self.default]) {
            // SAFETY: made by `new_stream`; nobody uses it any more.
            let _ = unsafe { result::stream::destroy(stream.0) };
        }
    }
}
