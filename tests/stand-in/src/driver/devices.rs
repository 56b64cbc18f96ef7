//! The devices, their attributes and their contexts.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::failure::{Code, answer, fail, last_words, put};
use crate::functions::{Out, functions};
use crate::machine::{current, current_context, machine, set_current, start};
use crate::programs::MAX_THREADS;

/// Number of multiprocessors of a device. It is small, so that loops over a grid have several iterations.
const PROCESSORS: c_int = 4;

functions! {
    fn cuInit(_flags: c_uint) { start() }

    fn cuDriverGetVersion(version: Out<'_, c_int>) {
        let (major, minor) = machine()?.settings.driver;
        put(version, major * 1000 + minor * 10)
    }

    fn cuDeviceGetCount(count: Out<'_, c_int>) { put(count, c_int::from(machine()?.settings.devices)) }

    fn cuDeviceGet(device: Out<'_, c_int>, ordinal: c_int) { put(device, machine()?.device(ordinal)? as c_int) }

    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        machine()?.device(device)?;
        if name.is_null() || length <= 0 {
            return fail(Code::InvalidValue, "no place for the name");
        }
        let text = c"Highwater stand-in".to_bytes();
        let kept = &text[..text.len().min(length as usize - 1)];
        // SAFETY: the caller's place, of `length` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(kept.as_ptr().cast(), name, kept.len());
            name.add(kept.len()).write(0);
        }
        Ok(())
    }

    fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: c_int) {
        let machine = machine()?;
        machine.device(device)?;
        put(bytes, machine.budget.total() as usize)
    }

    fn cuDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_uint, device: c_int) {
        let machine = machine()?;
        machine.device(device)?;
        let capability = machine.settings.capability;
        let known = match attribute {
            // Threads of a block, in all and along x and y; along z.
            1..=3 => MAX_THREADS as c_int,
            4 => 64,
            // Blocks along x; y and z.
            5 => c_int::MAX,
            6 | 7 => 65535,
            // Shared memory of a block: without asking, at most; of a multiprocessor; what the system keeps of it.
            8 => 48 << 10,
            97 => most_shared_bytes(capability),
            81 => most_shared_bytes(capability) + (1 << 10),
            111 => 1 << 10,
            // Lanes of a warp.
            10 => 32,
            // Registers of a block and of a multiprocessor.
            12 | 82 => 65536,
            16 => PROCESSORS,
            // Bytes of the second cache.
            38 => 1 << 20,
            // Threads of a multiprocessor.
            39 => 2048,
            // One address space with the host; virtual memory management.
            41 | 102 => 1,
            75 => capability.0,
            76 => capability.1,
            // Pools of memory of the driver's own.
            115 => 0,
            unknown => return fail(Code::InvalidValue, format!("the stand-in does not know attribute {unknown}")),
        };
        put(value, known)
    }
}

/// Maximum shared memory that a block can request, in bytes.
pub(super) fn most_shared_bytes(capability: (i32, i32)) -> c_int {
    match capability {
        (8, 0 | 7) => 163 << 10,
        (8 | 12.., _) => 99 << 10,
        _ => 227 << 10,
    }
}

functions! {
    fn cuDevicePrimaryCtxRetain(context: Out<'_, u64>, device: c_int) {
        let mut machine = machine()?;
        let device = machine.device(device)?;
        put(context, machine.hold(device)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let mut machine = machine()?;
        let device = machine.device(device)?;
        machine.release_context(device)
    }

    /// Destroys everything in a device's context, even if the context is still retained.
    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        let mut machine = machine()?;
        let device = machine.device(device)?;
        machine.reset(device);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<'_, c_uint>, active: Out<'_, c_int>) {
        let machine = machine()?;
        let device = machine.device(device)?;
        put(flags, 0)?;
        put(active, c_int::from(machine.is_retained(device)))
    }

    fn cuCtxSetCurrent(context: u64) { set_current(context) }

    fn cuCtxGetCurrent(context: Out<'_, u64>) { put(context, current_context()) }

    fn cuCtxGetDevice(device: Out<'_, c_int>) { put(device, current()?.1 as c_int) }

    fn cuCtxSynchronize() {
        let (mut machine, device) = current()?;
        machine.streams.drain_device(device)
    }
}

fn code(number: c_int) -> Option<Code> {
    Code::ALL.into_iter().find(|&code| code as c_int == number)
}

functions! {
    fn cuGetErrorName(error: c_int, text: Out<'_, *const c_char>) -> c_int {
        let name = if error == 0 { Some(c"CUDA_SUCCESS") } else { code(error).map(Code::name) };
        let Some(place) = text else { return Code::InvalidValue as c_int };
        place.write(name.map_or(std::ptr::null(), CStr::as_ptr));
        if name.is_some() { 0 } else { Code::InvalidValue as c_int }
    }

    /// Returns the text of this thread's last failure if it had this code; it is valid until the next call.
    fn cuGetErrorString(error: c_int, text: Out<'_, *const c_char>) -> c_int {
        match (code(error).and_then(last_words), text) {
            (Some(words), Some(place)) => {
                place.write(words);
                0
            }
            (_, text) => cuGetErrorName(error, text),
        }
    }
}
