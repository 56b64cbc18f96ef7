//! Adds the private pools of segments to the events that reserved them. A snapshot contains pools only in its final
//! list of segments.

use std::collections::BTreeMap;

use super::super::raw::RawSegment;
use crate::rows::Rows;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::{Attribute, Owner, SegmentRole, TraceParts};

/// Adds the pools of the `segments` that are private. A range that is still reserved at the end belongs to the segment
/// that contains it.
pub(super) fn add_pools(trace: &mut TraceParts, segments: &[RawSegment], rows: &mut Rows) {
    let mut private: BTreeMap<(DeviceId, u64), (u64, (u64, u64))> = BTreeMap::new();
    for segment in segments.iter().filter(|segment| segment.pool_id != (0, 0)) {
        if let Ok(device) = u16::try_from(segment.device) {
            let end = segment.address.saturating_add(segment.total_size);
            private.insert((DeviceId(device), segment.address), (end, segment.pool_id));
        }
    }
    if private.is_empty() {
        return;
    }
    let name = rows.text(&mut trace.tables, "pool_id");
    let mut found: Vec<Attribute> = Vec::new();
    for id in trace.segments.ids() {
        let segment = trace.segments.get(id);
        let owner = Owner::Event(segment.alloc);
        let is_reserved = segment.alloc.is_some() && !segment.free.is_some() && segment.role != SegmentRole::Unmapping;
        if !is_reserved || trace.private_pool(owner).is_some() {
            continue;
        }
        let (device, address) = (segment.device, segment.range.address);
        let around = private.range(..=(device, address)).next_back();
        let around = around.filter(|((of, _), (end, _))| *of == device && address < *end);
        if let Some((_, (_, pool))) = around {
            let value = rows.text(&mut trace.tables, &format!("({}, {})", pool.0, pool.1));
            found.push(Attribute { owner, name, value });
        }
    }
    trace.attributes.extend(found);
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample::{MIB, Sample};
    use crate::raw::BlockState::Inactive;
    use highwater_snapshots::ids::EventId;
    use highwater_snapshots::trace::Owner;

    #[test]
    fn segments_obtained_in_the_recording_have_the_pool_that_the_snapshot_names_at_its_end() {
        let mut sample =
            Sample::of(&[("segment_alloc", 0x1000_0000, 20 * MIB), ("segment_alloc", 0x3000_0000, 20 * MIB)]);
        sample.segment_with(0x1000_0000, &[(20 * MIB, 0, Inactive)], |made| made.pool_id = (0, 7));
        sample.segment(0x3000_0000, &[(20 * MIB, 0, Inactive)]);
        let trace = sample.assemble();
        let pools = [0, 1].map(|event| trace.private_pool(Owner::Event(EventId(event))));
        assert_eq!(pools, [Some((0, 7)), None]);
    }
}
