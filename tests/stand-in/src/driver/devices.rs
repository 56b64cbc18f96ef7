//! The devices, their attributes and their contexts.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int, c_uint};

use super::put;
use crate::failure::{Code, answer, fail, last_words};
use crate::machine::{current, current_context, machine, set_current, start};
use crate::programs::MAX_THREADS;

/// Multiprocessors of a device: few, so that the loops of kernels go round.
const PROCESSORS: c_int = 4;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(_flags: c_uint) -> i32 {
    answer(start)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe {
        let (major, minor) = machine()?.settings.driver;
        put(version, major * 1000 + minor * 10)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { put(count, c_int::from(machine()?.settings.devices)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { put(device, machine()?.device(ordinal)? as c_int) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> i32 {
    answer(|| {
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
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> i32 {
    answer(|| {
        let machine = machine()?;
        machine.device(device)?;
        // SAFETY: the caller's place.
        unsafe { put(bytes, machine.budget.total() as usize) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> i32 {
    answer(|| {
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
        // SAFETY: the caller's place.
        unsafe { put(value, known) }
    })
}

/// Maximum shared memory that a block can request, in bytes.
pub(super) fn most_shared_bytes(capability: (i32, i32)) -> c_int {
    match capability {
        (8, 0 | 7) => 163 << 10,
        (8 | 12.., _) => 99 << 10,
        _ => 227 << 10,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) -> i32 {
    answer(|| {
        let mut machine = machine()?;
        let device = machine.device(device)?;
        let handle = machine.hold(device)?;
        // SAFETY: the caller's place.
        unsafe { put(context, handle) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> i32 {
    answer(|| {
        let mut machine = machine()?;
        let device = machine.device(device)?;
        machine.let_go(device)
    })
}

/// Destroys everything in a device's context, although it may still be retained.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> i32 {
    answer(|| {
        let mut machine = machine()?;
        let device = machine.device(device)?;
        machine.reset(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> i32 {
    answer(|| {
        let machine = machine()?;
        let device = machine.device(device)?;
        // SAFETY: the caller's places.
        unsafe {
            put(flags, 0)?;
            put(active, c_int::from(machine.is_retained(device)))
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetCurrent(context: u64) -> i32 {
    answer(|| set_current(context))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetCurrent(context: *mut u64) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { put(context, current_context()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { put(device, current()?.1 as c_int) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSynchronize() -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        machine.streams.drain_device(device)
    })
}

fn code(number: c_int) -> Option<Code> {
    Code::ALL.into_iter().find(|&code| code as c_int == number)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    let name = if error == 0 { Some(c"CUDA_SUCCESS") } else { code(error).map(Code::name) };
    if text.is_null() {
        return Code::InvalidValue as c_int;
    }
    // SAFETY: the caller's place.
    unsafe { text.write(name.map_or(std::ptr::null(), |name| name.as_ptr())) };
    if name.is_some() { 0 } else { Code::InvalidValue as c_int }
}

/// Returns the text of this thread's last failure if it had this code; it is valid until the next call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    if let Some(words) = code(error).and_then(last_words)
        && !text.is_null()
    {
        // SAFETY: the caller's place.
        unsafe { text.write(words) };
        return 0;
    }
    // SAFETY: as promised by the caller.
    unsafe { cuGetErrorName(error, text) }
}
