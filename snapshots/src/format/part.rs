//! The decoded content of one section. Sections do not depend on each other, so they decode in parallel.

use super::events_decode::{DecodedEvents, decode_events};
use super::kind::SectionKind;
use super::section::{Section, Unpacker};
use super::tables_codec::{
    EndFacts, FrameRow, ScopeRow, StackRow, Symbols, row_from_bytes, rows_from_bytes, strings_from_bytes,
};
use crate::builder::StartingState;
use crate::tables::{Module, Op, Scope, Stack};
use crate::trace::{Annotation, Attribute, DeviceFacts, Header, SourceText};

pub(super) enum Part {
    Header(Box<Header>),
    Device(Box<DeviceFacts>),
    Strings(Vec<String>),
    Modules(Vec<Module>),
    Frames(Vec<FrameRow>),
    Symbols(Vec<Symbols>),
    Stacks(Vec<Stack>),
    Scopes(Vec<Scope>),
    Ops(Vec<Op>),
    StartingState(Box<StartingState>),
    Events(DecodedEvents),
    End(Box<EndFacts>),
    Annotations(Vec<Annotation>),
    Attributes(Vec<Attribute>),
    Facts(Vec<(String, String)>),
    Sources(Vec<SourceText>),
    /// A footer, summary, checkpoint or step activity, which repeat facts of other sections.
    Repeated,
    Unknown,
}

impl Part {
    pub(super) fn from_section(unpacker: &mut Unpacker, section: &Section<'_>) -> Result<Self, String> {
        let Some(kind) = section.header.kind() else {
            return Ok(Self::Unknown);
        };
        if kind.is_repeated() {
            return Ok(Self::Repeated);
        }
        let (count, first) = (section.header.count, section.header.first);
        let raw = unpacker.unpack(section)?;
        Ok(match kind {
            SectionKind::Header => Self::Header(Box::new(row_from_bytes(raw)?)),
            SectionKind::Device => Self::Device(Box::new(row_from_bytes(raw)?)),
            SectionKind::Strings => Self::Strings(strings_from_bytes(raw, count)?),
            SectionKind::Modules => Self::Modules(rows_from_bytes(raw, count)?),
            SectionKind::Frames => Self::Frames(rows_from_bytes(raw, count)?),
            SectionKind::Symbols => Self::Symbols(rows_from_bytes(raw, count)?),
            SectionKind::Stacks => Self::Stacks(tree(&rows_from_bytes(raw, count)?, first, StackRow::to_stack)?),
            SectionKind::Scopes => Self::Scopes(tree(&rows_from_bytes(raw, count)?, first, ScopeRow::to_scope)?),
            SectionKind::Ops => Self::Ops(rows_from_bytes(raw, count)?),
            SectionKind::StartingState => Self::StartingState(Box::new(row_from_bytes(raw)?)),
            SectionKind::Events => Self::Events(decode_events(raw, count)?),
            SectionKind::End => Self::End(Box::new(row_from_bytes(raw)?)),
            SectionKind::Footer | SectionKind::Summaries | SectionKind::Checkpoint | SectionKind::StepActivity => {
                Self::Repeated
            }
            SectionKind::Annotations => Self::Annotations(rows_from_bytes(raw, count)?),
            SectionKind::Attributes => Self::Attributes(rows_from_bytes(raw, count)?),
            SectionKind::Facts => Self::Facts(rows_from_bytes(raw, count)?),
            SectionKind::Sources => Self::Sources(rows_from_bytes(raw, count)?),
        })
    }
}

/// Decodes the rows of a tree, starting with row `first`. Fails if a parent would be before the first row.
fn tree<R: Copy, T>(rows: &[R], first: u64, row_at: impl Fn(R, u32) -> Option<T>) -> Result<Vec<T>, String> {
    let numbered = rows.iter().zip(first..);
    let row = |(&row, number): (&R, u64)| {
        let number = u32::try_from(number).ok().filter(|number| *number < u32::MAX);
        number.and_then(|number| row_at(row, number)).ok_or_else(|| "a row's parent is before the first row".to_owned())
    };
    numbered.map(row).collect()
}
