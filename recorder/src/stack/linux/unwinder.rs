//! Stack capture with `_Unwind_Backtrace`, which every Rust program on Linux links. It is slow but reliable, and serves
//! as the walk's fallback and reference.

#![expect(unsafe_code, reason = "calls the C unwinder")]

use std::ffi::{c_int, c_void};

use crate::stack::MAX_FRAMES;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before_instruction: *mut c_int) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

pub(super) struct Trace {
    /// Return addresses, innermost first.
    frames: [u64; MAX_FRAMES],
    len: usize,
    pub(super) cut: bool,
    /// Return address of the first frame to keep. The frames inside it belong to the recorder.
    from: u64,
}

impl Trace {
    /// Captures the current stack from the frame with return address `from`, which must be a caller of this function.
    #[inline(never)]
    pub(super) fn take(from: u64) -> Self {
        let mut trace = Self { frames: [0; MAX_FRAMES], len: 0, cut: false, from };
        // SAFETY: `visit` gets a pointer to `trace`, which outlives the call, and does not unwind.
        unsafe { _Unwind_Backtrace(visit, (&raw mut trace).cast()) };
        trace
    }

    /// Returns the return addresses, innermost first. The list is empty if the first frame was not found.
    pub(super) fn frames(&self) -> &[u64] {
        &self.frames[..self.len]
    }
}

extern "C" fn visit(context: *mut c_void, trace: *mut c_void) -> c_int {
    let mut before_instruction = 0;
    // SAFETY: the unwinder passes a valid context, and `Trace::take` a pointer to its own trace.
    let (trace, found) =
        unsafe { (&mut *trace.cast::<Trace>(), _Unwind_GetIPInfo(context, &raw mut before_instruction) as u64) };
    // Zero marks the missing caller of the outermost frame.
    if found == 0 || trace.len == 0 && found != trace.from {
        return GO_ON;
    }
    if trace.len == MAX_FRAMES {
        trace.cut = true;
        return STOP;
    }
    // A frame that a signal interrupted has no return address. The address of its instruction plus one is stored
    // instead, so that subtracting one gives an address within it, as for all frames.
    trace.frames[trace.len] = found + u64::from(before_instruction != 0);
    trace.len += 1;
    GO_ON
}
