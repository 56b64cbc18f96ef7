//! Reads everything in a file except its events and operations.

use crate::builder::StartingState;
use crate::error::{Error, Result};
use crate::format::assemble::Assembler;
use crate::format::kind::SectionKind;
use crate::format::part::Part;
use crate::format::section::{FLAG_MUST_UNDERSTAND, Unpacker};
use crate::format::walk::WalkItem;
use crate::format::windows::sections::Sections;
use crate::format::windows::shapes::{ShapeRows, shape_rows};
use crate::trace::{Attribute, Trace};

/// Reads everything except events and operations. Returns it with the starting states and the shapes of blocks.
pub(super) fn read_file_facts(sections: &Sections, events: u64) -> Result<(Trace, Vec<StartingState>, ShapeRows)> {
    let (mut assembler, mut starting, mut attributes) = (Assembler::default(), Vec::new(), Vec::new());
    let mut unpacker = Unpacker::new();
    for row in &sections.rows {
        let Some(kind) = SectionKind::from_code(row.kind) else {
            if sections.header(row.offset)?.flags & FLAG_MUST_UNDERSTAND == 0 {
                continue;
            }
            let what = "it needs a section that only a newer highwater reads".to_owned();
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
        if found.header.kind() != Some(kind) {
            let what = "the index lists another kind of section at this offset".to_owned();
            return Err(Error::Damaged { offset: row.offset, what });
        }
        match kind {
            SectionKind::StartingState => starting.append(&mut found.rows(&mut unpacker)?),
            SectionKind::Attributes => attributes.append(&mut found.rows::<Attribute>(&mut unpacker)?),
            _ => {
                let part = Part::from_section(&mut unpacker, &found.section());
                assembler.take(&WalkItem::Section(found.section()), Some(part));
            }
        }
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
