//! Reads tensor shapes, which are the only supported attribute of recordings that are read in windows.

use super::Windows;
use crate::builder::StartingState;
use crate::error::{Error, Result};
use crate::event::BlockKey;
use crate::ids::{BlockId, DeviceId, EventId, StringId};
use crate::trace::{Attribute, Owner, SHAPE, Trace};

/// The allocation of a block. Identifies the block in every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The index of the event that allocated the block.
    Event(u64),
    /// The block was allocated before the recording.
    Before(DeviceId, BlockKey),
}

/// Blocks and their shapes, sorted by block.
pub(super) type ShapeRows = Vec<(Origin, StringId)>;

/// Converts the `attributes` of a file, which starts with `states`, to rows. Event indices are those within the file.
///
/// # Errors
/// Fails if any attribute is not the shape of a block, since such a file must be read as a whole.
pub(super) fn shape_rows(base: &Trace, states: &[StartingState], attributes: &[Attribute]) -> Result<ShapeRows> {
    let start: Vec<(DeviceId, BlockKey)> =
        if attributes.is_empty() { Vec::new() } else { start_keys(states).collect() };
    let row = |attribute: &Attribute| {
        let origin = match attribute.owner {
            Owner::Event(id) => Origin::Event(u64::from(id.0)),
            Owner::Block(BlockId(number)) => {
                let (device, key) = start.get(number as usize)?;
                Origin::Before(*device, *key)
            }
            Owner::Segment(_) => return None,
        };
        (base.tables.string(attribute.name) == SHAPE).then_some((origin, attribute.value))
    };
    let rows: Option<ShapeRows> = attributes.iter().map(row).collect();
    rows.ok_or_else(|| Error::NotAPart { name: "the file".to_owned() })
}

fn start_keys(states: &[StartingState]) -> impl Iterator<Item = (DeviceId, BlockKey)> {
    states.iter().flat_map(|state| state.blocks.iter().map(|block| (state.device, block.alloc.block)))
}

impl Windows {
    pub(super) fn take_shapes(&mut self) -> Result<()> {
        let mut rows = ShapeRows::new();
        for (file, part) in self.files.parts().iter().enumerate().filter(|(_, part)| !part.shapes.is_empty()) {
            let boundary = self.checkpoints.boundary(&self.files, file, || self.at_start())?;
            rows.extend(part.shapes.iter().map(|&(origin, value)| {
                let birth = |device, key| boundary?.births.get(&(device, key));
                let origin = match origin {
                    Origin::Event(number) => Origin::Event(part.first + number),
                    Origin::Before(device, key) => {
                        birth(device, key).map_or(origin, |birth| Origin::Event(birth.event))
                    }
                };
                (origin, value)
            }));
        }
        // If two files name the same block, the first one counts.
        rows.sort_by_key(|(origin, _)| *origin);
        rows.dedup_by_key(|(origin, _)| *origin);
        self.shapes = rows;
        Ok(())
    }

    /// Adds the shapes of a window's blocks. `keys` are the keys of these blocks.
    pub(super) fn add_shapes(&self, trace: &mut Trace, keys: &[BlockKey]) {
        let Some(name) = self.shape_name() else { return };
        for id in trace.blocks.ids() {
            let row = id.0 as usize;
            let before = || Origin::Before(trace.blocks.device[row], keys[row]);
            let origin = trace.alloc_number(id).map_or_else(before, Origin::Event);
            if let Ok(found) = self.shapes.binary_search_by_key(&origin, |(origin, _)| *origin) {
                let owner = trace.block_owner(id);
                trace.0.attributes.push(Attribute { owner, name, value: self.shapes[found].1 });
            }
        }
        trace.0.attributes.sort_by_key(|attribute| attribute.owner);
    }

    /// The shapes as attributes for a file with all events and the same starting states.
    pub(super) fn shape_attributes(&self) -> Vec<Attribute> {
        let Some(name) = self.shape_name() else { return Vec::new() };
        let keys = start_keys(&self.starting);
        let of_start = keys.zip(0..).filter_map(|((device, key), number)| {
            let found = self.shapes.binary_search_by_key(&Origin::Before(device, key), |(origin, _)| *origin).ok()?;
            Some(Attribute { owner: Owner::Block(BlockId(number)), name, value: self.shapes[found].1 })
        });
        let of_events = self.shapes.iter().filter_map(|(origin, value)| match origin {
            Origin::Event(number) => {
                let event = u32::try_from(*number).ok().map(EventId)?;
                Some(Attribute { owner: Owner::Event(event), name, value: *value })
            }
            Origin::Before(..) => None,
        });
        of_events.chain(of_start).collect()
    }

    /// The id of the attribute's name; `None` if there are no shapes.
    fn shape_name(&self) -> Option<StringId> {
        let mut strings = self.base.tables.strings.iter();
        strings.position(|text| !self.shapes.is_empty() && text == SHAPE).map(StringId::from_index)
    }
}
