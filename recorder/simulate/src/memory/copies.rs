//! Copies and fills. Copies to a device do nothing, and copies from a device return zeros, except for small known
//! [contents](crate::contents) and for [answers](crate::answers).
#![expect(unsafe_code, reason = "copies host memory, and exports functions under NVIDIA's names")]

use std::ffi::c_int;

use super::is_on_device;
use crate::abi::{answer, functions, succeeds};
use crate::answers::{self, Answer};
use crate::contents::{self, MAX_BYTES};
use crate::notes::{self, Kind};

fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    match (is_on_device(to.addr()), is_on_device(from.addr())) {
        (true, true) => match contents::read(from.addr(), bytes) {
            Some(known) => contents::written(to.addr(), &known),
            None => contents::forget(to.addr(), bytes),
        },
        // Large copies read nothing, so that untouched host memory gets no pages.
        (true, false) if bytes > MAX_BYTES => contents::forget(to.addr(), bytes),
        // SAFETY: the caller's memory, which it has copied from.
        (true, false) => contents::written(to.addr(), unsafe { std::slice::from_raw_parts(from, bytes) }),
        (false, true) => {
            let known = contents::read(from.addr(), bytes).map(|bytes| Answer { bytes, is_known: true });
            let answer = known.or_else(|| if bytes <= MAX_BYTES { answers::next(bytes) } else { None });
            // SAFETY: the caller's memory, which it has copied to.
            unsafe {
                match &answer {
                    Some(answer) => std::ptr::copy_nonoverlapping(answer.bytes.as_ptr(), to, bytes),
                    None => std::ptr::write_bytes(to, 0, bytes),
                }
            }
            if !answer.is_some_and(|answer| answer.is_known) {
                notes::note(Kind::UnknownValue, if bytes <= MAX_BYTES { "small" } else { "large" });
            }
        }
        // SAFETY: both are the caller's memory; they may overlap.
        (false, false) => unsafe { std::ptr::copy(from, to, bytes) },
    }
}

fn fill(to: *mut u8, value: u8, bytes: usize) {
    if is_on_device(to.addr()) {
        if bytes <= MAX_BYTES {
            contents::written(to.addr(), &vec![value; bytes]);
        } else {
            contents::forget(to.addr(), bytes);
        }
    } else {
        // SAFETY: the caller's memory.
        unsafe { std::ptr::write_bytes(to, value, bytes) };
    }
}

functions! {
    fn cudaMemcpy, cudaMemcpyAsync, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2,
        cuMemcpyDtoDAsync_v2, cuMemcpyAsync(to: *mut u8, from: *const u8, bytes: usize) { copy(to, from, bytes) }
    fn cudaMemcpyPeerAsync(to: *mut u8, _device: c_int, from: *const u8, _from_device: c_int, bytes: usize) {
        copy(to, from, bytes);
    }

    fn cudaMemcpy2D, cudaMemcpy2DAsync(
        to: *mut u8, pitch: usize, from: *const u8, from_pitch: usize, width: usize, height: usize,
    ) {
        for row in 0..height {
            copy(to.wrapping_add(row * pitch), from.wrapping_add(row * from_pitch), width);
        }
    }

    fn cudaMemset, cudaMemsetAsync(to: *mut u8, value: c_int, bytes: usize) { fill(to, value as u8, bytes) }
    fn cuMemsetD8Async(to: *mut u8, value: u8, bytes: usize) { fill(to, value, bytes) }
    /// Writes contents of device memory to a host buffer. Returns 1, or 0 if not all of them are known.
    fn highwater_simulate_contents(from: usize, to: *mut u8, bytes: usize) -> c_int {
        let Some(known) = contents::read(from, bytes) else { return 0 };
        // SAFETY: the caller's buffer of this length.
        unsafe { std::ptr::copy_nonoverlapping(known.as_ptr(), to, bytes) };
        1
    }

    /// Marks the contents of `count` 32-bit values as unknown.
    fn cuMemsetD32Async(to: *mut u8, _value: u32, count: usize) {
        contents::forget(to.addr(), count.saturating_mul(4));
    }
}

succeeds! { cudaMemcpyToSymbol cudaMemcpyToSymbolAsync cudaMemcpyFromSymbol cudaMemcpy3DAsync cudaMemcpy3DPeerAsync }

#[cfg(test)]
mod tests {
    use super::super::memory;
    use super::*;

    #[test]
    fn a_small_copy_comes_back_and_the_contents_behind_it_are_zeros() {
        let device = memory().allocate(0, 1 << 20).unwrap();
        let at = |offset: usize| std::ptr::without_provenance_mut::<u8>(device + offset);
        let mut host = [5, 6, 7, 8];
        copy(at(4), host.as_ptr(), 4);
        copy(at(100), at(5), 2);
        copy(host.as_mut_ptr(), at(100), 2);
        assert_eq!(host, [6, 7, 7, 8]);
        copy(host.as_mut_ptr(), at(6), 4);
        assert_eq!(host, [0; 4], "two of these bytes were never written");
        let mut other = [1; 4];
        copy(other.as_mut_ptr(), host.as_ptr(), 4);
        assert_eq!(other, [0; 4]);
    }
}
