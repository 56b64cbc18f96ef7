//! Stream-ordered memory pools of devices and the host, and pointer attributes.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_uint, c_void};

use super::put;
use crate::failure::{Code, Result, answer, fail};
use crate::machine::{current, machine};

/// The handles of devices' own pools.
const POOLS: u64 = 0x5000_0000_0000;

/// `CU_STREAM_PER_THREAD`, which the stand-in takes for the one default stream that it has.
const PER_THREAD: u64 = 2;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut u64, device: c_int) -> i32 {
    answer(|| {
        let device = machine()?.device(device)?;
        // SAFETY: the caller's place.
        unsafe { put(pool, POOLS + device as u64 * 16) }
    })
}

/// Converts a stream handle to the stand-in's.
fn known(stream: u64) -> u64 {
    if stream == PER_THREAD { 0 } else { stream }
}

/// Allocates memory of a pool, or of the current device's default pool.
unsafe fn ask(address: *mut u64, bytes: usize, pool: Option<u64>, stream: u64) -> Result<()> {
    let (mut guard, device) = current()?;
    let machine = &mut *guard;
    machine.streams.find(known(stream), device)?;
    let of_pool = |pool: u64| machine.device(pool.wrapping_sub(POOLS) as i32 / 16);
    let owner = pool.map_or(Ok(device), of_pool)?;
    let block = machine.blocks.reserve(&mut machine.budget, owner, bytes)?;
    // SAFETY: as promised by the caller.
    unsafe { put(address, block as u64) }
}

/// Waits for the stream, and frees memory.
fn give_back(address: u64, stream: u64) -> Result<()> {
    let (mut guard, device) = current()?;
    let machine = &mut *guard;
    let stream = machine.streams.find(known(stream), device)?;
    machine.blocks.device_of(address as usize)?;
    machine.streams.drain(stream)?;
    machine.blocks.release(&mut machine.budget, address as usize);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { ask(address, bytes, None, stream) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: u64) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { ask(address, bytes, None, stream) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocFromPoolAsync(
    address: *mut u64,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { ask(address, bytes, Some(pool), stream) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocFromPoolAsync_ptsz(
    address: *mut u64,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { ask(address, bytes, Some(pool), stream) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFreeAsync(address: u64, stream: u64) -> i32 {
    answer(|| give_back(address, stream))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFreeAsync_ptsz(address: u64, stream: u64) -> i32 {
    answer(|| give_back(address, stream))
}

/// Allocates rows of memory, each padded to a multiple of 512 bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocPitch_v2(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    _element: c_uint,
) -> i32 {
    answer(|| {
        let row = width.checked_next_multiple_of(512).filter(|&row| row > 0);
        let Some((row, bytes)) = row.and_then(|row| Some((row, row.checked_mul(height)?))) else {
            return fail(Code::InvalidValue, format!("{height} rows of {width} bytes"));
        };
        // SAFETY: the caller's places.
        unsafe {
            ask(address, bytes, None, 0)?;
            put(pitch, row)
        }
    })
}

/// Allocates managed memory: memory of the device that the host may use too.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: c_uint) -> i32 {
    // SAFETY: the caller's place.
    answer(|| unsafe { ask(address, bytes, None, 0) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) -> i32 {
    // SAFETY: the caller's place.
    unsafe { super::memory::cuMemHostAlloc(address, bytes, 0) }
}

/// Returns the device of an address; other attributes are not supported.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_int, attribute: c_int, address: u64) -> i32 {
    const DEVICE_ORDINAL: c_int = 9;
    answer(|| {
        if attribute != DEVICE_ORDINAL {
            return fail(Code::InvalidValue, format!("the stand-in does not know attribute {attribute} of addresses"));
        }
        let device = machine()?.blocks.device_of(address as usize)?;
        // SAFETY: the caller's place, which for this attribute takes a number.
        unsafe { put(value, device as c_int) }
    })
}
