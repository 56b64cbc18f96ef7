//! The contents of a recording while it is built.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{
    Annotation, Attribute, Blocks, DeviceFacts, DeviceUse, Events, Header, Owner, Segments, SourceText, Spans, Start,
    Trace, Trust,
};
use crate::Category;
use crate::error::Problem;
use crate::event::{EventKind, Oom};
use crate::ids::{BlockId, DeviceId, EventId};
use crate::sum_rule::SumRule;
use crate::tables::Tables;

/// The parts of a [`Trace`].
#[derive(Clone, Debug, Default)]
pub struct TraceParts {
    /// How the recording was made.
    pub header: Header,
    /// The recorded devices, by ordinal.
    pub devices: Vec<DeviceFacts>,
    /// Strings, frames, stacks, scopes and ops.
    pub tables: Tables,
    /// The events, in the order in which they were recorded.
    pub events: Events,
    /// The blocks, baseline first, then in the order of their alloc events.
    pub blocks: Blocks,
    /// Segments and mappings, baseline first, then in the order of their events.
    pub segments: Segments,
    /// Failed requests; the subject of an out-of-memory event is a row of this table.
    pub ooms: Vec<Oom>,
    /// Categories that were set after the allocation; the subject of a tag event is a row of this table.
    pub tags: Vec<(BlockId, Category)>,
    /// Blocks whose free events are missing, in event order. Each has the event that shows the free: the allocation of
    /// another block with the same key.
    pub replaced: Vec<(EventId, BlockId)>,
    /// Baseline blocks that the program freed before the first event but that another stream still used, in order. They
    /// are active but never live.
    pub waiting_at_start: Vec<BlockId>,
    /// The number of use events.
    pub uses: u64,
    /// Samples of the memory in use on the device, in bytes; the subject of a device-used event is a row of this table.
    pub device_used: Vec<u64>,
    /// Named ranges of events that the program marked, ordered by first event.
    pub annotations: Vec<Annotation>,
    /// Extra facts about events, blocks and segments, ordered by owner.
    pub attributes: Vec<Attribute>,
    /// The texts of source files in the recording.
    pub sources: Arc<Vec<SourceText>>,
    /// Steps and phases as ranges of events.
    pub spans: Spans,
    /// The limits of the recording's accuracy.
    pub trust: Trust,
    /// The problems found while reading.
    pub problems: Vec<Problem>,
    /// The state before the first event; empty unless the trace is a window of a longer recording.
    pub start: Start,
    pub(crate) device_uses: Vec<DeviceUse>,
    /// The result of the sum rule on each device: whether blocks exceed the segments.
    pub(crate) sums: Vec<(DeviceId, SumRule)>,
    pub(crate) has_times: bool,
}

impl TraceParts {
    /// Returns the attributes of `owner`, in the order in which they were added.
    pub fn attributes_of(&self, owner: Owner) -> &[Attribute] {
        let first = self.attributes.partition_point(|attribute| attribute.owner < owner);
        let count = self.attributes[first..].partition_point(|attribute| attribute.owner == owner);
        &self.attributes[first..first + count]
    }

    /// Returns PyTorch's number of the private pool (of a CUDA graph or `torch.cuda.MemPool`) of the block or segment
    /// `owner`; `None` for the default pools, or if the pool was not recorded.
    pub fn private_pool(&self, owner: Owner) -> Option<(u64, u64)> {
        if self.attributes.is_empty() {
            return None;
        }
        let attributes = self.attributes_of(owner).iter();
        let text = attributes
            .filter(|fact| matches!(self.tables.string(fact.name), "pool_id" | "segment_pool_id"))
            .map(|fact| self.tables.string(fact.value))
            .next()?;
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        let pair = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        (pair != (0, 0)).then_some(pair)
    }

    /// Returns the owner that has the attributes of block `id`: its alloc event, or without one, the block itself.
    pub fn block_owner(&self, id: BlockId) -> Owner {
        let alloc = self.blocks.alloc[id.0 as usize];
        if alloc.is_some() { Owner::Event(alloc) } else { Owner::Block(id) }
    }

    /// Adds the source files' texts of another recording, except for files that already have one.
    pub(crate) fn merge_sources(&mut self, sources: &Arc<Vec<SourceText>>) {
        if self.sources.is_empty() {
            self.sources = Arc::clone(sources);
            return;
        }
        let known: HashSet<&str> = self.sources.iter().map(|source| source.path.as_str()).collect();
        let new: Vec<_> = sources.iter().filter(|source| !known.contains(source.path.as_str())).cloned().collect();
        drop(known);
        if !new.is_empty() {
            Arc::make_mut(&mut self.sources).extend(new);
        }
    }

    /// Sorts attributes by their owners, and annotations, outer before inner ones; computes steps and phases from their
    /// events, or from the annotations if there are no such events.
    pub(crate) fn finish(mut self) -> Trace {
        let Self { events, annotations, attributes, tables, start, .. } = &mut self;
        attributes.sort_by_key(|attribute| attribute.owner);
        annotations.sort_by_key(|annotation| (annotation.first, std::cmp::Reverse(annotation.end)));
        let is_mark = |kind: &EventKind| matches!(kind, EventKind::Step | EventKind::Phase);
        let by_annotations = if annotations.is_empty() || events.kind.iter().any(is_mark) {
            None
        } else {
            Spans::from_annotations(annotations, tables, events.len())
        };
        self.spans = by_annotations.unwrap_or_else(|| Spans::from_events(events, start));
        Trace(self)
    }
}
