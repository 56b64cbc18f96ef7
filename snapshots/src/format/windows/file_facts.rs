//! Reads everything of a file but its events and operations.

use crate::builder::StartingState;
use crate::error::{Error, Result};
use crate::format::assemble::Assembler;
use crate::format::kind::SectionKind;
use crate::format::part::Part;
use crate::format::section::{FLAG_MUST_UNDERSTAND, Unpacker};
use crate::format::tables_codec::{row_from_bytes, rows_from_bytes};
use crate::format::walk::WalkItem;
use crate::format::windows::sections::Sections;
use crate::format::windows::shapes::{ShapeRows, shape_rows};
use crate::trace::{Attribute, Trace};

/// Reads everything but events and operations, and the starting states and the shapes of blocks.
pub(super) fn read_file_facts(sections: &Sections, events: u64) -> Result<(Trace, Vec<StartingState>, ShapeRows)> {
    let (mut assembler, mut starting, mut attributes) = (Assembler::default(), Vec::new(), Vec::new());
    let mut unpacker = Unpacker::new();
    for row in &sections.rows {
        let Some(kind) = SectionKind::from_code(row.kind) else {
            if sections.header(row.offset)?.flags & FLAG_MUST_UNDERSTAND == 0 {
                continue;
            }
            let what = "a section matters here that only a newer highwater reads".to_owned();
            return Err(Error::Damaged { offset: row.offset, what });
        };
        match kind {
            SectionKind::Events | SectionKind::Ops => continue,
            _ if kind.is_repeated() => continue,
            SectionKind::Annotations => {
                return Err(Error::NotAPart { name: "the file".to_owned() });
            }
            SectionKind::End => assembler.pass_events(events),
            _ => {}
        }
        let found = sections.section(row.offset)?;
        let damaged = |what| Error::Damaged { offset: row.offset, what };
        if found.header.kind() != Some(kind) {
            return Err(damaged("the index names another kind of section than is here".to_owned()));
        }
        if kind == SectionKind::StartingState {
            let raw = unpacker.unpack(&found.section()).map_err(damaged)?;
            starting.push(row_from_bytes(raw).map_err(damaged)?);
            continue;
        }
        if kind == SectionKind::Attributes {
            let raw = unpacker.unpack(&found.section()).map_err(damaged)?;
            attributes.extend(rows_from_bytes::<Attribute>(raw, found.header.count).map_err(damaged)?);
            continue;
        }
        let part = Part::from_section(&mut unpacker, &found.section());
        assembler.take(&WalkItem::Section(found.section()), Some(part));
    }
    if sections.has_index {
        assembler.take(&WalkItem::Tail { offset: sections.length }, None);
    } else {
        assembler.pass_events(events);
    }
    let was_cut = !sections.has_index && sections.end < sections.length;
    if was_cut {
        let bytes = sections.length - sections.end;
        let header = sections.header(sections.end).ok();
        assembler.take(&WalkItem::Cut { offset: sections.end, bytes, header }, None);
    }
    let missing = assembler.missing_events();
    let base = assembler.finish(sections.length, was_cut);
    if missing > 0 {
        let what = "events are missing".to_owned();
        return Err(Error::Damaged { offset: sections.end, what });
    }
    let shapes = shape_rows(&base, &starting, &attributes)?;
    Ok((base, starting, shapes))
}
