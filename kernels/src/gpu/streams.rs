//! Streams and events, identified by ids.
//!
//! Stream 0 is the default stream, on which work runs unless another stream is given. Ids are not reused.
#![expect(unsafe_code, reason = "calls the driver's streams and events")]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::{result, sys};

use super::Gpu;
use super::handles::Handle;
use crate::error::{Error, Result, ToResult};

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
    // Reused, since creating an event costs more than recording one.
    unused: Vec<Handle<sys::CUevent_st>>,
}

impl Streams {
    /// Creates the default stream of the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { default: new_stream()?, others: RwLock::default(), events: Mutex::default() })
    }

    /// Returns the driver's handle of the stream with id `number`, or of the default stream if there is no such stream.
    pub(super) fn handle(&self, number: u64) -> sys::CUstream {
        let Some(place) = number.checked_sub(1) else { return self.default.0 };
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        others.get(place as usize).map_or(self.default.0, |stream| stream.0)
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a stream that synchronizes with the legacy default stream, which other libraries may use.
fn new_stream() -> Result<Handle<sys::CUstream_st>> {
    Ok(Handle(result::stream::create(StreamKind::Default).context("cuStreamCreate")?))
}

impl Gpu {
    /// Creates a stream and returns its id.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    pub fn new_stream(&self) -> Result<u64> {
        self.bind()?;
        let stream = new_stream()?;
        let mut others = self.streams.others.write().unwrap_or_else(PoisonError::into_inner);
        others.push(stream);
        Ok(others.len() as u64)
    }

    /// Records an event after all work submitted to `stream` so far, and returns its id. The id becomes invalid once
    /// [`query`](Self::query) returns true or [`wait`](Self::wait) returns.
    ///
    /// # Errors
    /// Fails if a driver call fails.
    pub fn record_event(&self, stream: u64) -> Result<u64> {
        self.bind()?;
        let mut events = self.streams.events();
        let event = match events.unused.pop() {
            Some(event) => event,
            None => {
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
                Handle(result::event::create(flags).context("cuEventCreate")?)
            }
        };
        // SAFETY: both handles are live; the event is not in use.
        let recorded = unsafe { result::event::record(event.0, self.streams.handle(stream)) };
        if let Err(error) = recorded {
            events.unused.push(event);
            return Err(error).context("cuEventRecord");
        }
        events.next += 1;
        let number = events.next;
        events.recorded.insert(number, event);
        Ok(number)
    }

    /// Returns whether the stream has reached the event, without waiting.
    ///
    /// # Errors
    /// Fails if the id is invalid or the driver call fails.
    pub fn query(&self, event: u64) -> Result<bool> {
        self.bind()?;
        let mut events = self.streams.events();
        let handle = handle_of(&events, event)?;
        // SAFETY: the event is live and recorded.
        match unsafe { result::event::query(handle.0) } {
            Ok(()) => {
                events.spend(event);
                Ok(true)
            }
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(error).context("cuEventQuery"),
        }
    }

    /// Waits until the stream has reached the event.
    ///
    /// # Errors
    /// Fails if the id is invalid or the driver call fails.
    pub fn wait(&self, event: u64) -> Result<()> {
        self.bind()?;
        let handle = handle_of(&self.streams.events(), event)?;
        // SAFETY: the event is live and recorded; other threads may record and query other events in the meantime, but
        // not this one.
        unsafe { result::event::synchronize(handle.0) }.context("cuEventSynchronize")?;
        self.streams.events().spend(event);
        Ok(())
    }

    /// Makes later work on `stream` wait for the work submitted so far to stream `awaited` of `other`.
    ///
    /// # Errors
    /// Fails if a driver call fails.
    pub fn follow(&self, stream: u64, other: &Self, awaited: u64) -> Result<()> {
        let number = other.record_event(awaited)?;
        let mut events = other.streams.events();
        let handle = handle_of(&events, number)?;
        self.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are live. The driver keeps the state of the event that it needs.
        let context = unsafe { result::stream::wait_event(self.streams.handle(stream), handle.0, flags) };
        events.spend(number);
        context.context("cuStreamWaitEvent")
    }

    /// Waits until all work submitted to `stream` is complete.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    pub fn synchronize(&self, stream: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream is live.
        unsafe { result::stream::synchronize(self.streams.handle(stream)) }.context("cuStreamSynchronize")
    }

    /// Waits until all work on the device is complete.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    pub fn synchronize_all(&self) -> Result<()> {
        self.bind()?;
        result::ctx::synchronize().context("cuCtxSynchronize")
    }
}

/// Returns the handle of a recorded event; fails if there is none.
fn handle_of(events: &Events, event: u64) -> Result<Handle<sys::CUevent_st>> {
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
            // SAFETY: created by `record_event`; no longer in use.
            let _ = unsafe { result::event::destroy(event.0) };
        }
        let others = self.others.get_mut().unwrap_or_else(PoisonError::into_inner);
        for stream in others.iter().chain([&self.default]) {
            // SAFETY: created by `new_stream`; no longer in use.
            let _ = unsafe { result::stream::destroy(stream.0) };
        }
    }
}
