//! Decodes the columns of a section into events. [`events_encode`](super::events_encode) is the inverse: both track the
//! same state and must change together.

use super::columns::{Column, ColumnCursors};
use super::events_encode::Former;
use super::section::CHUNK_EVENTS;
use super::varint::{Cursor, unzigzag};
use crate::event::{Alloc, Event, EventKind, Oom, Range, What};
use crate::ids::{DeviceId, OpId, ScopeId, StackId, StreamId, StringId};
use crate::yielding::tick;
use crate::{Category, Phase, Pool};

#[derive(Debug, Default)]
pub(super) struct DecodedEvents {
    pub(super) events: Vec<Event>,
    /// Number of skipped events of unknown kinds.
    pub(super) unknown: u32,
}

/// Decodes `count` events from a payload, or returns the reason that the payload is invalid. Creates at most as many
/// events as the payload has bytes.
pub(super) fn decode_events(payload: &[u8], count: u32) -> Result<DecodedEvents, String> {
    if count as usize > CHUNK_EVENTS {
        return Err(format!("it declares {count} events, but a section has at most {CHUNK_EVENTS}"));
    }
    let mut decoder = Decoder::from_payload(payload)?;
    let kinds = decoder.columns.get(Column::Kind).left();
    if kinds != count as usize {
        return Err(format!("it declares {count} events but has kinds for {kinds}"));
    }
    let mut decoded = DecodedEvents { events: Vec::with_capacity(kinds), unknown: 0 };
    for row in 0..count {
        tick();
        match decoder.take_event() {
            Ok(Some(event)) => decoded.events.push(event),
            Ok(None) => decoded.unknown += 1,
            Err(column) => {
                return Err(format!("its {} column is wrong at event {row}", column.name()));
            }
        }
    }
    match decoder.columns.left_over() {
        Some((column, bytes)) => Err(format!("{bytes} bytes are left over in its {} column", column.name())),
        None => Ok(decoded),
    }
}

struct Decoder<'a> {
    columns: ColumnCursors<'a>,
    former: Former,
    address_shift: u32,
    has_devices: bool,
    has_stacks: bool,
    has_streams: bool,
    has_oom_streams: bool,
}

impl<'a> Decoder<'a> {
    fn from_payload(payload: &'a [u8]) -> Result<Self, String> {
        let mut columns = ColumnCursors::from_payload(payload)?;
        let address_shift = u32::from(columns.get(Column::Address).byte().unwrap_or(0));
        if address_shift > 63 {
            return Err(format!("its addresses are shifted by {address_shift} bits"));
        }
        Ok(Self {
            has_devices: columns.get(Column::Device).left() > 0,
            has_stacks: columns.get(Column::Stack).left() > 0,
            has_streams: columns.get(Column::Stream).left() > 0,
            has_oom_streams: columns.get(Column::OomStream).left() > 0,
            columns,
            former: Former::default(),
            address_shift,
        })
    }

    /// Returns the next event, or `None` if its kind is unknown. The error is the column that has too few values.
    #[inline]
    fn take_event(&mut self) -> Result<Option<Event>, Column> {
        let kind = self.byte(Column::Kind)?;
        let time_ns = self.former.time.wrapping_add(self.signed(Column::Time)? as u64);
        self.former.time = time_ns;
        let device = if self.has_devices { self.narrow(Column::Device, |value| u16::try_from(value).ok())? } else { 0 };
        let mut stack = u32::MAX;
        if self.has_stacks {
            stack = take_handle(self.columns.get(Column::Stack), &mut self.former.stack).ok_or(Column::Stack)?;
        }
        let Some(kind) = EventKind::from_code(kind) else {
            return Ok(None);
        };
        let what = self.take_what(kind)?;
        Ok(Some(Event { time_ns, device: DeviceId(device), stack: StackId(stack), what }))
    }

    #[inline]
    fn take_what(&mut self, kind: EventKind) -> Result<What, Column> {
        Ok(match kind {
            EventKind::Alloc => What::Alloc(self.take_alloc()?),
            EventKind::FreeRequested => What::FreeRequested(self.take_freed()?),
            EventKind::FreeCompleted => What::FreeCompleted(self.take_freed()?),
            EventKind::Tag => {
                self.former.tagged = self.former.tagged.wrapping_add(self.signed(Column::Tagged)? as u64);
                let category = self.byte(Column::TagCategory)?;
                What::Tag(self.former.tagged, category_from_code(category))
            }
            EventKind::SegmentAlloc => What::SegmentAlloc(self.take_range()?),
            EventKind::SegmentFree => What::SegmentFree(self.take_range()?),
            EventKind::SegmentMap => What::SegmentMap(self.take_range()?),
            EventKind::SegmentUnmap => What::SegmentUnmap(self.take_range()?),
            EventKind::Oom => What::Oom(Oom {
                requested: self.leb(Column::Rare)?,
                device_free: self.leb(Column::Rare)?,
                op: OpId(self.rare_u32()?),
                scope: ScopeId(self.rare_u32()?),
                stream: match self.has_oom_streams {
                    true => self.leb(Column::OomStream)?.checked_sub(1).map(StreamId),
                    false => None,
                },
            }),
            EventKind::DeviceUsed => What::DeviceUsed(self.leb(Column::Rare)?),
            EventKind::Step => What::Step(self.rare_u32()?),
            EventKind::Phase => What::Phase(Phase::from_code(self.rare_byte()?).unwrap_or(Phase::Other)),
            EventKind::Mark => What::Mark(StringId(self.rare_u32()?)),
            EventKind::Used => {
                self.former.used = self.former.used.wrapping_add(self.signed(Column::Used)? as u64);
                What::Used(self.former.used)
            }
        })
    }

    #[inline]
    fn take_alloc(&mut self) -> Result<Alloc, Column> {
        let block = self.former.next_block.wrapping_add(self.signed(Column::Block)? as u64);
        self.former.next_block = block.wrapping_add(1);
        let moved = (self.signed(Column::Address)? as u64) << self.address_shift;
        self.former.address = self.former.address.wrapping_add(moved);
        let requested = self.leb(Column::Requested)?;
        let allocated = requested.wrapping_add(self.signed(Column::Rounding)? as u64);
        if self.has_streams {
            self.former.stream = self.former.stream.wrapping_add(self.signed(Column::Stream)? as u64);
        }
        Ok(Alloc {
            block,
            address: self.former.address,
            requested,
            allocated,
            stream: StreamId(self.former.stream),
            pool: Pool::from_code(self.byte(Column::Pool)?).ok_or(Column::Pool)?,
            category: category_from_code(self.byte(Column::Category)?),
            op: OpId(take_handle(self.columns.get(Column::Op), &mut self.former.op).ok_or(Column::Op)?),
            scope: ScopeId(take_handle(self.columns.get(Column::Scope), &mut self.former.scope).ok_or(Column::Scope)?),
        })
    }

    #[inline]
    fn take_freed(&mut self) -> Result<u64, Column> {
        self.former.freed = self.former.freed.wrapping_add(self.signed(Column::Freed)? as u64);
        Ok(self.former.freed)
    }

    fn take_range(&mut self) -> Result<Range, Column> {
        Ok(Range {
            address: self.leb(Column::Rare)?,
            bytes: self.leb(Column::Rare)?,
            stream: StreamId(self.leb(Column::Rare)?),
            pool: Pool::from_code(self.rare_byte()?).ok_or(Column::Rare)?,
        })
    }

    #[inline]
    fn byte(&mut self, column: Column) -> Result<u8, Column> {
        self.columns.get(column).byte().ok_or(column)
    }

    #[inline]
    fn leb(&mut self, column: Column) -> Result<u64, Column> {
        self.columns.get(column).leb().ok_or(column)
    }

    #[inline]
    fn signed(&mut self, column: Column) -> Result<i64, Column> {
        self.columns.get(column).signed().ok_or(column)
    }

    fn narrow<T>(&mut self, column: Column, narrow: impl Fn(u64) -> Option<T>) -> Result<T, Column> {
        narrow(self.leb(column)?).ok_or(column)
    }

    fn rare_u32(&mut self) -> Result<u32, Column> {
        self.narrow(Column::Rare, |value| u32::try_from(value).ok())
    }

    fn rare_byte(&mut self) -> Result<u8, Column> {
        self.narrow(Column::Rare, |value| u8::try_from(value).ok())
    }
}

/// Decodes a handle from its code and the previous one; `None` if the code is truncated or the handle is not below
/// `u32::MAX`.
#[inline]
fn take_handle(cursor: &mut Cursor<'_>, former: &mut u32) -> Option<u32> {
    let Some(code) = cursor.leb()?.checked_sub(1) else {
        return Some(u32::MAX);
    };
    let handle = i64::from(*former).checked_add(unzigzag(code))?;
    *former = u32::try_from(handle).ok().filter(|handle| *handle != u32::MAX)?;
    Some(*former)
}

/// A code of a later version is read as unknown.
fn category_from_code(code: u8) -> Category {
    Category::from_code(code).unwrap_or(Category::Unknown)
}
