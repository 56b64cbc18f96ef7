//! Converts dicts with known keys to rows of fixed size as soon as they are filled.

use super::shape::{Key, Shape};
use super::store::{Dict, History, List, OpenSegment, Refusal, Store};
use super::value::Value;
use crate::raw::{BlockState, RawAnnotation, RawFrame, RawSegment};
use crate::{BlockDraft, EventDraft, Sequences};
use highwater_snapshots::ids::StringId;

impl Store {
    /// Creates a row from a dict of the given shape. `items` has alternating keys and values.
    #[inline]
    pub(crate) fn close(&mut self, shape: Shape, items: &[Value]) -> Result<Dict, Refusal> {
        match shape {
            Shape::Event => self.event(items),
            Shape::Frame => Ok(self.frame(items)),
            Shape::Segment => self.segment(items),
            Shape::Block => self.block(items),
            Shape::History => self.history(items),
            Shape::Annotation => Ok(self.annotation(items)),
            Shape::Other => Err("a dict with unknown keys cannot be read as an object of a snapshot"),
        }
    }

    fn event(&mut self, items: &[Value]) -> Result<Dict, Refusal> {
        let mut draft = EventDraft::default();
        for (key, value) in Pairs(items) {
            let Some(key) = self.key(key) else {
                self.unknown_key(key, "events");
                continue;
            };
            match key {
                Key::Action => draft.action = self.text(key, value),
                Key::Addr => draft.address = self.number(key, value),
                Key::Size => draft.size = self.number(key, value),
                Key::Stream => draft.stream = self.number(key, value),
                Key::TimeUs => draft.time_us = self.number(key, value),
                Key::DeviceFree => draft.device_free = self.maybe_number(key, value),
                Key::Frames => draft.stack = self.stack(value)?,
                Key::ForwardFrames => draft.extras.forward = self.texts(value),
                Key::CompileContext => draft.extras.compile_context = self.text(key, value),
                Key::UserMetadata => draft.extras.user_metadata = self.text(key, value),
                Key::InternalMetadata => draft.extras.internal_metadata = self.text(key, value),
                Key::Category => draft.extras.category = self.text(key, value),
                Key::PoolId => draft.extras.pool_id = self.pool_id(key, value),
                _ => self.misplaced(key, "events"),
            }
        }
        let event = self.intake.event(&draft);
        self.events.push(event);
        Ok(Dict::Event(self.events.len() as u32 - 1))
    }

    fn frame(&mut self, items: &[Value]) -> Dict {
        let mut frame = RawFrame::default();
        let mut fx: [StringId; 4] = [StringId::NONE; 4];
        for (key, value) in Pairs(items) {
            let Some(key) = self.key(key) else {
                self.unknown_key(key, "frames");
                continue;
            };
            match key {
                Key::Name => frame.name = self.text(key, value),
                Key::Filename => frame.file = self.text(key, value),
                Key::Line => frame.line = self.line(value),
                Key::FxNodeOp => fx[0] = self.text(key, value),
                Key::FxNodeName => fx[1] = self.text(key, value),
                Key::FxNodeTarget => fx[2] = self.text(key, value),
                Key::FxOriginalTrace => fx[3] = self.text(key, value),
                _ => self.misplaced(key, "frames"),
            }
        }
        frame.fx = self.intake.fx(fx);
        Dict::Frame(self.intake.frame(frame))
    }

    fn segment(&mut self, items: &[Value]) -> Result<Dict, Refusal> {
        let mut segment = RawSegment::default();
        let mut blocks = Value::None;
        for (key, value) in Pairs(items) {
            let Some(key) = self.key(key) else {
                self.unknown_key(key, "segments");
                continue;
            };
            match key {
                Key::Device => segment.device = self.device(value),
                Key::Address => segment.address = self.number(key, value),
                Key::TotalSize => segment.total_size = self.number(key, value),
                Key::AllocatedSize => segment.allocated_size = self.maybe_number(key, value),
                Key::ActiveSize => segment.active_size = self.maybe_number(key, value),
                Key::RequestedSize => segment.requested_size = self.maybe_number(key, value),
                Key::Stream => segment.stream = self.number(key, value),
                Key::SegmentType => segment.is_small = self.is_first(key, value, ["small", "large"]),
                Key::SegmentPoolId => segment.pool_id = self.pool_id(key, value),
                Key::IsExpandable => segment.is_expandable = self.flag(key, value),
                Key::Frames => segment.stack = self.stack(value)?,
                // The block for which a segment was allocated has the same forward stack.
                Key::ForwardFrames => {}
                Key::Blocks => blocks = value,
                _ => self.misplaced(key, "segments"),
            }
        }
        self.segments.push(OpenSegment { segment, blocks });
        Ok(Dict::Segment(self.segments.len() as u32 - 1))
    }

    fn block(&mut self, items: &[Value]) -> Result<Dict, Refusal> {
        let mut block = BlockDraft::default();
        let mut history = Value::None;
        for (key, value) in Pairs(items) {
            let Some(key) = self.key(key) else {
                self.unknown_key(key, "blocks");
                continue;
            };
            match key {
                Key::Address => block.address = self.maybe_number(key, value),
                Key::Size => block.size = self.number(key, value),
                Key::RequestedSize => block.requested_size = self.maybe_number(key, value),
                Key::State => block.state = self.state(value),
                Key::Frames => block.stack = self.stack(value)?,
                Key::ForwardFrames => block.forward = self.texts(value),
                Key::History => history = value,
                _ => self.misplaced(key, "blocks"),
            }
        }
        if let Some(newest) = self.newest(history)? {
            block.requested_size = block.requested_size.or(newest.requested_size);
            if block.stack == Sequences::NONE {
                block.stack = newest.stack;
            }
        }
        self.blocks.push(block);
        Ok(Dict::Block(self.blocks.len() as u32 - 1))
    }

    fn history(&mut self, items: &[Value]) -> Result<Dict, Refusal> {
        let mut history = History { requested_size: None, stack: Sequences::NONE };
        for (key, value) in Pairs(items) {
            match self.key(key) {
                Some(key @ Key::RealSize) => history.requested_size = self.maybe_number(key, value),
                Some(Key::Frames) => history.stack = self.stack(value)?,
                _ => {}
            }
        }
        self.histories.push(history);
        Ok(Dict::History(self.histories.len() as u32 - 1))
    }

    /// Returns the first entry of a block's `history`, which is its current allocation.
    fn newest(&mut self, history: Value) -> Result<Option<History>, Refusal> {
        let Value::List(row) = history else { return Ok(None) };
        let open = match self.lists.get(row as usize).map(|slot| slot.list) {
            Some(List::Open(open)) => open,
            _ => return Ok(None),
        };
        let Some(&first) = self.open_lists[open as usize].first() else { return Ok(None) };
        match self.dict(first)? {
            Some(Dict::History(row)) => Ok(self.histories.get(row as usize).copied()),
            _ => Ok(None),
        }
    }

    fn annotation(&mut self, items: &[Value]) -> Dict {
        let mut annotation = RawAnnotation { name: StringId::NONE, is_start: false, device: 0, time_us: 0 };
        for (key, value) in Pairs(items) {
            let Some(key) = self.key(key) else {
                self.unknown_key(key, "annotations");
                continue;
            };
            match key {
                Key::Name => annotation.name = self.text(key, value),
                Key::Stage => annotation.is_start = self.is_first(key, value, ["START", "END"]),
                Key::Device => annotation.device = self.device(value),
                Key::TimeUs => annotation.time_us = self.number(key, value),
                _ => self.misplaced(key, "annotations"),
            }
        }
        self.annotations.push(annotation);
        Dict::Annotation(self.annotations.len() as u32 - 1)
    }

    /// Returns whether a dict has a key that only segments have.
    pub(crate) fn has_key_of_segment(&self, items: &[Value]) -> bool {
        Pairs(items).any(|(key, _)| matches!(self.key(key), Some(Key::Address | Key::TotalSize | Key::Blocks)))
    }

    #[inline]
    pub(crate) fn key(&self, key: Value) -> Option<Key> {
        self.keys.of(key)
    }

    #[cold]
    pub(super) fn unknown_key(&mut self, key: Value, of: &str) {
        let name = match key {
            Value::Text(id) => format!("unexpected key '{:.60}'", self.intake.string(id)),
            key => format!("unexpected key ({})", key.kind()),
        };
        self.intake.count_unexpected(format!("{name} in {of} (ignored)"));
    }

    #[cold]
    fn misplaced(&mut self, key: Key, of: &str) {
        self.intake.count_unexpected(format!("unexpected key '{}' in {of} (ignored)", key.name()));
    }

    #[cold]
    fn wrong(&mut self, key: Key, value: Value, expected: &str) {
        let kind = value.kind();
        let what = format!("invalid value of '{}': expected {expected}, got {kind} (treated as missing)", key.name());
        self.intake.count_unexpected(what);
    }

    #[inline]
    fn number(&mut self, key: Key, value: Value) -> u64 {
        self.maybe_number(key, value).unwrap_or(0)
    }

    #[inline]
    fn maybe_number(&mut self, key: Key, value: Value) -> Option<u64> {
        let number = value.unsigned();
        if number.is_none() && value != Value::None {
            self.wrong(key, value, "a non-negative integer below 2^64");
            return Some(0);
        }
        number
    }

    fn line(&mut self, value: Value) -> u32 {
        let number = self.number(Key::Line, value);
        u32::try_from(number).unwrap_or_else(|_| {
            self.wrong(Key::Line, value, "a non-negative integer below 2^32");
            0
        })
    }

    fn device(&mut self, value: Value) -> i64 {
        match value {
            Value::Int(device) => device,
            Value::None => 0,
            value => {
                self.wrong(Key::Device, value, "a device's ordinal");
                0
            }
        }
    }

    fn flag(&mut self, key: Key, value: Value) -> bool {
        let number = value.unsigned();
        if !matches!(number, Some(0 | 1)) && value != Value::None {
            self.wrong(key, value, "a bool");
        }
        number == Some(1)
    }

    #[inline]
    pub(super) fn text(&mut self, key: Key, value: Value) -> StringId {
        match value {
            Value::Text(id) => id,
            Value::None => StringId::NONE,
            value => {
                self.wrong(key, value, "a string");
                StringId::NONE
            }
        }
    }

    /// Returns whether a string is the first of two. Any other string counts as the second.
    fn is_first(&mut self, key: Key, value: Value, [first, second]: [&str; 2]) -> bool {
        let id = self.text(key, value);
        let text = self.intake.string(id);
        let is_first = text == first;
        if !is_first && text != second && !text.is_empty() {
            let what = format!("'{}' is '{text:.60}', not '{first}' or '{second}' (treated as '{second}')", key.name());
            self.intake.count_unexpected(what);
        }
        is_first
    }

    fn state(&mut self, value: Value) -> BlockState {
        let id = self.text(Key::State, value);
        let text = self.intake.string(id);
        let state = BlockState::from_name(text);
        if state.is_none() && !text.is_empty() {
            let what = format!("unknown block state '{text:.60}' (treated as inactive)");
            self.intake.count_unexpected(what);
        }
        state.unwrap_or(BlockState::Inactive)
    }

    #[inline]
    fn pool_id(&mut self, key: Key, value: Value) -> (u64, u64) {
        let found = match value {
            Value::Pair(row) => self.pairs.get(row as usize).copied(),
            Value::List(row) => match self.lists.get(row as usize).map(|slot| slot.list) {
                Some(List::Open(open)) => match self.open_lists[open as usize][..] {
                    [first, second] => first.unsigned().zip(second.unsigned()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        found.unwrap_or_else(|| {
            if value != Value::None {
                self.wrong(key, value, "two integers");
            }
            (0, 0)
        })
    }
}

struct Pairs<'a>(&'a [Value]);

impl Iterator for Pairs<'_> {
    type Item = (Value, Value);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (pair, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some((pair[0], pair[1]))
    }
}
