//! Attaches the shapes of tensors to the blocks that were allocated for them, as [attributes](SHAPE).
//!
//! The Python package lists tensors by address, at a [position](super::positions) or at the end of the recording. The
//! tensors listed by torch-snapkit have no time and are matched by their order at each address.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::super::raw::{LoggedShape, RunFacts};
use super::positions::Positions;
use crate::rows::Rows;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::{Attribute, SHAPE, TraceParts};

/// Adds the shapes in `run`, and those `logged` by torch-snapkit.
pub(super) fn add_shapes(trace: &mut TraceParts, run: &RunFacts, logged: &[LoggedShape], rows: &mut Rows) {
    let mut found: BTreeMap<BlockId, &str> = BTreeMap::new();
    add_listed(trace, run, &mut found);
    add_logged(trace, logged, &mut found);
    if found.is_empty() {
        return;
    }
    let name = rows.text(&mut trace.tables, SHAPE);
    for (block, shape) in found {
        let (owner, value) = (trace.block_owner(block), rows.text(&mut trace.tables, shape));
        trace.attributes.push(Attribute { owner, name, value });
    }
    trace.attributes.sort_by_key(|attribute| attribute.owner);
}

/// A line of the package's list, such as `0 140737488355328 131072 77 [32, 1024] float32`.
struct Line<'a> {
    device: u16,
    address: u64,
    /// Bytes of the storage, which the tensor fills.
    bytes: u64,
    /// The number of allocations on the device when the tensor was listed; `None` at the end, written as `-`.
    position: Option<u64>,
    shape: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(5, ' ');
        let device = parts.next()?.parse().ok()?;
        let [address, bytes] = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
        let position = match parts.next()? {
            "-" => None,
            text => Some(text.parse().ok()?),
        };
        Some(Self { device, address, bytes, position, shape: parts.next()? })
    }
}

/// Finds the blocks of the tensors that the package listed. If a block has several tensors, the first is used, since
/// the others are derived from it.
fn add_listed<'a>(trace: &TraceParts, run: &'a RunFacts, found: &mut BTreeMap<BlockId, &'a str>) {
    let lines: Vec<Line<'_>> = run.value("shapes").unwrap_or_default().lines().filter_map(Line::read).collect();
    let mut positions: BTreeMap<u16, Option<Positions>> = BTreeMap::new();
    for line in &lines {
        let Some(position) = line.position else { continue };
        let of_device = positions.entry(line.device).or_insert_with(|| Positions::in_run(trace, run, line.device));
        let block = of_device.as_ref().and_then(|positions| {
            let count = positions.recorded(position)?;
            positions.block(trace, count, line.address, line.bytes)
        });
        if let Some((block, _)) = block {
            found.entry(block).or_insert(line.shape);
        }
    }
    let is_live = |block: &BlockId| !trace.blocks.free_requested[block.0 as usize].is_some();
    let address = |row: usize| (trace.blocks.device[row], trace.blocks.address[row]);
    let live: HashMap<(DeviceId, u64), BlockId> =
        trace.blocks.ids().filter(is_live).map(|block| (address(block.0 as usize), block)).collect();
    for line in lines.iter().filter(|line| line.position.is_none()) {
        let block = live.get(&(DeviceId(line.device), line.address));
        if let Some(block) = block.filter(|block| line.bytes <= trace.blocks.allocated[block.0 as usize]) {
            found.entry(*block).or_insert(line.shape);
        }
    }
}

type AddressAndSize = (DeviceId, u64, u64);

/// Adds the shapes that torch-snapkit logged to `found`. Tensors and blocks are grouped by device, address and size. If
/// a group has as many tensors as blocks, they are matched in order. Otherwise, some of its blocks are temporaries
/// within operators, which are not logged, and a shape is used only if all tensors of the group have it.
fn add_logged<'a>(trace: &TraceParts, logged: &'a [LoggedShape], found: &mut BTreeMap<BlockId, &'a str>) {
    let mut tensors: HashMap<AddressAndSize, Vec<&str>> = HashMap::new();
    for tensor in logged {
        tensors.entry((DeviceId(tensor.device), tensor.address, tensor.bytes)).or_default().push(&tensor.shape);
    }
    if tensors.is_empty() {
        return;
    }
    let mut blocks: HashMap<AddressAndSize, Vec<BlockId>> = HashMap::new();
    for block in trace.blocks.ids() {
        let row = block.0 as usize;
        let key = (trace.blocks.device[row], trace.blocks.address[row], trace.blocks.requested[row]);
        if trace.blocks.alloc[row].is_some() && tensors.contains_key(&key) {
            blocks.entry(key).or_default().push(block);
        }
    }
    for (key, blocks) in blocks {
        let shapes = &tensors[&key];
        if blocks.len() == shapes.len() {
            found.extend(blocks.into_iter().zip(shapes.iter().copied()));
        } else if shapes.iter().all(|shape| *shape == shapes[0]) {
            found.extend(blocks.into_iter().map(|block| (block, shapes[0])));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample::Sample;
    use super::*;
    use crate::raw::BlockState::Allocated;
    use highwater_snapshots::Trace;

    const ADDRESS: u64 = 0x1000_0000;

    fn shapes(trace: &Trace) -> Vec<Option<&str>> {
        trace.blocks.ids().map(|id| trace.shape(id)).collect()
    }

    /// Two blocks of one address, of which the second is live at the end, and one beside them.
    fn sample() -> Sample {
        Sample::of(&[
            ("alloc", ADDRESS, 512),
            ("free_requested", ADDRESS, 512),
            ("free_completed", ADDRESS, 512),
            ("alloc", ADDRESS, 512),
            ("alloc", ADDRESS + 512, 1024),
        ])
    }

    fn listed(lines: &[&str]) -> Trace {
        let mut sample = sample();
        sample.intake.run_value("device.0.allocations", "43");
        sample.intake.run_value("shapes", lines.join("\n"));
        sample.assemble()
    }

    fn logged(tensors: &[(u64, u64, &str)]) -> Trace {
        let mut sample = sample();
        for &(address, bytes, shape) in tensors {
            sample.intake.logged_shape(LoggedShape { device: 0, address, bytes, shape: shape.to_owned() });
        }
        sample.assemble()
    }

    #[test]
    fn tensors_of_a_position_and_of_the_end_are_those_of_the_live_block() {
        let trace = listed(&[
            "0 268435456 512 - [8, 16] float32",
            "0 268435456 512 41 [128] float32",
            "0 268435456 512 43 [64, 2] float32",
            "0 268435968 2048 - [512] float32",
            "0 7 512 41 [1] float32",
            "1 268435456 512 - [2] float32",
            "0 268435456 512 99 [3] float32",
            "no line",
        ]);
        let expected = [Some("[128] float32"), Some("[64, 2] float32"), None];
        assert_eq!(shapes(&trace), expected, "the last is larger than its block");
        assert!(trace.header.facts.iter().all(|(name, _)| name != "shapes"), "{:?}", trace.header.facts);
        let trace = listed(&["0 268435456 512 - [8, 16] float32", "0 268435968 1024 - [] x"]);
        assert_eq!(shapes(&trace), [None, Some("[8, 16] float32"), Some("[] x")]);
    }

    #[test]
    fn blocks_from_before_the_recording_have_the_shapes_of_the_end() {
        let mut sample = Sample::of(&[]);
        sample.segment(ADDRESS, &[(512, 512, Allocated)]);
        sample.intake.run_value("shapes", "0 268435456 512 - [128] float32");
        assert_eq!(shapes(&sample.assemble()), [Some("[128] float32")]);
    }

    #[test]
    fn logged_tensors_are_in_the_order_of_allocations_or_all_alike() {
        let (a, b) = ("[128] float32", "[64, 2] float32");
        assert_eq!(shapes(&logged(&[(ADDRESS, 512, a), (ADDRESS, 512, b)])), [Some(a), Some(b), None]);
        assert_eq!(shapes(&logged(&[(ADDRESS, 512, a)])), [Some(a), Some(a), None]);
        let many = [(ADDRESS, 512, a), (ADDRESS, 512, b), (ADDRESS, 512, b), (ADDRESS + 512, 1000, a)];
        assert_eq!(shapes(&logged(&many)), [None, None, None], "it is not known which is which");
    }
}
