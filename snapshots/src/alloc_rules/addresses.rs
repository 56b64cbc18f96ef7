//! The order in which a driver returns device addresses. PyTorch's allocator breaks ties by address, so the reserved
//! bytes of some programs depend on this order.
//!
//! Depends on nothing else in this crate, because the simulated GPU, which has no dependencies, includes this file.

use std::collections::BTreeMap;

/// The granularity of device memory in bytes.
pub(super) const PAGE_BYTES: u64 = 2 << 20;

/// Granularity in bytes at which the Linux driver reserves address space.
pub(super) const REGION_BYTES: u64 = 32 << 20;

/// The order in which a driver returns addresses, derived from public recordings of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressOrder {
    /// Regions downward from a ceiling, each filled upward, as NVIDIA's driver does on Linux.
    #[default]
    Linux,
    /// Upward from a floor, as NVIDIA's driver does on Windows and in WSL.
    Windows,
}

impl AddressOrder {
    /// All address orders, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("linux", Self::Linux), ("windows", Self::Windows)];

    /// Returns the order with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, order)| order)
    }
}

/// An address space, with the ranges that are in use and free.
#[derive(Debug)]
pub struct Addresses {
    order: AddressOrder,
    floor: u64,
    /// The lowest address of any region.
    lowest: u64,
    /// The free address ranges: the end of each, by its start.
    free: BTreeMap<u64, u64>,
}

impl Addresses {
    /// Creates the free address space from `floor` to `ceiling`.
    pub fn within(order: AddressOrder, floor: u64, ceiling: u64) -> Self {
        let free = match order {
            AddressOrder::Linux => BTreeMap::new(),
            AddressOrder::Windows => BTreeMap::from([(floor, ceiling)]),
        };
        Self { order, floor, lowest: ceiling - ceiling % REGION_BYTES, free }
    }

    /// Reserves a range of `bytes` aligned to `alignment`; `None` if no such range is free.
    pub fn take(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let alignment = alignment.max(PAGE_BYTES);
        let fits = |(start, end): (&u64, &u64)| {
            let at = start.next_multiple_of(alignment);
            at.checked_add(bytes).filter(|last| last <= end).map(|_| (*start, *end, at))
        };
        if let Some((start, end, at)) = self.free.iter().find_map(fits) {
            self.free.remove(&start);
            self.add_free(start, at);
            self.add_free(at + bytes, end);
            return Some(at);
        }
        if self.order == AddressOrder::Windows {
            return None;
        }
        let region = bytes.checked_next_multiple_of(REGION_BYTES)?.checked_add(alignment)?;
        let start = self.lowest.checked_sub(region)?;
        let at = (self.lowest - bytes.next_multiple_of(REGION_BYTES)) / alignment * alignment;
        if start < self.floor {
            return None;
        }
        self.add_free(at + bytes, self.lowest);
        self.lowest = at;
        Some(at)
    }

    /// Frees a range.
    pub fn give_back(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, _)) = self.free.range(..start).next_back().filter(|(_, end)| **end == start) {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.add_free(start, end);
    }

    fn add_free(&mut self, start: u64, end: u64) {
        if start < end {
            self.free.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TOP: u64 = 1 << 40;

    fn space(order: AddressOrder) -> Addresses {
        Addresses::within(order, 0, TOP)
    }

    #[test]
    fn on_linux_regions_go_downward_and_are_filled_upward() {
        let mut addresses = space(AddressOrder::Linux);
        let mut take = |mib: u64| TOP - addresses.take(mib * MIB, 1).unwrap();
        assert_eq!(take(2), 32 * MIB, "a region of 32 MiB, from its start");
        assert_eq!(take(20), 30 * MIB, "in the same region");
        assert_eq!(take(20), 64 * MIB, "in a region below");
        assert_eq!(take(12), 44 * MIB, "in the first hole");
        assert_eq!(take(40), 128 * MIB, "a region of 64 MiB");
    }

    #[test]
    fn on_windows_the_first_hole_from_the_floor_is_taken() {
        let mut addresses = space(AddressOrder::Windows);
        assert_eq!(addresses.take(2 * MIB, 1), Some(0));
        assert_eq!(addresses.take(20 * MIB, 1), Some(2 * MIB));
        addresses.give_back(0, 2 * MIB);
        assert_eq!(addresses.take(4 * MIB, 1), Some(22 * MIB));
        assert_eq!(addresses.take(2 * MIB, 1), Some(0));
    }

    #[test]
    fn ranges_that_are_given_back_become_one_hole() {
        for order in [AddressOrder::Linux, AddressOrder::Windows] {
            let mut addresses = space(order);
            let taken: Vec<u64> = (0..16).map(|_| addresses.take(2 * MIB, 1).unwrap()).collect();
            for number in [3, 1, 2, 0, 15, 14, 4] {
                addresses.give_back(taken[number], 2 * MIB);
            }
            assert_eq!(addresses.take(10 * MIB, 1), Some(taken[0]));
        }
    }

    #[test]
    fn starts_are_aligned_and_ranges_apart() {
        for order in [AddressOrder::Linux, AddressOrder::Windows] {
            let mut addresses = space(order);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (mib, alignment) in [(2, 2), (6, 64), (130, 512), (4, 2), (2, 1024), (34, 2)] {
                let start = addresses.take(mib * MIB, alignment * MIB).unwrap();
                assert_eq!(start % (alignment * MIB), 0);
                assert!(taken.iter().all(|(at, bytes)| start >= at + bytes || start + mib * MIB <= *at));
                taken.push((start, mib * MIB));
            }
        }
    }

    #[test]
    fn a_full_space_has_nothing_left() {
        assert_eq!(space(AddressOrder::Windows).take(TOP + PAGE_BYTES, 1), None);
        assert_eq!(space(AddressOrder::Linux).take(u64::MAX - 5, 1), None);
    }
}
