//! Copies between host memory and devices, and between devices.
#![expect(unsafe_code, reason = "has devices read and write memory by its address")]

use crate::error::{Error, Result};
use crate::storage::Storage;

impl Storage {
    /// Writes host bytes to a CUDA device's memory from `first` on; they may change once this returns.
    pub(crate) fn copy_in(&self, op: &'static str, first: usize, bytes: &[u8]) -> Result<()> {
        assert!(first + bytes.len() <= self.bytes(), "a copy ends within its storage");
        let place = self.lend_to_write(op)?;
        let gpu = self.device().gpu().ok_or(Error::NotOnHost { op })?;
        // SAFETY: the block is this storage's, and `bytes` fit. It was allocated for this stream, on which earlier
        // users of the memory are done by the time of the copy.
        unsafe { gpu.copy_in(place.address() + first as u64, bytes, self.device().stream().0) }?;
        Ok(())
    }

    /// Writes the bytes of pinned memory from `first` on to the beginning of its CUDA device's memory `to`, without
    /// waiting.
    pub(crate) fn copy_pinned_to(&self, op: &'static str, first: usize, to: &Self) -> Result<()> {
        assert!(first + to.bytes() <= self.bytes(), "a copy ends within its storage");
        let stream = to.device().current_stream();
        let (from, place) = (self.lend(op)?, to.lend_to_write(op)?);
        let gpu = to.device().gpu().ok_or(Error::NotOnHost { op })?;
        // Before the copy is given: if that fails, a stream too many does no harm.
        self.begin_copy(&stream)?;
        let (from, bytes) = (from.address() + first as u64, to.bytes() as u64);
        // SAFETY: `place` is that storage's block, allocated for this stream. `from` is memory of the pool of pinned
        // memory of this very device, else naming the stream would have failed. Freeing it waits for the stream, as
        // does writing.
        unsafe { gpu.copy_from_pinned(place.address(), from, bytes, stream.id().0) }?;
        Ok(())
    }

    /// Writes the bytes of one CUDA device's memory from `first` on to the beginning of another's, without waiting. The
    /// streams that the thread is in on both devices wait for each other.
    pub(crate) fn copy_across(&self, op: &'static str, first: usize, to: &Self) -> Result<()> {
        assert!(first + to.bytes() <= self.bytes(), "a copy ends within its storage");
        let (from, place) = (self.lend(op)?, to.lend_to_write(op)?);
        let (Some(gpu), Some(other)) = (self.device().gpu(), to.device().gpu()) else {
            return Err(Error::NotOnHost { op });
        };
        let (from, bytes) = (from.address() + first as u64, to.bytes() as u64);
        let streams = (self.device().stream().0, to.device().stream().0);
        // SAFETY: both blocks are these storages', and the bytes lie in them. The copy is work of this device's stream,
        // as any other; the other's stream, for which `to` was allocated, waits for it.
        unsafe { gpu.copy_across(from, streams.0, (other, place.address()), streams.1, bytes) }?;
        Ok(())
    }

    /// Reads bytes of a CUDA device's memory from `first` on, after waiting for all operations so far.
    pub(crate) fn copy_out(&self, op: &'static str, first: usize, bytes: &mut [u8]) -> Result<()> {
        assert!(first + bytes.len() <= self.bytes(), "a copy ends within its storage");
        let place = self.lend(op)?;
        let gpu = self.device().gpu().ok_or(Error::NotOnHost { op })?;
        // SAFETY: the block is this storage's, and the bytes lie in it.
        unsafe { gpu.copy_out(bytes, place.address() + first as u64, self.device().stream().0) }?;
        self.device().check_faults()
    }
}
