//! Applies the facts about the recorded program to the header, to devices, and to blocks that were live tensors.

use hashbrown::{HashMap, HashSet};

use super::super::raw::{RawTensor, RunFacts};
use crate::rows::Rows;
use highwater_snapshots::Category;
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::{DeviceFacts, Header, NOTE, TraceParts};
use highwater_snapshots::units::format_count;

/// Names of values that are stored in separate fields rather than as facts.
const PLACED: [&str; 13] = [
    "version",
    "rank",
    "world_size",
    "host",
    "pid",
    "program",
    "max_entries",
    "notes",
    "extra_steps",
    "last_step",
    "references",
    "shapes",
    "package",
];
/// Prefix of the names of values about a device, such as `device.0.name` or `device.0.total_bytes`.
const DEVICE: &str = "device.";

/// Maximum lag of PyTorch's clock behind the system clock, in nanoseconds.
const CLOCKS_DIFFER_NS: u64 = 1_000_000;

/// Returns the header of a recording of this program. Values without a field are facts under their names.
pub(super) fn header(run: &RunFacts) -> Header {
    let text = |name: &str| run.value(name).unwrap_or_default().to_owned();
    let is_placed = |name: &str| PLACED.contains(&name) || name.starts_with(DEVICE);
    let others = run.values.iter().filter(|(name, _)| !is_placed(name)).cloned();
    let notes = run.value("notes").unwrap_or_default().lines().map(|note| (NOTE.to_owned(), note.to_owned()));
    Header {
        program: text("program"),
        host: text("host"),
        pid: run.number("pid").unwrap_or(0),
        // One process alone is not a rank.
        rank: run.number("rank").filter(|_| run.number::<u32>("world_size").is_some_and(|world| world > 1)),
        world_size: run.number("world_size"),
        ring_capacity: run.number("max_entries"),
        facts: others.chain(notes).collect(),
        ..Header::default()
    }
}

pub(super) fn with_facts(facts: DeviceFacts, run: &RunFacts) -> DeviceFacts {
    let of_device = |what: &str| format!("{DEVICE}{}.{what}", facts.device.0);
    let name = run.value(&of_device("name")).map_or_else(|| facts.name.clone(), str::to_owned);
    let capacity_bytes = run.number(&of_device("total_bytes")).unwrap_or(facts.capacity_bytes);
    DeviceFacts { name, capacity_bytes, ..facts }
}

/// Returns the number of events of a device that PyTorch dropped, according to its counters.
pub(super) fn missing_events(run: &RunFacts, device: DeviceId) -> u64 {
    run.number(&format!("{DEVICE}{}.events_missing", device.0)).unwrap_or(0)
}

/// Returns a note about a ring of `run`'s capacity that `events` of a device have filled; `None` if they have not.
pub(super) fn full_ring(run: &RunFacts, device: DeviceId, events: usize) -> Option<String> {
    let most: usize = run.number("max_entries").filter(|most| *most <= events)?;
    let what = format!(
        "device {}: PyTorch kept the last {} events: blocks from before have no stack, and no module except for \
         tensors that are live at the end",
        device.0,
        format_count(most as u64)
    );
    Some(what)
}

/// Sets the categories of blocks that contain one of `tensors`. Blocks without a module also get the module that owns
/// the tensor. `origin_us` is the time of the recording's origin.
pub(super) fn name_tensors(trace: &mut TraceParts, tensors: &[RawTensor], origin_us: u64, table_rows: &mut Rows) {
    if tensors.is_empty() {
        return;
    }
    let mut by_address: HashMap<u64, Vec<usize>> = HashMap::new();
    for row in 0..trace.blocks.len() {
        by_address.entry(trace.blocks.address[row]).or_default().push(row);
    }
    let (mut at_end, mut unknown) = (0, 0);
    let mut named = HashSet::new();
    for tensor in tensors {
        let rows = by_address.get(&tensor.address).map_or(&[][..], Vec::as_slice);
        // If a tensor is larger than the block, the list and the blocks are from different times.
        let fits =
            |row: &usize| tensor.bytes <= trace.blocks.allocated[*row] && was_live_at(trace, *row, tensor, origin_us);
        let category = Category::from_name(&tensor.category);
        at_end += u64::from(tensor.time_us == 0);
        let (Some(row), Some(category)) = (rows.iter().copied().rfind(fits), category) else {
            unknown += u64::from(tensor.time_us == 0);
            continue;
        };
        trace.blocks.category[row] = category;
        // A tag of the block is better than any name; the names of the end come last, and replace earlier ones.
        if !trace.blocks.scope[row].is_some() || named.contains(&row) {
            trace.blocks.scope[row] = table_rows.path(&mut trace.tables, owner(&tensor.name, category));
            named.insert(row);
        }
    }
    if unknown > 0 {
        let what = format!(
            "{unknown} of {at_end} tensors live at the end are not in any block of the snapshot: their categories are \
             not used"
        );
        trace.problems.push(Problem::new(what));
    }
}

/// Returns whether a block was live when `tensor` was listed, at its time or at the end of the recording.
fn was_live_at(trace: &TraceParts, row: usize, tensor: &RawTensor, origin_us: u64) -> bool {
    let (alloc, free) = (trace.blocks.alloc[row], trace.blocks.free_requested[row]);
    if tensor.time_us == 0 {
        return free == EventId::NONE;
    }
    let time_ns = tensor.time_us.saturating_sub(origin_us).saturating_mul(1000);
    let is_made = trace.events.time_of(alloc).is_none_or(|made| made <= time_ns.saturating_add(CLOCKS_DIFFER_NS));
    is_made && trace.events.time_of(free).is_none_or(|freed| freed > time_ns)
}

/// Returns the path of the module that owns a tensor: the tensor's name without the name of the parameter or of the
/// optimizer state.
fn owner(name: &str, category: Category) -> &str {
    let without_last = |path: &str| path.rfind('.').unwrap_or(0);
    let parameter = if category == Category::OptimizerState { &name[..without_last(name)] } else { name };
    &parameter[..without_last(parameter)]
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample::{MIB, Sample};
    use crate::raw::BlockState::Allocated;
    use crate::raw::RawTensor;
    use highwater_snapshots::{Category, Trace};

    fn tensor(sample: &mut Sample, address: u64, time_us: u64, category: &str, name: &str) {
        let (category, name) = (category.to_owned(), name.to_owned());
        sample.intake.run_tensor(RawTensor { address, bytes: 512, time_us, category, name });
    }

    fn scopes(trace: &Trace) -> Vec<String> {
        trace.blocks.scope.iter().map(|scope| trace.tables.scope_path(*scope)).collect()
    }

    #[test]
    fn tensors_alive_at_the_dump_have_known_categories_and_owners() {
        let mut sample = Sample::of(&[]);
        let size = 512;
        sample.segment(0x1000_0000, &[(size, size, Allocated), (size, size, Allocated), (size, size, Allocated)]);
        let address = |row: u64| 0x1000_0000 + 512 * row;
        tensor(&mut sample, address(0), 0, "parameter", "blocks.0.weight");
        // The model has changed since.
        tensor(&mut sample, address(0), 0, "parameter", "blocks.0.fc.weight");
        tensor(&mut sample, address(1), 0, "optimizer_state", "blocks.0.fc.weight.exp_avg");
        tensor(&mut sample, 0x7, 0, "gradient", "elsewhere");
        for (name, value) in [("rank", "3"), ("world_size", "8"), ("device.0.total_bytes", "1024"), ("host", "node7")] {
            sample.intake.run_value(name, value);
        }
        let trace = sample.assemble();
        assert_eq!(trace.blocks.category, [Category::Parameter, Category::OptimizerState, Category::Unknown]);
        assert_eq!(scopes(&trace), ["blocks.0.fc", "blocks.0.fc", ""]);
        assert_eq!(
            (trace.header.rank, trace.header.world_size, trace.header.host.as_str()),
            (Some(3), Some(8), "node7")
        );
        assert_eq!(trace.devices[0].capacity_bytes, 1024);
    }

    #[test]
    fn events_that_pytorch_has_dropped_are_lost() {
        let mut sample = Sample::of(&[("alloc", 0x1000_0000, 512)]);
        sample.intake.run_value("device.0.events_missing", "7");
        sample.intake.run_value("device.3.events_missing", "9");
        let trace = sample.assemble();
        assert_eq!(trace.trust.events_lost, 7);
        assert!(
            trace.header.facts.iter().all(|(name, _)| !name.starts_with(super::DEVICE)),
            "{:?}",
            trace.header.facts
        );
    }

    #[test]
    fn notes_of_the_package_are_notes_of_the_header_and_no_problems() {
        let mut sample = Sample::of(&[]);
        sample.intake.run_value("notes", "compiled: net\nsteps: 2");
        let trace = sample.assemble();
        assert_eq!(trace.header.notes().collect::<Vec<_>>(), ["compiled: net", "steps: 2"]);
        assert_eq!(trace.problems, []);
    }

    #[test]
    fn a_tensor_that_was_listed_earlier_names_the_block_that_was_live_then() {
        let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB)]);
        let mut listed = 0;
        for second in 0..3 {
            sample.clock = (10 + second) * 1_000_000;
            sample.event(0, "alloc", 0x1000_0000, 512);
            listed = if second == 1 { sample.clock + 500_000 } else { listed };
            sample.clock += 900_000;
            sample.event(0, "free_requested", 0x1000_0000, 512);
            sample.event(0, "free_completed", 0x1000_0000, 512);
        }
        tensor(&mut sample, 0x1000_0000, listed, "parameter", "net.weight");
        // Between two lives of the address, and too large.
        tensor(&mut sample, 0x1000_0000, listed + 450_000, "gradient", "net.weight");
        let (category, name) = ("gradient".to_owned(), "net.weight".to_owned());
        sample.intake.run_tensor(RawTensor { address: 0x1000_0000, bytes: 4096, time_us: listed, category, name });
        let trace = sample.assemble();
        assert_eq!(trace.blocks.category, [Category::Unknown, Category::Parameter, Category::Unknown]);
        assert_eq!(scopes(&trace), ["", "net", ""]);
    }
}
