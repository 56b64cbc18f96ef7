//! Reads device memory profiles of JAX (`jax.profiler.save_device_memory_profile`): gzipped profiles of
//! [pprof](https://github.com/google/pprof/blob/main/proto/profile.proto) with the live buffers and executables by
//! Python stack, as `HeapProfile` in
//! [`py_client.cc`](https://github.com/jax-ml/jax/blob/main/jaxlib/py_client.cc) writes them.
//!
//! A profile is a state, which has no history and no addresses, and includes neither the memory reserved by the device's
//! allocator nor memory that running programs use for themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use hashbrown::HashMap;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::cut;
use super::reports::Reports;
use crate::rows::{MAX_FRAMES, Rows};
use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::event::Alloc;
use highwater_snapshots::format::Progress;
use highwater_snapshots::ids::{DeviceId, FrameId, OpId, ScopeId, StackId, StreamId};
use highwater_snapshots::pprof::{Function, Location, Sample, ValueType};
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::{DeviceFacts, Header, NOTE, PINNED_DRIVER, Trace};
use highwater_snapshots::units::format_count;
use highwater_snapshots::{Category, Pool, StartingBlock, StartingState, TraceBuilder};

/// Numbers of the fields of a profile.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING_TABLE: u32 = 6;

const TYPES: [(&str, &str); 2] = [("allocations", "count"), ("space", "bytes")];

/// Maximum decompressed size; larger profiles are not from JAX.
const MAX_BYTES: usize = 1 << 30;

/// Maximum number of rows of a table, and of samples.
const MAX_ROWS: usize = 1 << 20;

const MAX_INLINED: usize = 8;

/// Maximum number of blocks listed one by one; each further sample becomes one block.
const MAX_BLOCKS: u64 = 1 << 20;

/// Start of the artificial addresses of blocks: far from all addresses of devices.
const FIRST_ADDRESS: u64 = 1 << 62;

const ALIGNMENT: u64 = 512;

/// Returns whether a file begins like a pprof profile: with a message of at most two small string indices (the sample
/// type), followed by another such message or by a sample.
pub(crate) fn is_profile(bytes: &[u8]) -> bool {
    let first = match bytes {
        [0x0a, length @ 2..=12, rest @ ..] => rest.split_at_checked(usize::from(*length)),
        _ => None,
    };
    first.is_some_and(|(fields, rest)| {
        matches!(fields, [0x08, _, 0x10, _] | [0x08, _]) && matches!(rest.first(), Some(0x0a | 0x12))
    })
}

/// Reads a profile. `watch` is called for every mebibyte with the progress, and can stop reading.
pub(crate) fn read(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Trace> {
    if bytes.len() > MAX_BYTES {
        let what = "this profile is larger than 1 GiB: JAX does not write profiles of that size".to_owned();
        return Err(Error::Damaged { offset: MAX_BYTES as u64, what });
    }
    let mut profile = Profile { bytes, ..Profile::default() };
    let mut reports = Reports::of(bytes, watch);
    for field in Fields::of(bytes) {
        let field = field?;
        reports.read(field.offset as u64)?;
        profile.take(field)?;
    }
    profile.check_types()?;
    let mut writer = Writer::default();
    for field in Fields::of(bytes) {
        let field = field?;
        reports.read((bytes.len() + field.offset) as u64)?;
        if field.number == SAMPLE {
            writer.add(&profile, &field.message::<Sample>()?);
        }
    }
    Ok(writer.finish())
}

#[derive(Clone, Copy)]
struct Field<'a> {
    /// The field number; 0 for fields without a length, which are not needed.
    number: u32,
    content: &'a [u8],
    /// Offset of the content in the message.
    offset: usize,
}

impl Field<'_> {
    fn message<M: Message + Default>(&self) -> Result<M> {
        M::decode(self.content).map_err(|error| damaged(self.offset, &error))
    }
}

fn damaged(offset: usize, error: &prost::DecodeError) -> Error {
    Error::Damaged { offset: offset as u64, what: format!("the profile is cut off or damaged ({error})") }
}

/// The fields of a message, decoded one at a time, since a whole profile would need many times the memory.
struct Fields<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Fields<'a> {
    fn of(message: &'a [u8]) -> Self {
        Self { rest: message, length: message.len() }
    }

    fn read(&mut self) -> Result<Option<Field<'a>>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let offset = self.length - self.rest.len();
        let failed = |error: prost::DecodeError| damaged(offset, &error);
        let (number, wire_type) = decode_key(&mut self.rest).map_err(failed)?;
        let skipped = match wire_type {
            WireType::Varint => {
                decode_varint(&mut self.rest).map_err(failed)?;
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => decode_varint(&mut self.rest).map_err(failed)?,
            WireType::StartGroup | WireType::EndGroup => u64::MAX,
        };
        let split = usize::try_from(skipped).ok().and_then(|skipped| self.rest.split_at_checked(skipped));
        let Some((content, rest)) = split else {
            let what = "the profile is cut off or damaged: a field goes past the end".to_owned();
            return Err(Error::Damaged { offset: offset as u64, what });
        };
        let offset = self.length - self.rest.len();
        self.rest = rest;
        let number = if wire_type == WireType::LengthDelimited { number } else { 0 };
        Ok(Some(Field { number, content, offset }))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.read().transpose();
        if matches!(field, Some(Err(_))) {
            self.rest = &[];
        }
        field
    }
}

#[derive(Default)]
struct Profile<'a> {
    bytes: &'a [u8],
    /// Offset and length of each string, which may be cut; strings that are not UTF-8 are empty.
    strings: Vec<(u32, u32)>,
    samples: usize,
    types: Vec<ValueType>,
    functions: HashMap<u64, (i64, i64)>,
    /// The lines of each location as function and number, innermost first.
    locations: HashMap<u64, Vec<(u64, i64)>>,
}

impl<'a> Profile<'a> {
    fn take(&mut self, field: Field<'_>) -> Result<()> {
        let tables = [self.strings.len(), self.samples, self.functions.len(), self.locations.len()];
        if tables.iter().any(|rows| *rows >= MAX_ROWS) {
            let what = format!("a table of the profile has {} rows or more: too many", format_count(MAX_ROWS as u64));
            return Err(Error::Damaged { offset: field.offset as u64, what });
        }
        match field.number {
            STRING_TABLE => {
                let text = std::str::from_utf8(field.content).unwrap_or_default();
                self.strings.push((field.offset as u32, cut(text).len() as u32));
            }
            SAMPLE => self.samples += 1,
            SAMPLE_TYPE if self.types.len() < 8 => self.types.push(field.message()?),
            FUNCTION => {
                let Function { id, name, filename } = field.message()?;
                self.functions.insert(id, (name, filename));
            }
            LOCATION => {
                let Location { id, line } = field.message()?;
                let lines = line.iter().take(MAX_INLINED).map(|line| (line.function_id, line.line));
                self.locations.insert(id, lines.collect());
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the bytes of the string in a row; empty if there is none.
    fn string_bytes(&self, row: i64) -> &'a [u8] {
        let range = usize::try_from(row).ok().and_then(|row| self.strings.get(row));
        let text = range.and_then(|&(offset, length)| self.bytes.get(offset as usize..)?.get(..length as usize));
        text.unwrap_or_default()
    }

    /// Returns the string of a row. It is validated at every call, so call this only once for each row.
    fn string(&self, row: i64) -> &'a str {
        std::str::from_utf8(self.string_bytes(row)).unwrap_or_default()
    }

    fn check_types(&self) -> Result<()> {
        let types: Vec<(&str, &str)> =
            self.types.iter().map(|one| (self.string(one.r#type), self.string(one.unit))).collect();
        if types == TYPES {
            return Ok(());
        }
        let types: Vec<String> = types.iter().map(|(name, unit)| format!("'{name:.40}' in {unit:.40}")).collect();
        let found = format!("a pprof profile of {}", types.join(" and "));
        let advice = "only profiles of jax.profiler.save_device_memory_profile are supported; open others with pprof";
        Err(Error::NotRecording { found, advice })
    }

    /// Returns the string index of the sample's label `key`; `None` if the label is missing or empty.
    fn label(&self, sample: &Sample, key: &str) -> Option<i64> {
        let label = sample.label.iter().find(|label| self.string_bytes(label.key) == key.as_bytes());
        label.map(|label| label.str).filter(|row| !self.string_bytes(*row).is_empty())
    }
}

#[derive(Default)]
struct Writer {
    builder: TraceBuilder,
    rows: Rows,
    frames: HashMap<u64, Vec<FrameId>>,
    devices: Vec<Vec<StartingBlock>>,
    /// The row in `devices` of each device, by name. Executables have no device name.
    devices_by_name: BTreeMap<String, usize>,
    /// The row in `devices` of each device, by the string index of its name.
    devices_by_row: HashMap<Option<i64>, usize>,
    blocks: u64,
    next_address: u64,
    /// Number of samples written as one block instead of several.
    merged: u64,
}

impl Writer {
    fn add(&mut self, profile: &Profile<'_>, sample: &Sample) {
        let [count, bytes] = [0, 1].map(|row| sample.value.get(row).map_or(0, |value| (*value).max(0) as u64));
        if count == 0 {
            return;
        }
        let stack = self.stack(profile, sample);
        let scope = profile.label(sample, "kind").map_or(ScopeId::NONE, |row| {
            let kind = self.rows.text_of(self.builder.tables(), row, || profile.string(row));
            self.rows.scope_of(self.builder.tables(), ScopeId::NONE, kind)
        });
        let device = self.device(profile, profile.label(sample, "device"));
        let count = if self.blocks.saturating_add(count) > MAX_BLOCKS {
            self.merged += u64::from(count > 1);
            1
        } else {
            count
        };
        for block in 0..count {
            // All blocks of a sample have the same size; of a profile that says otherwise, the sum is right.
            let requested = bytes / count + u64::from(block < bytes % count);
            let alloc = Alloc {
                block: self.blocks,
                address: FIRST_ADDRESS.saturating_add(self.next_address),
                requested,
                allocated: requested,
                stream: StreamId(0),
                pool: if requested > 1 << 20 { Pool::Large } else { Pool::Small },
                category: Category::Unknown,
                op: OpId::NONE,
                scope,
            };
            self.blocks += 1;
            self.next_address =
                self.next_address.saturating_add(requested.saturating_add(ALIGNMENT) / ALIGNMENT * ALIGNMENT);
            self.devices[device].push(StartingBlock { alloc, stack, free_requested: false });
        }
    }

    /// Returns the row in `devices` of the device with the name `name`, a string index. Adds the device if it is new.
    fn device(&mut self, profile: &Profile<'_>, name: Option<i64>) -> usize {
        let Self { devices, devices_by_name, devices_by_row, .. } = self;
        *devices_by_row.entry(name).or_insert_with(|| {
            let name = name.map_or("", |row| profile.string(row)).to_owned();
            *devices_by_name.entry(name).or_insert_with(|| {
                devices.push(Vec::new());
                devices.len() - 1
            })
        })
    }

    fn stack(&mut self, profile: &Profile<'_>, sample: &Sample) -> StackId {
        let mut frames = Vec::new();
        for id in sample.location_id.iter().take(MAX_FRAMES) {
            let (rows, tables) = (&mut self.rows, self.builder.tables());
            let of_location = self.frames.entry(*id).or_insert_with(|| {
                let lines = profile.locations.get(id).map_or(&[][..], Vec::as_slice);
                lines.iter().map(|(function, line)| frame(rows, tables, profile, *function, *line)).collect()
            });
            frames.extend(of_location.iter().take(MAX_FRAMES - frames.len()));
        }
        self.rows.stack(self.builder.tables(), &frames)
    }

    fn finish(self) -> Trace {
        let Self { mut builder, mut devices, mut devices_by_name, .. } = self;
        let mut unnamed = devices_by_name.remove("").map(|row| std::mem::take(&mut devices[row])).unwrap_or_default();
        let mut used = BTreeSet::new();
        let mut states: Vec<StartingState> = Vec::new();
        for (name, row) in devices_by_name {
            let blocks = std::mem::take(&mut devices[row]);
            let number = ordinal(&name).filter(|number| !used.contains(number));
            let number = number.or_else(|| (0..DeviceId::END).find(|number| !used.contains(number)));
            let number = number.unwrap_or(DeviceId::END);
            used.insert(number);
            let device = DeviceId(number);
            let driver = if is_host(&name) { PINNED_DRIVER } else { "jax" }.to_owned();
            builder.set_device(DeviceFacts { device, name, driver, ..DeviceFacts::default() });
            states.push(StartingState { device, blocks, ..StartingState::default() });
        }
        states.sort_by_key(|state| state.device);
        let mut facts = Vec::new();
        if !unnamed.is_empty() {
            if states.is_empty() {
                states.push(StartingState::default());
            }
            let note = format!(
                "JAX's profiles do not name the devices of executables: these are assigned to device {}",
                states[0].device.0
            );
            facts.push((NOTE.to_owned(), note));
            states[0].blocks.append(&mut unnamed);
        }
        let note = "a JAX profile contains no history, no addresses, no reserved memory, and no temporary memory of \
                    running executables";
        facts.push((NOTE.to_owned(), note.to_owned()));
        if self.merged > 0 {
            let what = format!(
                "groups of buffers that are one block each, because the profile has more than {1} blocks: {0}",
                format_count(self.merged),
                format_count(MAX_BLOCKS)
            );
            builder.add_problem(Problem::new(what));
        }
        let level = if builder.tables().stacks.is_empty() { "state" } else { "stacks" }.to_owned();
        builder.set_header(Header { recorder: "JAX".to_owned(), level, facts, ..Header::default() });
        states.iter().for_each(|state| builder.set_starting_state(state));
        builder.finish()
    }
}

fn frame(rows: &mut Rows, tables: &mut Tables, profile: &Profile<'_>, function: u64, line: i64) -> FrameId {
    let (name, file) = profile.functions.get(&function).copied().unwrap_or_default();
    let line = u32::try_from(line).unwrap_or(0);
    let [name, file] = [name, file].map(|row| rows.text_of(tables, row, || profile.string(row)));
    rows.frame_of(tables, name, file, line)
}

/// Returns the ordinal in a device name: 1 for `cuda:1` and `TPU_1(process=0,(1,0,0,0))`. `None` without one below 127.
fn ordinal(name: &str) -> Option<u16> {
    let name = name.split('(').next().unwrap_or(name);
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok().filter(|number| *number < 127)
}

fn is_host(name: &str) -> bool {
    name.starts_with("cpu") || name.starts_with("TFRT_CPU")
}
