//! Host memory that represents a device's, between guard pages that fault when touched.
#![expect(unsafe_code, reason = "maps memory of the host")]

use std::ptr;

use crate::failure::{Code, Result, fail};

/// The value of every byte of new memory, which is NaN in every floating-point dtype.
pub(crate) const FRESH: u8 = 0xff;

/// The contents of fresh memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// [`FRESH`] in every byte.
    NoNumber,
    /// Fills nothing: untouched memory contains zeros and takes no memory of the host.
    Zeros,
}

/// The alignment of addresses that the driver guarantees.
pub(crate) const ALIGNMENT: usize = 512;

/// Pages of the host, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: usize,
    bytes: usize,
}

impl Mapping {
    /// Reserves addresses that fault when touched.
    pub(crate) fn reserve(bytes: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping of the system's choice touches nothing that there is.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return fail(Code::OutOfMemory, format!("the host has no {bytes} bytes of addresses"));
        }
        Ok(Self { start: start.expose_provenance(), bytes })
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Makes whole pages readable and writable, from `offset` on.
    pub(crate) fn open(&self, offset: usize, bytes: usize) -> Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let start = ptr::with_exposed_provenance_mut(self.start + offset);
        // SAFETY: the part lies in this mapping, which is nobody else's.
        if !inside || unsafe { libc::mprotect(start, bytes, protection) } != 0 {
            return fail(Code::OutOfMemory, format!("the host has no {bytes} bytes of memory"));
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `reserve`; whoever dropped this uses it no more.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.bytes) };
    }
}

/// The page size of the host.
pub(crate) fn host_page() -> usize {
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Bytes on both sides of memory that fault when touched.
const GUARD_BYTES: usize = 1 << 20;

/// Memory whose first byte is aligned and whose end is as close as the alignment permits to inaccessible addresses.
#[derive(Debug)]
pub(crate) struct Guarded {
    _mapping: Mapping,
    /// The first byte.
    pub(crate) address: usize,
    /// The size of the memory in bytes, without guard pages.
    pub(crate) bytes: usize,
}

impl Guarded {
    /// Maps memory at a multiple of `alignment`, which must divide the page size.
    pub(crate) fn new(bytes: usize, alignment: usize, fresh: Fresh) -> Result<Self> {
        let whole = bytes.checked_next_multiple_of(host_page());
        let Some((whole, all)) = whole.and_then(|whole| Some((whole, whole.checked_add(2 * GUARD_BYTES)?))) else {
            return fail(Code::OutOfMemory, format!("{bytes} bytes are more than there are addresses"));
        };
        let mapping = Mapping::reserve(all)?;
        mapping.open(GUARD_BYTES, whole)?;
        let start = mapping.start() + GUARD_BYTES;
        if fresh == Fresh::NoNumber {
            // SAFETY: just opened for writing.
            unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(start), FRESH, whole) };
        }
        Ok(Self { address: start + whole - bytes.next_multiple_of(alignment), _mapping: mapping, bytes })
    }
}
