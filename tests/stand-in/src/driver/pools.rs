//! Stream-ordered memory pools of devices and the host, and pointer attributes.
#![cfg_attr(not(test), expect(unsafe_code, reason = "functions that C calls"))]

use std::ffi::{c_int, c_uint, c_void};

use crate::failure::{Code, Result, answer, fail, put};
use crate::functions::{Out, functions};
use crate::machine::{current, machine};

/// The handles of the default pools of devices.
const POOLS: u64 = 0x5000_0000_0000;

/// `CU_STREAM_PER_THREAD`, which the stand-in treats as its single default stream.
const PER_THREAD: u64 = 2;

/// Converts a stream handle of CUDA to that of the stand-in.
fn known(stream: u64) -> u64 {
    if stream == PER_THREAD { 0 } else { stream }
}

/// Allocates memory of a pool, or of the current device's default pool.
fn ask(address: Out<'_, u64>, bytes: usize, pool: Option<u64>, stream: u64) -> Result<()> {
    let (mut guard, device) = current()?;
    let machine = &mut *guard;
    machine.streams.find(known(stream), device)?;
    let of_pool = |pool: u64| machine.device(pool.wrapping_sub(POOLS) as i32 / 16);
    let owner = pool.map_or(Ok(device), of_pool)?;
    let block = machine.blocks.reserve(&mut machine.budget, owner, bytes)?;
    put(address, block as u64)
}

/// Waits for the stream's work, then frees memory.
fn give_back(address: u64, stream: u64) -> Result<()> {
    let (mut guard, device) = current()?;
    let machine = &mut *guard;
    let stream = machine.streams.find(known(stream), device)?;
    machine.blocks.device_of(address as usize)?;
    machine.streams.drain(stream)?;
    machine.blocks.release(&mut machine.budget, address as usize);
    Ok(())
}

functions! {
    fn cuDeviceGetDefaultMemPool(pool: Out<'_, u64>, device: c_int) {
        let device = machine()?.device(device)?;
        put(pool, POOLS + device as u64 * 16)
    }

    fn cuMemAllocAsync, cuMemAllocAsync_ptsz(address: Out<'_, u64>, bytes: usize, stream: u64) {
        ask(address, bytes, None, stream)
    }

    fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz(
        address: Out<'_, u64>,
        bytes: usize,
        pool: u64,
        stream: u64,
    ) {
        ask(address, bytes, Some(pool), stream)
    }

    fn cuMemFreeAsync, cuMemFreeAsync_ptsz(address: u64, stream: u64) { give_back(address, stream) }

    /// Allocates rows of memory, each padded to a multiple of 512 bytes.
    fn cuMemAllocPitch_v2(address: Out<'_, u64>, pitch: Out<'_, usize>, width: usize, height: usize, _element: c_uint) {
        let row = width.checked_next_multiple_of(512).filter(|&row| row > 0);
        let Some((row, bytes)) = row.and_then(|row| Some((row, row.checked_mul(height)?))) else {
            return fail(Code::InvalidValue, format!("{height} rows of {width} bytes"));
        };
        ask(address, bytes, None, 0)?;
        put(pitch, row)
    }

    /// Allocates managed memory: memory of the device that the host may use too.
    fn cuMemAllocManaged(address: Out<'_, u64>, bytes: usize, _flags: c_uint) {
        ask(address, bytes, None, 0)
    }

    fn cuMemAllocHost_v2(address: Out<'_, *mut c_void>, bytes: usize) -> i32 {
        super::memory::cuMemHostAlloc(address, bytes, 0)
    }

    /// Returns the device of an address; other attributes are not supported.
    fn cuPointerGetAttribute(value: Out<'_, c_int>, attribute: c_int, address: u64) {
        const DEVICE_ORDINAL: c_int = 9;
        if attribute != DEVICE_ORDINAL {
            return fail(Code::InvalidValue, format!("the stand-in does not know attribute {attribute} of addresses"));
        }
        put(value, machine()?.blocks.device_of(address as usize)? as c_int)
    }
}
