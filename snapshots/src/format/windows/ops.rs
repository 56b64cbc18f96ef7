//! Reads the rows of individual operations, since a recording of several days has too many for memory.

use std::sync::OnceLock;

use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::format::kind::SectionKind;
use crate::format::parallel;
use crate::format::section::Unpacker;
use crate::format::windows::files::{FilePart, Files};
use crate::ids::{OpId, ScopeId};
use crate::tables::Op;
use crate::trace::Trace;

/// The sections with operations, located on first use.
#[derive(Debug, Default)]
pub(super) struct OpSections {
    rows: OnceLock<Vec<OpSection>>,
}

#[derive(Clone, Copy, Debug)]
struct OpSection {
    /// The index, in the recording, of the section's first row.
    first: u64,
    file: usize,
    offset: u64,
}

impl OpSections {
    /// Adds to `trace` the operations of its blocks and failed requests, ordered by id.
    pub(super) fn localize(&self, files: &Files, trace: &mut Trace) -> Result<()> {
        let blocks = trace.blocks.op.iter().copied();
        let named = blocks.chain(trace.ooms.iter().map(|oom| oom.op)).filter(|op| op.is_some());
        let mut ids: Vec<OpId> = named.collect();
        // Consecutive blocks often have the same operation.
        ids.dedup();
        ids.sort_unstable();
        ids.dedup();
        let places = self.places(files)?;
        if ids.is_empty()
            && let Some(first) = places.first().map(|place| place.first)
        {
            // One operation shows that the recording has operations.
            ids.extend(u32::try_from(first).map(OpId));
        }
        let mut local: HashMap<OpId, OpId> = HashMap::with_capacity(ids.len());
        let mut left = ids.as_slice();
        while let Some(&next) = left.first() {
            let Some(section) = places.partition_point(|place| place.first <= u64::from(next.0)).checked_sub(1) else {
                left = &left[1..];
                continue;
            };
            let end = places.get(section + 1).map_or(u64::MAX, |place| place.first);
            let (of_section, rest) = left.split_at(left.partition_point(|id| u64::from(id.0) < end));
            left = rest;
            let place = places[section];
            let rows = rows_of(files, place)?;
            for &id in of_section {
                if let Some(op) = rows.get((u64::from(id.0) - place.first) as usize) {
                    local.insert(id, OpId::from_index(trace.tables.ops.len()));
                    trace.0.tables.ops.push(*op);
                    trace.0.start.ops.push(id);
                }
            }
        }
        let find = |id: &mut OpId| *id = local.get(id).copied().unwrap_or(OpId::NONE);
        trace.0.blocks.op.iter_mut().for_each(find);
        trace.0.ooms.iter_mut().map(|oom| &mut oom.op).for_each(find);
        Ok(())
    }

    pub(super) fn count(&self, files: &Files) -> Result<HashMap<ScopeId, u64>> {
        let of_section = |place: &OpSection| -> Result<HashMap<ScopeId, u64>> {
            let mut counts = HashMap::new();
            rows_of(files, *place)?.iter().for_each(|op| *counts.entry(op.scope).or_default() += 1);
            Ok(counts)
        };
        let mut all: HashMap<ScopeId, u64> = HashMap::new();
        for part in parallel::map(self.places(files)?, || (), |(), place| of_section(place)) {
            part?.into_iter().for_each(|(scope, count)| *all.entry(scope).or_default() += count);
        }
        Ok(all)
    }

    /// Calls `each` with the operations of every section, in order.
    pub(super) fn each_section(&self, files: &Files, mut each: impl FnMut(Vec<Op>) -> Result<()>) -> Result<()> {
        let mut next = 0;
        for place in self.places(files)? {
            if place.first > next {
                let what = format!("operations {next} to {} are missing", place.first - 1);
                return Err(Error::Damaged { offset: place.offset, what });
            }
            let mut rows = rows_of(files, *place)?;
            // Files of a rotation repeat operations of the previous file.
            rows.drain(..((next - place.first) as usize).min(rows.len()));
            next += rows.len() as u64;
            each(rows)?;
        }
        Ok(())
    }

    fn places(&self, files: &Files) -> Result<&[OpSection]> {
        if let Some(rows) = self.rows.get() {
            return Ok(rows);
        }
        let mut rows = Vec::new();
        for (file, part) in files.parts().iter().enumerate() {
            for row in part.sections.of_kind(SectionKind::Ops) {
                let first = part.first_op.saturating_add(part.sections.header(row.offset)?.first);
                rows.push(OpSection { first, file, offset: row.offset });
            }
        }
        Ok(self.rows.get_or_init(|| rows))
    }
}

fn rows_of(files: &Files, place: OpSection) -> Result<Vec<Op>> {
    let part: &FilePart = &files.parts()[place.file];
    let mut rows: Vec<Op> = part.sections.section(place.offset)?.rows(&mut Unpacker::new())?;
    rows.iter_mut().for_each(|op| *op = part.rename_op(*op));
    Ok(rows)
}
