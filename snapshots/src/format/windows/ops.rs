//! Finds the rows of single operations: a recording of days has too many of them to keep all in memory.

use std::sync::OnceLock;

use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::format::kind::SectionKind;
use crate::format::parallel;
use crate::format::section::Unpacker;
use crate::format::tables_codec::rows_from_bytes;
use crate::format::windows::sections::Sections;
use crate::ids::{OpId, ScopeId};
use crate::tables::Op;
use crate::trace::Trace;

/// The sections of operations, located when first needed.
#[derive(Debug, Default)]
pub(super) struct OpSections {
    /// The number of each section's first row, and its offset.
    rows: OnceLock<Vec<(u64, u64)>>,
}

impl OpSections {
    /// Gives `trace` the operations that its blocks and failed requests name, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or one of the sections is damaged.
    pub(super) fn localize(&self, sections: &Sections, trace: &mut Trace) -> Result<()> {
        let blocks = trace.blocks.op.iter().copied();
        let named = blocks.chain(trace.ooms.iter().map(|oom| oom.op)).filter(|op| op.is_some());
        let mut ids: Vec<OpId> = named.collect();
        // Blocks that follow each other are often of one operation.
        ids.dedup();
        ids.sort_unstable();
        ids.dedup();
        let places = self.places(sections)?;
        if ids.is_empty()
            && let Some(&(first, _)) = places.first()
        {
            // One shows that the recording has operations.
            ids.extend(u32::try_from(first).map(OpId));
        }
        let mut local: HashMap<OpId, OpId> = HashMap::with_capacity(ids.len());
        let mut left = ids.as_slice();
        while let Some(&next) = left.first() {
            let Some(section) = places.partition_point(|(first, _)| *first <= u64::from(next.0)).checked_sub(1) else {
                left = &left[1..];
                continue;
            };
            let end = places.get(section + 1).map_or(u64::MAX, |(first, _)| *first);
            let (of_section, rest) = left.split_at(left.partition_point(|id| u64::from(id.0) < end));
            left = rest;
            let (first, offset) = places[section];
            let rows = rows_of(sections, offset)?;
            for &id in of_section {
                if let Some(op) = rows.get((u64::from(id.0) - first) as usize) {
                    local.insert(id, OpId::from_index(trace.tables.ops.len()));
                    trace.tables.ops.push(*op);
                }
            }
        }
        let find = |id: &mut OpId| *id = local.get(id).copied().unwrap_or(OpId::NONE);
        trace.blocks.op.iter_mut().for_each(find);
        trace.ooms.iter_mut().map(|oom| &mut oom.op).for_each(find);
        Ok(())
    }

    /// The number of operations of each module.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or one of the sections is damaged.
    pub(super) fn count(&self, sections: &Sections) -> Result<HashMap<ScopeId, u64>> {
        let of_section = |(_, offset): &(u64, u64)| -> Result<HashMap<ScopeId, u64>> {
            let mut counts = HashMap::new();
            rows_of(sections, *offset)?.iter().for_each(|op| *counts.entry(op.scope).or_default() += 1);
            Ok(counts)
        };
        let mut all: HashMap<ScopeId, u64> = HashMap::new();
        for part in parallel::map(self.places(sections)?, || (), |(), place| of_section(place)) {
            part?.into_iter().for_each(|(scope, count)| *all.entry(scope).or_default() += count);
        }
        Ok(all)
    }

    fn places(&self, sections: &Sections) -> Result<&[(u64, u64)]> {
        if let Some(rows) = self.rows.get() {
            return Ok(rows);
        }
        let of_kind = sections.of_kind(SectionKind::Ops);
        let rows: Vec<(u64, u64)> =
            of_kind.map(|row| Ok((sections.header(row.offset)?.first, row.offset))).collect::<Result<_>>()?;
        Ok(self.rows.get_or_init(|| rows))
    }
}

fn rows_of(sections: &Sections, offset: u64) -> Result<Vec<Op>> {
    let found = sections.section(offset)?;
    let mut unpacker = Unpacker::new();
    let raw = unpacker.unpack(&found.section());
    raw.and_then(|raw| rows_from_bytes(raw, found.header.count)).map_err(|what| Error::Damaged { offset, what })
}
