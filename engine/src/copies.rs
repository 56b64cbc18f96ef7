//! Copies between host and device memory, and between devices.
#![expect(unsafe_code, reason = "has devices read and write memory by its address")]

use crate::storage::Storage;
use crate::{Error, Result};

impl Storage {
    /// Copies host bytes to CUDA memory at offset `first`. `bytes` may be modified once the function returns.
    pub(crate) fn copy_in(&self, op: &'static str, first: usize, bytes: &[u8]) -> Result<()> {
        assert!(first + bytes.len() <= self.bytes(), "a copy extends past the end of its storage");
        let place = self.lend_to_write(op)?;
        let gpu = self.device().gpu().ok_or(Error::NotOnHost { op })?;
        // SAFETY: the block belongs to this storage, and `bytes` fit. It was allocated for this stream, on which
        // earlier users of the memory are done by the time of the copy.
        unsafe { gpu.copy_in(place.address() + first as u64, bytes, self.device().stream().0) }?;
        Ok(())
    }

    /// Copies bytes of pinned memory, from offset `first`, to the start of `to` on its CUDA device, without waiting.
    pub(crate) fn copy_pinned_to(&self, op: &'static str, first: usize, to: &Self) -> Result<()> {
        assert!(first + to.bytes() <= self.bytes(), "a copy extends past the end of its storage");
        let stream = to.device().current_stream();
        let (from, place) = (self.lend(op)?, to.lend_to_write(op)?);
        let gpu = to.device().gpu().ok_or(Error::NotOnHost { op })?;
        // Before the copy is submitted: if that fails, recording an extra stream does no harm.
        self.begin_copy(&stream)?;
        let (from, bytes) = (from.address() + first as u64, to.bytes() as u64);
        // SAFETY: `place` is the block of `to`, allocated for this stream. `from` is pinned memory of this very device,
        // otherwise `begin_copy` would have failed. Freeing and writing it wait for the stream.
        unsafe { gpu.copy_from_pinned(place.address(), from, bytes, stream.id().0) }?;
        Ok(())
    }

    /// Copies bytes of one CUDA device's memory, from offset `first`, to the start of `to` on another, without waiting.
    /// The thread's current streams of both devices are synchronized.
    pub(crate) fn copy_across(&self, op: &'static str, first: usize, to: &Self) -> Result<()> {
        assert!(first + to.bytes() <= self.bytes(), "a copy extends past the end of its storage");
        let (from, place) = (self.lend(op)?, to.lend_to_write(op)?);
        let (Some(gpu), Some(other)) = (self.device().gpu(), to.device().gpu()) else {
            return Err(Error::NotOnHost { op });
        };
        let (from, bytes) = (from.address() + first as u64, to.bytes() as u64);
        let streams = (self.device().stream().0, to.device().stream().0);
        // SAFETY: both blocks belong to these storages, and the bytes are within them. The copy runs on this device's
        // stream like other work; the other device's stream, for which `to` was allocated, waits for it.
        unsafe { gpu.copy_across(from, streams.0, (other, place.address()), streams.1, bytes) }?;
        Ok(())
    }

    /// Copies bytes of CUDA memory from offset `first` to the host, after waiting for all operations so far.
    pub(crate) fn copy_out(&self, op: &'static str, first: usize, bytes: &mut [u8]) -> Result<()> {
        assert!(first + bytes.len() <= self.bytes(), "a copy extends past the end of its storage");
        let place = self.lend(op)?;
        let gpu = self.device().gpu().ok_or(Error::NotOnHost { op })?;
        // SAFETY: the block belongs to this storage, and the bytes are within it.
        unsafe { gpu.copy_out(bytes, place.address() + first as u64, self.device().stream().0) }?;
        self.device().check_faults()
    }
}
