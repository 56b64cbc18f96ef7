//! Tests of the ledger: the effect of each call, and that all memory is counted once.

use highwater_recorder::{DeviceId, ScopeId, StreamId};

use super::{Allocation, Change, Ledger, NOWHERE, Name, New};

const MIB: u64 = 1 << 20;

fn new(bytes: u64) -> New {
    New { device: DeviceId(0), bytes, stream: StreamId(0), scope: ScopeId::NONE, context: 7 }
}

/// A ledger, and the changes that it has reported.
struct Recorded {
    ledger: Ledger,
    changes: Vec<Change>,
}

impl Recorded {
    fn new() -> Self {
        Self { ledger: Ledger::new(), changes: Vec::new() }
    }

    fn with<T>(&mut self, change: impl FnOnce(&mut Ledger, &mut dyn FnMut(Change)) -> T) -> T {
        let changes = &mut self.changes;
        change(&mut self.ledger, &mut |what| changes.push(what))
    }

    /// Returns the live allocations according to the reported changes; each must begin once and end once.
    fn live(&self) -> Vec<Allocation> {
        let mut live: Vec<Allocation> = Vec::new();
        for change in &self.changes {
            match *change {
                Change::Begins(allocation) => {
                    assert!(live.iter().all(|other| other.block != allocation.block), "a number is used again");
                    let overlaps = |other: &Allocation| {
                        other.address < allocation.address + allocation.bytes
                            && allocation.address < other.address + other.bytes
                    };
                    assert!(!live.iter().any(overlaps), "memory stands on other memory");
                    live.push(allocation);
                }
                Change::Ends(allocation) => {
                    let place = live.iter().position(|other| *other == allocation);
                    live.remove(place.expect("what ends has begun"));
                }
            }
        }
        live
    }

    /// Returns addresses and bytes of the live allocations, with address 0 for artificial addresses.
    fn places(&self) -> Vec<(u64, u64)> {
        let place = |allocation: Allocation| {
            (if allocation.address >= NOWHERE { 0 } else { allocation.address }, allocation.bytes)
        };
        let mut places: Vec<_> = self.live().into_iter().map(place).collect();
        places.sort_unstable();
        let state = self.ledger.state(DeviceId(0));
        let sum: u64 = places.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(state.blocks.iter().map(|block| block.alloc.allocated).sum::<u64>(), sum);
        assert_eq!(state.segments.iter().chain(&state.mappings).map(|range| range.bytes).sum::<u64>(), sum);
        places
    }
}

#[test]
fn memory_is_live_from_its_allocation_to_its_free() {
    let mut recorded = Recorded::new();
    let name = Name::Address(0x1000);
    recorded.with(|ledger, send| ledger.add(name, new(512), send));
    recorded.with(|ledger, send| ledger.add(Name::Array(0x1000), new(64), send));
    assert_eq!(recorded.places(), [(0, 64), (0x1000, 512)], "an array is no address");
    let taken = recorded.with(|ledger, send| ledger.take(name, send)).expect("it is held");
    assert_eq!(recorded.with(|ledger, send| ledger.take(name, send)), None);
    recorded.with(|ledger, send| ledger.put_back(name, taken, send));
    assert_eq!(recorded.places(), [(0, 64), (0x1000, 512)]);
    recorded.with(|ledger, send| ledger.add(name, new(256), send));
    assert_eq!(recorded.places(), [(0, 64), (0x1000, 256)], "handed out again, it was given back unseen");
}

#[test]
fn with_a_context_goes_what_was_obtained_in_it() {
    let mut recorded = Recorded::new();
    for (address, context) in [(0x1000, 7), (0x2000, 8), (0x3000, 7)] {
        recorded.with(|ledger, send| ledger.add(Name::Address(address), New { context, ..new(16) }, send));
    }
    recorded.with(|ledger, send| ledger.create(1, new(MIB), send));
    recorded.with(|ledger, send| ledger.end_context(7, send));
    assert_eq!(recorded.places(), [(0, MIB), (0x2000, 16)], "memory without addresses belongs to no context");
}

#[test]
fn pages_count_once_in_whatever_order_they_are_mapped_and_given_back() {
    // Create, map, release, unmap, as allocators with expandable segments do; and create, map, unmap, release.
    for release_first in [true, false] {
        let mut recorded = Recorded::new();
        recorded.with(|ledger, send| ledger.create(1, new(2 * MIB), send));
        assert_eq!(recorded.places(), [(0, 2 * MIB)]);
        recorded.with(|ledger, send| ledger.map(0x20_0000, 2 * MIB, 1, send));
        assert_eq!(recorded.places(), [(0x20_0000, 2 * MIB)]);
        if release_first {
            recorded.with(|ledger, send| ledger.release(1, send));
            assert_eq!(recorded.places(), [(0x20_0000, 2 * MIB)], "the mapping holds it");
        }
        recorded.with(|ledger, send| ledger.unmap(0x20_0000, 2 * MIB, send));
        if !release_first {
            assert_eq!(recorded.places(), [(0, 2 * MIB)], "the handle holds it");
            recorded.with(|ledger, send| ledger.release(1, send));
        }
        assert_eq!(recorded.places(), []);
        assert!(recorded.with(|ledger, send| ledger.release(1, send)).is_none(), "it is not known any more");
    }
}

#[test]
fn pages_mapped_twice_count_once_and_stand_where_they_are_still_mapped() {
    let mut recorded = Recorded::new();
    recorded.with(|ledger, send| ledger.create(1, new(2 * MIB), send));
    recorded.with(|ledger, send| ledger.map(0x20_0000, 2 * MIB, 1, send));
    recorded.with(|ledger, send| ledger.map(0x80_0000, 2 * MIB, 1, send));
    assert_eq!(recorded.places(), [(0x20_0000, 2 * MIB)]);
    recorded.with(|ledger, send| ledger.unmap(0x20_0000, 2 * MIB, send));
    assert_eq!(recorded.places(), [(0x80_0000, 2 * MIB)]);
    recorded.with(|ledger, send| ledger.release(1, send));
    recorded.with(|ledger, send| ledger.unmap(0x80_0000, 2 * MIB, send));
    assert_eq!(recorded.places(), []);
}

#[test]
fn one_call_takes_several_mappings_away_and_a_part_stands_nowhere() {
    let mut recorded = Recorded::new();
    for (handle, address) in [(1, 0x20_0000), (2, 0x40_0000), (3, 0x60_0000)] {
        recorded.with(|ledger, send| ledger.create(handle, new(2 * MIB), send));
        recorded.with(|ledger, send| ledger.map(address, 2 * MIB, handle, send));
        recorded.with(|ledger, send| ledger.release(handle, send));
    }
    recorded.with(|ledger, send| ledger.create(4, new(4 * MIB), send));
    recorded.with(|ledger, send| ledger.map(0x100_0000, 2 * MIB, 4, send));
    recorded.with(|ledger, send| ledger.unmap(0x20_0000, 4 * MIB, send));
    assert_eq!(recorded.places(), [(0, 4 * MIB), (0x60_0000, 2 * MIB)]);
    recorded.with(|ledger, send| ledger.unmap(0x100_0000, 2 * MIB, send));
    assert_eq!(recorded.places(), [(0, 4 * MIB), (0x60_0000, 2 * MIB)]);
}

#[test]
fn a_handle_that_was_given_again_must_be_given_back_again() {
    let mut recorded = Recorded::new();
    recorded.with(|ledger, send| ledger.create(1, new(2 * MIB), send));
    recorded.with(|ledger, send| ledger.map(0x20_0000, 2 * MIB, 1, send));
    recorded.with(|ledger, send| ledger.release(1, send));
    // The first handle is reused while its memory is mapped.
    recorded.with(|ledger, send| ledger.create(1, new(4 * MIB), send));
    recorded.with(|ledger, _| ledger.retain(0x20_0000 + MIB, 5));
    recorded.with(|ledger, _| ledger.retain(0x60_0000, 6));
    recorded.with(|ledger, send| ledger.unmap(0x20_0000, 2 * MIB, send));
    assert_eq!(recorded.places(), [(0, 2 * MIB), (0, 4 * MIB)]);
    recorded.with(|ledger, send| ledger.release(5, send));
    assert_eq!(recorded.places(), [(0, 4 * MIB)]);
    assert!(recorded.with(|ledger, send| ledger.release(6, send)).is_none(), "nothing was behind that address");
    let released = recorded.with(|ledger, send| ledger.release(1, send)).expect("it is known");
    assert_eq!(recorded.places(), []);
    recorded.with(|ledger, send| ledger.undo_release(released, send));
    assert_eq!(recorded.places(), [(0, 4 * MIB)]);
    assert!(recorded.with(|ledger, send| ledger.release(1, send)).is_some(), "it can be given back again");
    assert_eq!(recorded.places(), []);
}
