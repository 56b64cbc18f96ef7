//! Parses lines of the text notation into a trace.

use std::collections::HashMap;

use highwater_snapshots::builder::{StartingBlock, StartingState, TraceBuilder};
use highwater_snapshots::category::{Category, Phase, Pool};
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::event::{Alloc, Event, EventKind, Oom, Range, What};
use highwater_snapshots::ids::{
    BlockId, DeviceId, EventId, FrameId, ModuleId, OpId, ScopeId, SegmentId, StackId, StreamId, StringId,
};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::tables::{Frame, Op, Scope, SourceLine, Stack};
use highwater_snapshots::trace::{Annotation, Attribute, Owner, Trace};

use crate::quotes::take_text;

/// Parses a trace from text. Errors name the line.
pub fn trace_from_text(text: &str) -> Result<Trace> {
    let mut parser = Parser::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            parser.take(line).map_err(|what| Error::Text { line: index + 1, what })?;
        }
    }
    Ok(parser.finish())
}

/// First words of lines that are not event kinds.
const SHORTHANDS: [&str; 4] = ["baseline", "baseline_segment", "baseline_mapping", "free"];

/// Parses lines into events; rows are added to the tables as names appear.
#[derive(Default)]
struct Parser {
    builder: TraceBuilder,
    starting: Vec<StartingState>,
    events: Vec<Event>,
    blocks: HashMap<String, u64>,
    next_address: u64,
    clock_ns: u64,
    strings: Interner<String>,
    scopes: Interner<Scope>,
    ops: Vec<Op>,
    lines: Interner<SourceLine>,
    stacks: Interner<Stack>,
    annotations: Vec<Annotation>,
    /// Indices of the annotations that have begun but not ended, in order of their beginnings.
    open: Vec<usize>,
    /// The subject of the previous line, to which attributes are added.
    last: Option<Place>,
    attributes: Vec<(Place, StringId, StringId)>,
}

/// The subject of a line: an event by its index, or a row of a starting state by the indices of both.
#[derive(Clone, Copy)]
enum Place {
    Event(usize),
    Block(usize, usize),
    Segment(usize, usize),
    Mapping(usize, usize),
}

/// The attributes that may follow an event's subject.
struct Facts {
    category: Category,
    pool: Option<Pool>,
    op: OpId,
    scope: ScopeId,
    stream: Option<StreamId>,
    device: DeviceId,
    time_ns: Option<u64>,
    free: u64,
    waits: bool,
    stack: StackId,
}

impl Parser {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let (first, after) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match first {
            "begin" => return self.begin(after),
            "end" => return self.end(after),
            "attribute" => return self.attribute(after),
            _ => {}
        }
        let mut calls = line.split('<').map(str::trim);
        let words: Vec<&str> = calls.next().unwrap_or_default().split_whitespace().collect();
        let (word, rest) = words.split_first().ok_or("an event is missing before '<'")?;
        let is_known = EventKind::from_name(word).is_some() || SHORTHANDS.contains(word);
        if !is_known {
            return Err(format!("no event is called '{word}'"));
        }
        let subject = *rest.first().ok_or_else(|| format!("'{word}' needs a subject"))?;
        if *word == "mark" {
            let device = after.rsplit_once(" device=").and_then(|(text, device)| Some((text, device.parse().ok()?)));
            let (text, device) = device.unwrap_or((after, 0));
            let text = self.string(text.trim());
            return self.push(What::Mark(text), None, DeviceId(device), StackId::NONE);
        }
        let stack = self.stack(&calls.collect::<Vec<_>>());
        let takes_size = matches!(*word, "alloc" | "baseline") || word.contains("segment") || word.contains("mapping");
        let facts = self.facts(rest.get(1 + usize::from(takes_size)..).unwrap_or_default(), stack)?;
        let size = || rest.get(1).ok_or_else(|| format!("'{word} {subject}' needs a size"));
        match *word {
            "baseline" => {
                let alloc = self.alloc(subject, size()?, &facts)?;
                let block = StartingBlock { alloc, stack, free_requested: facts.waits };
                let (state, rows) = self.starting(facts.device);
                rows.blocks.push(block);
                self.last = Some(Place::Block(state, rows.blocks.len() - 1));
                return Ok(());
            }
            "baseline_segment" => {
                let range = range(subject, size()?, &facts)?;
                let (state, rows) = self.starting(facts.device);
                rows.segments.push(range);
                self.last = Some(Place::Segment(state, rows.segments.len() - 1));
                return Ok(());
            }
            "baseline_mapping" => {
                let range = range(subject, size()?, &facts)?;
                let (state, rows) = self.starting(facts.device);
                rows.mappings.push(range);
                self.last = Some(Place::Mapping(state, rows.mappings.len() - 1));
                return Ok(());
            }
            "free" => {
                let key = self.key(subject);
                self.push(What::FreeRequested(key), facts.time_ns, facts.device, stack)?;
                return self.push(What::FreeCompleted(key), facts.time_ns, facts.device, stack);
            }
            _ => {}
        }
        let Some(kind) = EventKind::from_name(word) else { unreachable!("the other words were taken above") };
        let what = match kind {
            EventKind::Alloc => What::Alloc(self.alloc(subject, size()?, &facts)?),
            EventKind::FreeRequested => What::FreeRequested(self.key(subject)),
            EventKind::FreeCompleted => What::FreeCompleted(self.key(subject)),
            EventKind::Used => What::Used(self.key(subject)),
            EventKind::Tag => What::Tag(self.key(subject), facts.category),
            EventKind::SegmentAlloc => What::SegmentAlloc(range(subject, size()?, &facts)?),
            EventKind::SegmentFree => What::SegmentFree(range(subject, size()?, &facts)?),
            EventKind::SegmentMap => What::SegmentMap(range(subject, size()?, &facts)?),
            EventKind::SegmentUnmap => What::SegmentUnmap(range(subject, size()?, &facts)?),
            EventKind::Oom => What::Oom(Oom {
                requested: number(subject)?,
                device_free: facts.free,
                stream: facts.stream,
                op: facts.op,
                scope: facts.scope,
            }),
            EventKind::DeviceUsed => What::DeviceUsed(number(subject)?),
            EventKind::Step => What::Step(subject.parse().map_err(|_| format!("invalid step '{subject}'"))?),
            EventKind::Phase => What::Phase(Phase::from_name(subject).ok_or_else(|| format!("no phase '{subject}'"))?),
            EventKind::Mark => unreachable!("marks were taken above"),
        };
        self.push(what, facts.time_ns, facts.device, stack)
    }

    fn push(&mut self, what: What, time_ns: Option<u64>, device: DeviceId, stack: StackId) -> Result<(), String> {
        self.clock_ns = time_ns.unwrap_or(self.clock_ns.saturating_add(1000));
        self.last = Some(Place::Event(self.events.len()));
        self.events.push(Event { time_ns: self.clock_ns, device, stack, what });
        Ok(())
    }

    fn begin(&mut self, rest: &str) -> Result<(), String> {
        let (name, facts) = take_text(rest)?;
        let first = EventId::from_index(self.events.len());
        let mut annotation = Annotation {
            name: self.string(&name),
            device: DeviceId(0),
            start_ns: None,
            end_ns: None,
            first,
            end: first,
            is_guessed: false,
        };
        for fact in facts.split_whitespace() {
            if let Some(device) = fact.strip_prefix("device=") {
                annotation.device = device_id(device)?;
            } else if fact == "guessed" {
                annotation.is_guessed = true;
            } else {
                return Err(format!("unexpected '{fact}'; put names with spaces in double quotes"));
            }
        }
        self.open.push(self.annotations.len());
        self.annotations.push(annotation);
        Ok(())
    }

    fn end(&mut self, rest: &str) -> Result<(), String> {
        let (name, rest) = take_text(rest)?;
        if !rest.is_empty() {
            return Err(format!("unexpected '{rest}'; put names with spaces in double quotes"));
        }
        let id = self.string(&name);
        let place = self.open.iter().rposition(|&row| self.annotations[row].name == id);
        let row = self.open.remove(place.ok_or_else(|| format!("nothing called '{name}' has begun"))?);
        self.annotations[row].end = EventId::from_index(self.events.len());
        Ok(())
    }

    fn attribute(&mut self, rest: &str) -> Result<(), String> {
        let place = self.last.ok_or("an attribute must follow the line that it belongs to")?;
        let (name, rest) = take_text(rest)?;
        let (value, rest) = take_text(rest)?;
        if !rest.is_empty() {
            return Err(format!("unexpected '{rest}'; put values with spaces in double quotes"));
        }
        let (name, value) = (self.string(&name), self.string(&value));
        self.attributes.push((place, name, value));
        Ok(())
    }

    fn starting(&mut self, device: DeviceId) -> (usize, &mut StartingState) {
        let row = self.starting.iter().position(|state| state.device == device).unwrap_or_else(|| {
            self.starting.push(StartingState { device, ..StartingState::default() });
            self.starting.len() - 1
        });
        (row, &mut self.starting[row])
    }

    /// Returns the owner of `place` in the trace. The rows of a starting state follow those of all earlier starting
    /// states.
    fn owner(&self, place: Place) -> Owner {
        let before = |state: usize, rows: fn(&StartingState) -> usize| -> usize {
            self.starting[..state].iter().map(rows).sum()
        };
        let segments = |state| before(state, |state| state.segments.len() + state.mappings.len());
        match place {
            Place::Event(row) => Owner::Event(EventId::from_index(row)),
            Place::Block(state, row) => {
                Owner::Block(BlockId::from_index(before(state, |state| state.blocks.len()) + row))
            }
            Place::Segment(state, row) => Owner::Segment(SegmentId::from_index(segments(state) + row)),
            Place::Mapping(state, row) => {
                Owner::Segment(SegmentId::from_index(segments(state) + self.starting[state].segments.len() + row))
            }
        }
    }

    fn key(&mut self, name: &str) -> u64 {
        let next = self.blocks.len() as u64;
        *self.blocks.entry(name.to_owned()).or_insert(next)
    }

    fn alloc(&mut self, name: &str, size: &str, facts: &Facts) -> Result<Alloc, String> {
        let (requested, allocated) = match size.split_once('/') {
            Some((requested, allocated)) => (number(requested)?, number(allocated)?),
            None => (number(size)?, number(size)?),
        };
        let address = self.next_address;
        self.next_address = self.next_address.saturating_add(allocated.max(1));
        let Facts { pool, category, op, scope, .. } = *facts;
        let stream = facts.stream.unwrap_or_default();
        let block = self.key(name);
        let pool = pool.unwrap_or(Pool::Large);
        Ok(Alloc { block, address, requested, allocated, stream, pool, category, op, scope })
    }

    fn facts(&mut self, words: &[&str], stack: StackId) -> Result<Facts, String> {
        let mut facts = Facts {
            category: Category::Unknown,
            pool: None,
            op: OpId::NONE,
            scope: ScopeId::NONE,
            stream: None,
            device: DeviceId(0),
            time_ns: None,
            free: 0,
            waits: false,
            stack,
        };
        let mut op = None;
        for &word in words {
            if let Some(category) = Category::from_name(word) {
                facts.category = category;
            } else if let Some(pool) = Pool::from_name(word) {
                facts.pool = Some(pool);
            } else if let Some(name) = word.strip_prefix('#') {
                op = Some(name);
            } else if let Some(path) = word.strip_prefix('@') {
                facts.scope = self.scope(path);
            } else if let Some(stream) = word.strip_prefix("stream=") {
                facts.stream = Some(StreamId(number(stream)?));
            } else if let Some(device) = word.strip_prefix("device=") {
                facts.device = device_id(device)?;
            } else if let Some(free) = word.strip_prefix("free=") {
                facts.free = number(free)?;
            } else if let Some(time) = word.strip_prefix("t=") {
                let micros = time.strip_suffix("us").ok_or_else(|| format!("'{word}': write t=12us"))?;
                facts.time_ns = Some(number(micros)?.saturating_mul(1000));
            } else if word == "waiting" {
                facts.waits = true;
            } else {
                return Err(format!("'{word}' is not expected here"));
            }
        }
        if let Some(name) = op {
            facts.op = self.op(name, &facts);
        }
        Ok(facts)
    }

    fn string(&mut self, text: &str) -> StringId {
        StringId(self.strings.intern(text.to_owned()))
    }

    fn scope(&mut self, path: &str) -> ScopeId {
        path.split('.').fold(ScopeId::NONE, |parent, name| {
            let name = self.string(name);
            ScopeId(self.scopes.intern(Scope { parent, name }))
        })
    }

    fn op(&mut self, name: &str, facts: &Facts) -> OpId {
        let name = self.string(name);
        self.ops.push(Op { name, scope: facts.scope, stack: facts.stack });
        OpId::from_index(self.ops.len() - 1)
    }

    fn stack(&mut self, innermost_first: &[&str]) -> StackId {
        innermost_first.iter().rev().fold(StackId::NONE, |parent, call| {
            let LineText { path, line, function } = LineText::parse(call);
            let file = if path.is_empty() { StringId::NONE } else { self.string(path) };
            let line = SourceLine { function: self.string(function), file, line };
            let frame = FrameId(self.lines.intern(line));
            StackId(self.stacks.intern(Stack { parent, frame }))
        })
    }

    fn finish(mut self) -> Trace {
        for &(place, name, value) in &self.attributes {
            let owner = self.owner(place);
            self.builder.add_attribute(Attribute { owner, name, value });
        }
        for row in self.open.drain(..) {
            self.annotations[row].end = EventId::from_index(self.events.len());
        }
        self.annotations.iter().for_each(|annotation| self.builder.add_annotation(*annotation));
        let tables = self.builder.tables();
        tables.strings = self.strings.into_rows();
        tables.scopes = self.scopes.into_rows();
        tables.ops = self.ops;
        tables.stacks = self.stacks.into_rows();
        tables.lines = self.lines.into_rows();
        let frame = |first_line| Frame { module: ModuleId::NONE, address: 0, first_line, line_count: 1 };
        tables.frames = (0..tables.lines.len() as u32).map(frame).collect();
        for state in &self.starting {
            self.builder.set_starting_state(state);
        }
        for event in &self.events {
            self.builder.push(event);
        }
        self.builder.finish()
    }
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not an integer"))
}

fn device_id(text: &str) -> Result<DeviceId, String> {
    text.parse().map(DeviceId).map_err(|_| format!("'{text}' is not a device"))
}

fn range(address: &str, bytes: &str, facts: &Facts) -> Result<Range, String> {
    let pool = facts.pool.unwrap_or(Pool::Large);
    Ok(Range { address: number(address)?, bytes: number(bytes)?, stream: facts.stream.unwrap_or_default(), pool })
}
