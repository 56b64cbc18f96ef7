//! Stores the lists and dicts of a file. A dict of a known shape becomes a row of fixed size as soon as it is filled.

use std::collections::HashMap;

use super::shape::{Keys, Shape};
use super::value::Value;
use crate::raw::{RawAnnotation, RawEvent, RawSegment};
use crate::{BlockDraft, Intake, Sequences};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Empty,
    /// Only frames, as the index of a stack.
    Stack(u32),
    /// Strings that were already used, as the index of the list of strings.
    Texts(u32),
    /// Consecutive events, or blocks of a segment.
    Rows {
        kind: RowKind,
        first: u32,
        count: u32,
    },
    /// Any other list, as a row of `open_lists`.
    Open(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Event,
    Block,
}

impl RowKind {
    fn dict(self, row: u32) -> Dict {
        match self {
            Self::Event => Dict::Event(row),
            Self::Block => Dict::Block(row),
        }
    }

    pub(super) fn row(self, dict: Dict) -> Option<u32> {
        match (self, dict) {
            (Self::Event, Dict::Event(row)) | (Self::Block, Dict::Block(row)) => Some(row),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dict {
    Empty,
    /// Row of the intake's frames.
    Frame(u32),
    /// Row of `events`.
    Event(u32),
    /// Row of `blocks`.
    Block(u32),
    /// Row of `segments`.
    Segment(u32),
    /// Row of `histories`.
    History(u32),
    /// Row of `annotations`.
    Annotation(u32),
    /// Any other dict, as a row of `open_dicts`.
    Open(u32),
}

/// A list, and whether it has been used, after which it must not change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListSlot {
    pub(crate) list: List,
    pub(crate) is_used: bool,
}

/// An allocation that used a block, as an entry of `history` in old files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    pub(crate) requested_size: Option<u64>,
    pub(crate) stack: u32,
}

/// A segment with blocks that have not been looked up yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) segment: RawSegment,
    pub(crate) blocks: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) intake: Intake,
    pub(crate) keys: Keys,
    pub(crate) lists: Vec<ListSlot>,
    pub(crate) dicts: Vec<Dict>,
    pub(crate) open_lists: Vec<Vec<Value>>,
    pub(crate) open_dicts: Vec<Vec<(Value, Value)>>,
    pub(crate) pairs: Vec<(u64, u64)>,
    pair_rows: HashMap<(u64, u64), u32>,
    pub(crate) events: Vec<RawEvent>,
    pub(crate) blocks: Vec<BlockDraft>,
    pub(crate) segments: Vec<OpenSegment>,
    pub(crate) histories: Vec<History>,
    pub(crate) annotations: Vec<RawAnnotation>,
    /// Scratch space for a list of frame rows, reused between calls.
    handles: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    lists: usize,
    dicts: usize,
    open_lists: usize,
    open_dicts: usize,
}

pub(crate) type Refusal = &'static str;

const CHANGED: Refusal = "a list or dict changes after it was complete, which does not occur in snapshots";
const NOT_A_LIST: Refusal = "items are appended to an object that is not a list";
const NOT_A_DICT: Refusal = "keys are set on an object that is not a dict";

impl Store {
    pub(crate) fn new() -> Self {
        let mut intake = Intake::default();
        let keys = Keys::new(&mut intake);
        Self {
            intake,
            keys,
            lists: Vec::new(),
            dicts: Vec::new(),
            open_lists: Vec::new(),
            open_dicts: Vec::new(),
            pairs: Vec::new(),
            pair_rows: HashMap::new(),
            events: Vec::new(),
            blocks: Vec::new(),
            segments: Vec::new(),
            histories: Vec::new(),
            annotations: Vec::new(),
            handles: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        let Self { lists, dicts, open_lists, open_dicts, .. } = self;
        let [lists, dicts] = [lists.len(), dicts.len()];
        Mark { lists, dicts, open_lists: open_lists.len(), open_dicts: open_dicts.len() }
    }

    /// Discards the lists and dicts created since `mark`, which were converted to a row. No other value may refer to
    /// them.
    #[inline]
    pub(crate) fn release(&mut self, mark: Mark) {
        self.lists.truncate(mark.lists);
        self.dicts.truncate(mark.dicts);
        self.open_lists.truncate(mark.open_lists);
        self.open_dicts.truncate(mark.open_dicts);
    }

    #[inline]
    pub(crate) fn new_list(&mut self) -> Value {
        self.lists.push(ListSlot { list: List::Empty, is_used: false });
        Value::List(self.lists.len() as u32 - 1)
    }

    /// Returns whether a list is empty and unused.
    #[inline]
    pub(crate) fn is_new_list(&self, row: u32) -> bool {
        self.lists.get(row as usize).is_some_and(|slot| slot.list == List::Empty && !slot.is_used)
    }

    /// Returns whether the items of a list became rows, so that it refers to no other list or dict.
    #[inline]
    pub(crate) fn is_of_rows(&self, list: Value) -> bool {
        let Value::List(row) = list else { return false };
        self.lists.get(row as usize).is_some_and(|slot| !matches!(slot.list, List::Open(_)))
    }

    pub(crate) fn as_stack(&self, row: u32) -> Option<u32> {
        match self.lists.get(row as usize)?.list {
            List::Stack(stack) => Some(stack),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn set_stack(&mut self, row: u32, stack: u32) {
        if let Some(slot) = self.lists.get_mut(row as usize) {
            slot.list = List::Stack(stack);
        }
    }

    /// Creates a list that was used as a stack.
    pub(crate) fn used_list(&mut self, stack: u32) -> Value {
        let list = if stack == Sequences::NONE { List::Empty } else { List::Stack(stack) };
        self.lists.push(ListSlot { list, is_used: true });
        Value::List(self.lists.len() as u32 - 1)
    }

    pub(crate) fn event_dict(&mut self, event: u32) -> Value {
        self.closed_dict(Dict::Event(event))
    }

    #[inline]
    pub(crate) fn new_dict(&mut self) -> Value {
        self.dicts.push(Dict::Empty);
        Value::Dict(self.dicts.len() as u32 - 1)
    }

    /// Creates a tuple: two integers as a pair, any other tuple as a list. Tuples are immutable, so equal pairs are
    /// stored once.
    #[inline]
    pub(crate) fn tuple(&mut self, items: &[Value]) -> Result<Value, Refusal> {
        if let &[first, second] = items
            && let (Some(first), Some(second)) = (first.unsigned(), second.unsigned())
        {
            return Ok(self.pair(first, second));
        }
        let list = self.new_list();
        self.append(list, items)?;
        Ok(list)
    }

    #[inline]
    pub(crate) fn pair(&mut self, first: u64, second: u64) -> Value {
        if self.pairs.first() == Some(&(first, second)) {
            return Value::Pair(0);
        }
        let pairs = &mut self.pairs;
        let row = *self.pair_rows.entry((first, second)).or_insert_with(|| {
            pairs.push((first, second));
            pairs.len() as u32 - 1
        });
        Value::Pair(row)
    }

    #[inline]
    pub(crate) fn append(&mut self, target: Value, items: &[Value]) -> Result<(), Refusal> {
        let Value::List(row) = target else { return Err(NOT_A_LIST) };
        let Some(&slot) = self.lists.get(row as usize) else { return Err(NOT_A_LIST) };
        if slot.is_used {
            return Err(CHANGED);
        }
        let known = match slot.list {
            List::Empty => self.known_list(items),
            List::Rows { kind, first, count } => self.rows_of(items, kind, (first, count)),
            _ => None,
        };
        let list = match known {
            Some(list) => list,
            None => {
                let open = self.open_list(slot.list);
                self.open_lists[open as usize].extend_from_slice(items);
                List::Open(open)
            }
        };
        self.lists[row as usize].list = list;
        Ok(())
    }

    /// Returns the list of these items as rows, if all items have the same kind.
    #[inline]
    fn known_list(&mut self, items: &[Value]) -> Option<List> {
        let &Value::Dict(first) = items.first()? else { return None };
        match self.dicts.get(first as usize)? {
            Dict::Frame(_) => {
                let Self { handles, dicts, intake, .. } = self;
                handles.clear();
                for item in items {
                    let &Value::Dict(row) = item else { return None };
                    let Some(&Dict::Frame(frame)) = dicts.get(row as usize) else { return None };
                    handles.push(frame);
                }
                Some(List::Stack(intake.stack(handles)))
            }
            &Dict::Event(row) => self.rows_of(items, RowKind::Event, (row, 0)),
            &Dict::Block(row) => self.rows_of(items, RowKind::Block, (row, 0)),
            _ => None,
        }
    }

    /// Returns the range of rows of `items` appended to the existing range, if all have the same kind and are
    /// consecutive.
    fn rows_of(&self, items: &[Value], kind: RowKind, (first, mut count): (u32, u32)) -> Option<List> {
        for &item in items {
            let Value::Dict(row) = item else { return None };
            if *self.dicts.get(row as usize)? != kind.dict(first.checked_add(count)?) {
                return None;
            }
            count += 1;
        }
        Some(List::Rows { kind, first, count })
    }

    /// Converts a list to its general form, so that any item can be added.
    fn open_list(&mut self, list: List) -> u32 {
        let items = match list {
            List::Open(open) => return open,
            // A list of strings is marked as used, so that nothing is appended to it.
            List::Empty | List::Texts(_) => Vec::new(),
            List::Stack(stack) => {
                // Creates one dict per frame; that is small compared to the bytes that it took to list the frames.
                let frames = self.intake.stack_frames(stack).to_vec();
                frames.into_iter().map(|frame| self.closed_dict(Dict::Frame(frame))).collect()
            }
            List::Rows { kind, first, count } => {
                (first..first + count).map(|row| self.closed_dict(kind.dict(row))).collect()
            }
        };
        self.open_lists.push(items);
        self.open_lists.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn closed_dict(&mut self, dict: Dict) -> Value {
        self.dicts.push(dict);
        Value::Dict(self.dicts.len() as u32 - 1)
    }

    /// Adds alternating keys and values to a dict. An empty dict is converted at once if it has a known shape.
    #[inline]
    pub(crate) fn set_items(&mut self, target: Value, items: &[Value]) -> Result<(), Refusal> {
        let Value::Dict(row) = target else { return Err(NOT_A_DICT) };
        if !items.len().is_multiple_of(2) {
            return Err("a dict gets a key without a value");
        }
        let keys = self.keys;
        let dict = match self.dicts.get(row as usize) {
            Some(Dict::Empty) => match Shape::of(items.chunks_exact(2).map(|item| keys.of(item[0]))) {
                Shape::Other => self.open_dict(items),
                shape => self.close(shape, items)?,
            },
            Some(&Dict::Open(open)) => {
                self.open_dicts[open as usize].extend(items.chunks_exact(2).map(|item| (item[0], item[1])));
                Dict::Open(open)
            }
            Some(_) => return Err(CHANGED),
            None => return Err(NOT_A_DICT),
        };
        self.dicts[row as usize] = dict;
        Ok(())
    }

    /// Adds one key and value to a dict, which stays open because more may follow.
    pub(crate) fn set_item(&mut self, target: Value, key: Value, value: Value) -> Result<(), Refusal> {
        let Value::Dict(row) = target else { return Err(NOT_A_DICT) };
        match self.dicts.get(row as usize) {
            Some(Dict::Empty) => self.dicts[row as usize] = self.open_dict(&[key, value]),
            Some(&Dict::Open(open)) => self.open_dicts[open as usize].push((key, value)),
            Some(_) => return Err(CHANGED),
            None => return Err(NOT_A_DICT),
        }
        Ok(())
    }

    fn open_dict(&mut self, items: &[Value]) -> Dict {
        self.open_dicts.push(items.chunks_exact(2).map(|item| (item[0], item[1])).collect());
        Dict::Open(self.open_dicts.len() as u32 - 1)
    }

    /// Returns the contents of the dict `value`. A dict filled key by key is converted now if it has a known shape.
    pub(crate) fn dict(&mut self, value: Value) -> Result<Option<Dict>, Refusal> {
        let Value::Dict(row) = value else { return Ok(None) };
        let Some(&dict) = self.dicts.get(row as usize) else { return Ok(None) };
        let Dict::Open(open) = dict else { return Ok(Some(dict)) };
        let items = std::mem::take(&mut self.open_dicts[open as usize]);
        let shape = Shape::of(items.iter().map(|(key, _)| self.keys.of(*key)));
        if shape == Shape::Other {
            self.open_dicts[open as usize] = items;
            return Ok(Some(dict));
        }
        let flat: Vec<Value> = items.into_iter().flat_map(|(key, value)| [key, value]).collect();
        let dict = self.close(shape, &flat)?;
        self.dicts[row as usize] = dict;
        Ok(Some(dict))
    }

    /// Takes the items out of a list. Returns `None` if the list was already used or `value` is not a list.
    pub(crate) fn take_items(&mut self, value: Value) -> Option<Vec<Value>> {
        let Value::List(row) = value else { return None };
        let slot = *self.lists.get(row as usize)?;
        if slot.is_used {
            return None;
        }
        self.lists[row as usize].is_used = true;
        let open = self.open_list(slot.list);
        Some(std::mem::take(&mut self.open_lists[open as usize]))
    }

    /// Returns the stack of a list of frames, or [`Sequences::NONE`] if the list is empty or `value` is not such a
    /// list.
    #[inline]
    pub(crate) fn stack(&mut self, value: Value) -> Result<u32, Refusal> {
        let Value::List(row) = value else {
            if value != Value::None {
                self.intake.count_unexpected(format!("a stack was ignored: expected a list, got {}", value.kind()));
            }
            return Ok(Sequences::NONE);
        };
        let Some(slot) = self.lists.get_mut(row as usize) else { return Ok(Sequences::NONE) };
        slot.is_used = true;
        match slot.list {
            List::Stack(stack) => Ok(stack),
            List::Empty => Ok(Sequences::NONE),
            List::Open(open) => {
                let stack = self.stack_of_open(open)?;
                self.lists[row as usize].list = List::Stack(stack);
                Ok(stack)
            }
            List::Texts(_) | List::Rows { .. } => Ok(Sequences::NONE),
        }
    }

    fn stack_of_open(&mut self, open: u32) -> Result<u32, Refusal> {
        let items = std::mem::take(&mut self.open_lists[open as usize]);
        let mut frames = Vec::new();
        for item in items {
            match self.dict(item)? {
                Some(Dict::Frame(frame)) => frames.push(frame),
                _ => self.intake.count_unexpected("an entry of a stack was skipped: expected a frame"),
            }
        }
        Ok(self.intake.stack(&frames))
    }

    /// Returns the index of a list of strings, or [`Sequences::NONE`] if the list is empty.
    pub(crate) fn texts(&mut self, value: Value) -> u32 {
        let Value::List(row) = value else { return Sequences::NONE };
        let Some(slot) = self.lists.get_mut(row as usize) else { return Sequences::NONE };
        slot.is_used = true;
        let open = match slot.list {
            List::Open(open) => open,
            List::Texts(texts) => return texts,
            _ => return Sequences::NONE,
        };
        let text = |item: Value| match item {
            Value::Text(id) => Some(id.0),
            _ => None,
        };
        let ids: Vec<u32> = std::mem::take(&mut self.open_lists[open as usize]).into_iter().filter_map(text).collect();
        let texts = self.intake.texts(&ids);
        self.lists[row as usize].list = List::Texts(texts);
        texts
    }
}
