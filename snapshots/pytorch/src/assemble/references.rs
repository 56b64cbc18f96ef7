//! Attaches the references found by the Python package to their blocks, as [attributes](ATTRIBUTE). The package gives a
//! block's address at a [position](super::positions).

use std::collections::BTreeMap;

use super::super::raw::RunFacts;
use super::positions::Positions;
use super::run::{full_ring, missing_events};
use crate::rows::Rows;
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::references::{ATTRIBUTE, References, Saved};
use highwater_snapshots::trace::{Attribute, TraceParts};

pub(super) fn add_references(trace: &mut TraceParts, run: &RunFacts, rows: &mut Rows) {
    let text = run.value("references").unwrap_or_default();
    if text.is_empty() {
        return;
    }
    let mut devices: BTreeMap<u16, Option<OfDevice>> = BTreeMap::new();
    for line in text.lines() {
        let Some(line) = Line::read(line) else { continue };
        let of_device =
            devices.entry(line.device).or_insert_with(|| Positions::in_run(trace, run, line.device).map(OfDevice::new));
        if let Some(of_device) = of_device {
            of_device.add(line, trace);
        }
    }
    let mut found: BTreeMap<BlockId, References> = BTreeMap::new();
    for (device, of_device) in devices {
        match of_device {
            Some(OfDevice { found: of_blocks, unknown: 0, is_cut: false, .. }) => found.extend(of_blocks),
            // The recording begins within a step that was followed. A part of the facts would mislead.
            Some(OfDevice { is_cut: true, .. }) => {}
            // They are lost, which the recording reports.
            Some(_) if missing_events(run, DeviceId(device)) > 0 => {}
            Some(_) if full_ring(run, DeviceId(device), trace.events.len()).is_some() => {}
            // A part of the facts would mislead. The program may have reset its counters.
            _ => {
                let what = format!(
                    "device {device}: references to tensors do not match the snapshot's blocks, so none are used: \
                     predictions for recomputed modules are less exact"
                );
                trace.problems.push(Problem::new(what));
            }
        }
    }
    let name = rows.text(&mut trace.tables, ATTRIBUTE);
    for (block, references) in found {
        let owner = trace.block_owner(block);
        let value = rows.text(&mut trace.tables, &references.to_string());
        trace.attributes.push(Attribute { owner, name, value });
    }
    trace.attributes.sort_by_key(|attribute| attribute.owner);
}

struct OfDevice {
    positions: Positions,
    found: BTreeMap<BlockId, References>,
    /// Number of lines that match no block.
    unknown: u64,
    /// Whether a reference begins before the recording and ends in it.
    is_cut: bool,
}

impl OfDevice {
    fn new(positions: Positions) -> Self {
        Self { positions, found: BTreeMap::new(), unknown: 0, is_cut: false }
    }

    fn add(&mut self, line: Line<'_>, trace: &TraceParts) {
        // Files of a rotation, and recordings within another, begin after the steps that were followed first.
        let [begins_before, ends_before] = [line.first(), line.last()].map(|at| self.positions.is_before(at));
        if begins_before {
            self.is_cut |= !ends_before;
            return;
        }
        // Memory of another allocator has an address that no block ever has.
        if self.positions.by_address.contains_key(&line.address) {
            let added = line.add(&self.positions, trace, &mut self.found);
            self.unknown += u64::from(added.is_none());
        }
    }
}

/// Maximum number of allocations within a node of the graph that are searched for reduced gradients.
const MAX_REDUCTIONS: u64 = 256;

impl Positions {
    /// Returns the position before the last allocations of `reduced` bytes each between two positions. These are
    /// gradients that a node reduces after it no longer needs any saved tensor. `None` if there are none.
    fn before_reduction(&self, trace: &TraceParts, reduced: &str, from: Option<u64>, to: Option<u64>) -> Option<u64> {
        let (from, mut position) = (from?.max(to?.saturating_sub(MAX_REDUCTIONS)), to?);
        let is_of = |position: u64, bytes: u64| {
            let alloc = self.allocs[position as usize - 1];
            trace.blocks.requested.get(trace.events.subject[alloc.0 as usize] as usize) == Some(&bytes)
        };
        for bytes in reduced.rsplit(',') {
            let bytes = bytes.parse().ok()?;
            position = (from + 1..=position).rev().find(|position| is_of(*position, bytes))? - 1;
        }
        Some(position)
    }
}

struct Line<'a> {
    kind: &'a str,
    device: u16,
    address: u64,
    bytes: u64,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(5, ' ');
        let kind = parts.next()?;
        let device = parts.next()?.parse().ok()?;
        let [address, bytes] = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
        Some(Self { kind, device, address, bytes, rest: parts.next()? })
    }

    fn first(&self) -> Option<u64> {
        self.rest.split(' ').next()?.parse().ok()
    }

    /// Returns the last position at which a saved tensor is released, or otherwise the first one, if it is a number.
    fn last(&self) -> Option<u64> {
        let released = self.rest.split(' ').nth(3).and_then(|text| text.parse().ok());
        released.filter(|_| self.kind == "saved").or_else(|| self.first())
    }

    fn add(self, positions: &Positions, trace: &TraceParts, found: &mut BTreeMap<BlockId, References>) -> Option<()> {
        let fields = match self.kind {
            "saved" => 5,
            "input" => 2,
            _ => 1,
        };
        let mut parts = self.rest.splitn(fields, ' ');
        // The address is that of the block at the first position.
        let first = positions.recorded(parts.next()?.parse().ok()?)?;
        let (block, own) = positions.block(trace, first, self.address, self.bytes)?;
        let later = |parts: &mut std::str::SplitN<'_, char>| match parts.next()? {
            "-" => Some(None),
            text => Some(Some(positions.recorded(text.parse().ok()?)?)),
        };
        let packed = first.checked_sub(own)?;
        let references = found.entry(block).or_default();
        match self.kind {
            "end" => references.end = Some(packed),
            "input" => references.inputs.push((packed, parts.next()?.to_owned())),
            "saved" => {
                let unpacked = later(&mut parts)?;
                let reduced = parts.next()?;
                let released = later(&mut parts)?;
                let dropped = positions.before_reduction(trace, reduced, unpacked, released);
                let module = parts.next()?.to_owned();
                let [unpacked, dropped, released] =
                    [unpacked, dropped, released].map(|position| position.and_then(|count| count.checked_sub(own)));
                references.saved.push(Saved { packed, unpacked, dropped, released, module });
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample::Sample;
    use super::*;
    use highwater_snapshots::trace::{Owner, Trace};

    /// Two blocks, of which the second has the address of the first; the program had made 40 allocations before.
    fn sample(references: &str) -> Trace {
        let address = 0x1000_0000;
        let mut sample = Sample::of(&[
            ("alloc", address, 512),
            ("free_requested", address, 512),
            ("free_completed", address, 512),
            ("alloc", address, 512),
            ("alloc", address + 512, 1024),
            ("alloc", address + 2048, 64),
        ]);
        sample.intake.run_value("device.0.allocations", "44");
        sample.intake.run_value("references", references);
        sample.assemble()
    }

    fn attributes(trace: &Trace) -> Vec<(u32, &str)> {
        let named = trace.attributes.iter().filter(|fact| trace.tables.string(fact.name) == ATTRIBUTE);
        named
            .map(|fact| match fact.owner {
                Owner::Event(event) => (event.0, trace.tables.string(fact.value)),
                _ => panic!("{fact:?} is of no event"),
            })
            .collect()
    }

    fn problem(trace: &Trace) -> Option<String> {
        trace.problems.iter().map(ToString::to_string).find(|text| text.contains("references to tensors do not match"))
    }

    #[test]
    fn references_are_those_of_the_block_that_was_live_at_the_address() {
        let trace = sample(
            "input 0 268435456 512 41 blocks.0\nend 0 268435456 500 43\nsaved 0 268435456 512 42 42 64 44 blocks.1",
        );
        let expected = [(0, "input 0 blocks.0"), (3, "end 1\nsaved 0 0 1 2 blocks.1")];
        assert_eq!(
            attributes(&trace),
            expected,
            "what needs no more is dropped before the reduced gradient of 64 bytes"
        );
        assert!(problem(&trace).is_none());
    }

    #[test]
    fn memory_of_another_allocator_and_unreadable_lines_are_left_out() {
        let trace = sample("input 0 268435456 512 41 blocks.0\nend 0 7 512 43\nx");
        assert_eq!(attributes(&trace), [(0, "input 0 blocks.0")]);
        assert!(problem(&trace).is_none());
        assert!(problem(&sample("end 3 268435456 512 43")).is_some(), "a device whose allocations were not counted");
    }

    #[test]
    fn references_from_before_the_recording_are_left_out() {
        let earlier = "input 0 268435456 512 39 blocks.0\nsaved 0 268435456 512 38 39 64 39 blocks.1\n";
        let trace = sample(&format!("{earlier}input 0 268435456 512 41 blocks.0"));
        assert_eq!((attributes(&trace), problem(&trace)), (vec![(0, "input 0 blocks.0")], None));
        let cut = sample("saved 0 268435456 512 39 42 64 44 blocks.1\ninput 0 268435456 512 41 blocks.0");
        assert_eq!((attributes(&cut), problem(&cut)), (vec![], None), "of a step that began earlier, none is used");
    }

    #[test]
    fn references_that_fit_no_block_are_reported_and_none_is_used() {
        for wrong in ["end 0 268435456 512 45", "end 0 268435456 4096 43", "end 0 268435456 512 x"] {
            let trace = sample(&format!("input 0 268435456 512 41 blocks.0\n{wrong}"));
            assert!(attributes(&trace).is_empty(), "{wrong}");
            assert!(problem(&trace).is_some(), "{wrong}");
        }
    }
}
