//! Streams and events.
#![cfg_attr(not(test), expect(unsafe_code, reason = "functions that C calls"))]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Code, answer, fail, put};
use crate::functions::{Out, functions};
use crate::machine::{current, machine};

const NON_BLOCKING: c_uint = 1;
const WITHOUT_TIME: c_uint = 2;

/// Captures of streams into graphs. Graphs are unsupported: the work runs at once, and queries return no graph.
static CAPTURED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

functions! {
    fn cuStreamCreate(stream: Out<'_, u64>, flags: c_uint) {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        put(stream, machine.streams.create(device, flags & NON_BLOCKING == 0))
    }

    fn cuStreamDestroy_v2(stream: u64) {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.destroy(stream)
    }

    fn cuStreamSynchronize(stream: u64) {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.check(device)?;
        machine.streams.drain(stream)
    }

    fn cuStreamQuery(stream: u64) {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.check(device)?;
        if machine.streams.query(stream)? { Ok(()) } else { fail(Code::NotReady, "") }
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.follow(stream, event)
    }

    fn cuStreamBeginCapture_v2(stream: u64, _mode: c_int) {
        let (machine, device) = current()?;
        machine.streams.find(stream, device)?;
        CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
        Ok(())
    }

    /// Returns no graph.
    fn cuStreamEndCapture(stream: u64, graph: Out<'_, u64>) {
        if !CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream) {
            return fail(Code::InvalidValue, "the stream was not captured");
        }
        put(graph, 0)
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<'_, c_int>) {
        let (machine, device) = current()?;
        // The default stream of a thread is that of all threads here.
        machine.streams.find(if stream == 2 { 0 } else { stream }, device)?;
        let is_captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).contains(&stream);
        put(status, c_int::from(is_captured))
    }

    fn cuEventCreate(event: Out<'_, u64>, flags: c_uint) {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        put(event, machine.streams.create_event(device, flags & WITHOUT_TIME == 0))
    }

    fn cuEventDestroy_v2(event: u64) { machine()?.streams.destroy_event(event) }

    fn cuEventRecord(event: u64, stream: u64) {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.record(event, stream)
    }

    fn cuEventQuery(event: u64) {
        if machine()?.streams.query_event(event)? { Ok(()) } else { fail(Code::NotReady, "") }
    }

    fn cuEventSynchronize(event: u64) { machine()?.streams.wait(event) }

    fn cuEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: u64, end: u64) {
        put(milliseconds, machine()?.streams.elapsed_ms(start, end)?)
    }
}
