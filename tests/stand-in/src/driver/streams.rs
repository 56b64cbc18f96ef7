//! Streams and events.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use super::put;
use crate::failure::{Code, answer, fail};
use crate::machine::{current, machine};

const NON_BLOCKING: c_uint = 1;
const WITHOUT_TIME: c_uint = 2;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: c_uint) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        let made = machine.streams.create(device, flags & NON_BLOCKING == 0);
        // SAFETY: the caller's place.
        unsafe { put(stream, made) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamDestroy_v2(stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.destroy(stream)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamSynchronize(stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.check(device)?;
        machine.streams.drain(stream)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamQuery(stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.check(device)?;
        if machine.streams.query(stream)? { Ok(()) } else { fail(Code::NotReady, "") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.follow(stream, event)
    })
}

/// Captures of streams into graphs. The stand-in has no graphs: the work runs, and there is nothing to query.
static CAPTURED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamBeginCapture_v2(stream: u64, _mode: c_int) -> i32 {
    answer(|| {
        let (machine, device) = current()?;
        machine.streams.find(stream, device)?;
        CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
        Ok(())
    })
}

/// Returns no graph.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> i32 {
    answer(|| {
        if !CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream) {
            return fail(Code::InvalidValue, "the stream was not captured");
        }
        // SAFETY: the caller's place.
        unsafe { put(graph, 0) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamIsCapturing(stream: u64, status: *mut c_int) -> i32 {
    answer(|| {
        let (machine, device) = current()?;
        // The default stream of a thread is that of all threads here.
        machine.streams.find(if stream == 2 { 0 } else { stream }, device)?;
        let is_captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).contains(&stream);
        // SAFETY: the caller's place.
        unsafe { put(status, c_int::from(is_captured)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuEventCreate(event: *mut u64, flags: c_uint) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        let made = machine.streams.create_event(device, flags & WITHOUT_TIME == 0);
        // SAFETY: the caller's place.
        unsafe { put(event, made) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventDestroy_v2(event: u64) -> i32 {
    answer(|| machine()?.streams.destroy_event(event))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventRecord(event: u64, stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.record(event, stream)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventQuery(event: u64) -> i32 {
    answer(|| if machine()?.streams.query_event(event)? { Ok(()) } else { fail(Code::NotReady, "") })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventSynchronize(event: u64) -> i32 {
    answer(|| machine()?.streams.wait(event))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { put(milliseconds, machine()?.streams.elapsed_ms(start, end)?) })
}
