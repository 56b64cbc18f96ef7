//! Streams and events. Work is complete as soon as it is submitted, so nothing waits.
#![expect(unsafe_code, reason = "calls functions of the program, and exports functions under NVIDIA's names")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use crate::abi::{Out, SUCCESS, answer, creates, functions, give, refuses, succeeds};
use crate::notes::{Kind, note};

/// The time at which each event was recorded, by event handle.
static RECORDED: LazyLock<Mutex<HashMap<usize, Instant>>> = LazyLock::new(Mutex::default);

creates! {
    cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cuStreamCreate
    cudaEventCreate cudaEventCreateWithFlags cuEventCreate
}

succeeds! {
    cudaStreamDestroy cudaStreamQuery cudaStreamSynchronize cudaStreamWaitEvent cuStreamWriteValue32
    cuStreamSynchronize cuStreamWaitEvent cuStreamDestroy_v2
    cudaEventQuery cudaEventSynchronize cuEventSynchronize cuEventQuery
    cudaStreamAttachMemAsync cudaStreamSetAttribute cudaStreamGetAttribute
}

refuses! { cudaIpcGetEventHandle cudaIpcOpenEventHandle }

functions! {
    fn cudaStreamGetPriority(_stream: usize, priority: Out<'_, c_int>) { give(priority, 0) }
    fn cudaStreamGetFlags(_stream: usize, flags: Out<'_, u32>) { give(flags, 0) }
    fn cudaStreamGetDevice(_stream: usize, device: Out<'_, c_int>) {
        give(device, crate::devices::current() as c_int);
    }
    fn cudaStreamGetId(stream: usize, id: Out<'_, u64>) { give(id, stream as u64) }

    /// Returns the priorities, where smaller numbers are higher priorities.
    fn cudaDeviceGetStreamPriorityRange(least: Out<'_, c_int>, greatest: Out<'_, c_int>) {
        give(least, 0);
        give(greatest, -5);
    }

    fn cudaEventRecord, cudaEventRecordWithFlags, cuEventRecord(event: usize) {
        RECORDED.lock().unwrap_or_else(PoisonError::into_inner).insert(event, Instant::now());
    }
    fn cudaEventDestroy, cuEventDestroy_v2(event: usize) {
        RECORDED.lock().unwrap_or_else(PoisonError::into_inner).remove(&event);
    }

    /// Returns the milliseconds that passed on the host between two events. Never 0, since programs divide by it.
    fn cudaEventElapsedTime, cudaEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: usize, end: usize) {
        note(Kind::Time, "cudaEventElapsedTime");
        let recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        let between = recorded.get(&start).zip(recorded.get(&end)).map(|(start, end)| end.saturating_duration_since(*start));
        give(milliseconds, (between.unwrap_or_default().as_secs_f32() * 1e3).max(1e-3));
    }

    fn cudaLaunchHostFunc(_stream: usize, function: Option<unsafe extern "C" fn(*mut c_void)>, argument: *mut c_void) {
        if let Some(function) = function {
            // SAFETY: the program's own function, with the argument that it passes.
            unsafe { function(argument) };
        }
    }

    fn cudaStreamAddCallback(
        stream: usize,
        function: Option<unsafe extern "C" fn(usize, c_int, *mut c_void)>,
        argument: *mut c_void,
    ) {
        if let Some(function) = function {
            // SAFETY: the program's own function, with the argument that it passes.
            unsafe { function(stream, SUCCESS, argument) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn time_passes_between_events() {
        let between = |start, end| {
            let mut time = MaybeUninit::new(-1.0);
            cudaEventElapsedTime(Some(&mut time), start, end);
            // SAFETY: initialized above.
            unsafe { time.assume_init() }
        };
        assert!(between(1, 2) > 0.0, "neither was recorded");
        cudaEventRecord(1);
        std::thread::sleep(std::time::Duration::from_millis(2));
        cudaEventRecord(2);
        assert!(between(1, 2) >= 2.0 && between(2, 1) > 0.0);
    }
}
