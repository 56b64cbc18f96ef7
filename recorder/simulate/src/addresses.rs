//! The address space of the simulated devices.
#![expect(unsafe_code, reason = "reserves address space")]

// The rule is written once, for replays and for this library, which has no dependencies.
#[expect(unreachable_pub, reason = "public in the other crate")]
#[path = "../../../snapshots/src/alloc_rules/addresses.rs"]
mod order;

use order::REGION_BYTES;
pub(crate) use order::{AddressOrder, Addresses};

/// Size of the pages in which device memory is allocated.
pub(crate) const PAGE_BYTES: usize = order::PAGE_BYTES as usize;

/// The address space, given by the start and size (16 TiB) of a range that is unused on most machines.
const SPACE: (usize, usize) = (0x6000_0000_0000, 16 << 40);

/// Reserves the address space of all devices. It cannot be read or written, so a program that uses device memory on the
/// host fails as it would with a GPU.
pub(crate) fn reserve(order: AddressOrder) -> Option<Addresses> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (wanted, bytes) = SPACE;
    let start = [wanted, 0].into_iter().find_map(|address| {
        let at = std::ptr::without_provenance_mut(address);
        // SAFETY: a new mapping, at addresses that the kernel chooses, near those asked for if they are free.
        let start = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, -1, 0) };
        (start != libc::MAP_FAILED).then(|| start.addr())
    })?;
    Some(Addresses::within(order, (start as u64).next_multiple_of(REGION_BYTES), (start + bytes) as u64))
}
