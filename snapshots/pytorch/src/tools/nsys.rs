//! Reads the memory events of an SQLite export of Nsight Systems (`nsys profile --cuda-memory-usage=true`, `nsys export
//! --type sqlite`). The tables are those of the
//! [SQLite export schema reference](https://docs.nvidia.com/nsight-systems/nsys-exporter/exported_data.html).
//!
//! Everything except the memory events and the API calls that caused them is lost, such as kernels, copies, NVTX ranges
//! and samples. Failed requests have no size in an export. Memory pools of the driver are seen block by block, without
//! their reserved memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};

use super::calls::{Call, Called, Calls, Outcome, in_address_space};
use super::cut;
use super::reports::Reports;
use super::sqlite::{Database, Row};
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::format::Progress;
use highwater_snapshots::ids::{DeviceId, ScopeId, StackId, StreamId};
use highwater_snapshots::trace::{DeviceFacts, Header, NOTE, PINNED_DEVICE, Trace};
use highwater_snapshots::units::count_of;

pub(crate) fn is_database(bytes: &[u8]) -> bool {
    bytes.starts_with(super::sqlite::MAGIC)
}

const EVENTS: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";

/// Labels of the kinds of memory, by value in `ENUM_CUDA_MEM_KIND`.
const KINDS: [&str; 8] =
    ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"];
const PAGEABLE: i64 = 0;
const PINNED: i64 = 1;
const DEVICE: i64 = 2;

/// The operations (`ENUM_CUDA_DEV_MEM_EVENT_OPER`).
const ALLOCATION: i64 = 0;
const DEALLOCATION: i64 = 1;

/// Status code of the CUDA runtime and driver for an out-of-memory error.
const OUT_OF_MEMORY: i64 = 2;

/// Reads an export. `watch` is called for every mebibyte with the progress, and can stop reading. Bytes count as read
/// when their pages were visited, which never happens for unneeded tables.
pub(crate) fn read(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Trace> {
    let mut export = Export { database: Database::open(bytes)?, reports: Reports::of(bytes, watch) };
    let events = export.events()?;
    export.reports.events = events.len() as u64;
    let causes = export.causes(&events)?;
    let stacks = export.stacks(&causes)?;
    let names = export.strings(&causes, &stacks)?;
    let gpus = export.gpus()?;
    let header = export.header(&events, &causes)?;
    let (calls, functions) = (Calls::default(), HashMap::new());
    let recording = Recording { calls, functions, stacks: &stacks, names: &names, gpus: &gpus };
    Ok(recording.of(&events, &causes, header))
}

#[derive(Clone, Debug)]
struct MemoryEvent {
    outcome: Outcome,
    time_ns: u64,
    process: i64,
    device: i64,
    address: u64,
    bytes: u64,
    kind: i64,
    stream: u64,
    correlation: Option<i64>,
    /// Name of the variable in this memory, if any.
    name: Option<Box<str>>,
}

#[derive(Default)]
struct Causes {
    /// The row of the function's name and the call chain of each call, by process and correlation id.
    calls: HashMap<(i64, i64), (i64, Option<i64>)>,
    /// Number of calls that failed with an out-of-memory error.
    failed: u64,
}

/// A frame of a call chain, as rows of the names of the function and of the library.
type ChainFrame = (i64, i64);

/// The GPUs, with the ordinal and facts of each, and the GPU for each process and CUDA device ordinal.
#[derive(Default)]
struct Gpus {
    facts: BTreeMap<i64, (String, u64)>,
    of_cuda: HashMap<(i64, i64), i64>,
}

struct Export<'a, 'w> {
    database: Database<'a>,
    reports: Reports<'w>,
}

/// Returns the process part of a serialized process or thread id.
fn process_of(global_id: i64) -> i64 {
    global_id >> 24
}

fn pid_of(process: i64) -> i64 {
    process & 0xff_ffff
}

impl Export<'_, '_> {
    /// Passes each row of `table` to `take`, with the positions of `columns` in the row. Does nothing if the table does
    /// not exist.
    fn scan<const N: usize>(
        &mut self,
        table: &str,
        columns: [&str; N],
        take: &mut dyn FnMut(&Row<'_>, [Option<usize>; N]),
    ) -> Result<()> {
        let Self { database, reports } = self;
        let database = &*database;
        let Some(table) = database.table(table) else { return Ok(()) };
        let columns = columns.map(|column| table.column(column));
        database.scan(table, &mut |row| {
            take(row, columns);
            reports.read(database.bytes_read())
        })
    }

    /// Returns the memory events in order of time.
    fn events(&mut self) -> Result<Vec<MemoryEvent>> {
        const NEEDED: [&str; 5] = ["start", "deviceId", "address", "bytes", "memoryOperationType"];
        let Some(table) = self.database.table(EVENTS) else {
            let is_export = self.database.table("StringIds").is_some();
            let found = if is_export {
                "an export of Nsight Systems without memory events"
            } else {
                "an SQLite database that is not an export of Nsight Systems"
            };
            let advice = "record with `nsys profile --cuda-memory-usage=true` and export with `nsys export --type \
                          sqlite`, or record without nsys with `highwater run -- PROGRAM`";
            return Err(Error::NotRecording { found: found.to_owned(), advice });
        };
        if let Some(missing) = NEEDED.iter().find(|column| table.column(column).is_none()) {
            let found = format!("an export of Nsight Systems whose memory events have no column '{missing}'");
            let advice = "export the report again with a newer nsys: `nsys export --type sqlite REPORT`";
            return Err(Error::NotRecording { found, advice });
        }
        let further = ["memKind", "globalPid", "correlationId", "streamId", "name"];
        let [start, device, address, bytes, operation] = NEEDED;
        let [kind, process, correlation, stream, name] = further;
        let columns = [start, device, address, bytes, operation, kind, process, correlation, stream, name];
        let mut events = Vec::new();
        self.scan(EVENTS, columns, &mut |row, columns| {
            let [start, device, address, bytes, operation, kind, process, correlation, stream, name] = columns;
            let number = |column| row.integer(column);
            let outcome = match number(operation) {
                Some(ALLOCATION) => Outcome::Allocated,
                Some(DEALLOCATION) => Outcome::Freed,
                _ => return,
            };
            events.push(MemoryEvent {
                outcome,
                time_ns: number(start).map_or(0, |time| time.max(0) as u64),
                process: process_of(number(process).unwrap_or(0)),
                device: number(device).unwrap_or(0),
                address: number(address).unwrap_or(0) as u64,
                bytes: number(bytes).map_or(0, |bytes| bytes.max(0) as u64),
                kind: number(kind).unwrap_or(DEVICE),
                stream: number(stream).map_or(0, |stream| stream.max(0) as u64),
                correlation: number(correlation),
                name: row.text(name).filter(|name| !name.is_empty()).map(Into::into),
            });
        })?;
        events.sort_by_key(|event| event.time_ns);
        Ok(events)
    }

    fn causes(&mut self, events: &[MemoryEvent]) -> Result<Causes> {
        let keys = events.iter().filter_map(|event| Some((event.process, event.correlation?)));
        let keys: HashSet<(i64, i64)> = keys.collect();
        let mut causes = Causes::default();
        for table in ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"] {
            let columns = ["globalTid", "correlationId", "nameId", "callchainId", "returnValue"];
            self.scan(table, columns, &mut |row, [thread, correlation, name, chain, returned]| {
                causes.failed += u64::from(row.integer(returned) == Some(OUT_OF_MEMORY));
                let process = process_of(row.integer(thread).unwrap_or(0));
                let (Some(correlation), Some(name)) = (row.integer(correlation), row.integer(name)) else { return };
                if keys.contains(&(process, correlation)) {
                    causes.calls.insert((process, correlation), (name, row.integer(chain)));
                }
            })?;
        }
        Ok(causes)
    }

    /// Returns the frames of the call chains in `causes`, innermost first.
    fn stacks(&mut self, causes: &Causes) -> Result<HashMap<i64, Vec<ChainFrame>>> {
        let needed: HashSet<i64> = causes.calls.values().filter_map(|(_, chain)| *chain).collect();
        let mut frames: HashMap<i64, Vec<(i64, ChainFrame)>> = HashMap::new();
        let columns = ["id", "stackDepth", "symbol", "module"];
        self.scan("CUDA_CALLCHAINS", columns, &mut |row, [id, depth, symbol, module]| {
            let (Some(id), Some(symbol)) = (row.integer(id), row.integer(symbol)) else { return };
            if needed.contains(&id) {
                let frame = (symbol, row.integer(module).unwrap_or(-1));
                frames.entry(id).or_default().push((row.integer(depth).unwrap_or(0), frame));
            }
        })?;
        let sorted = frames.into_iter().map(|(id, mut frames)| {
            frames.sort_by_key(|(depth, _)| *depth);
            (id, frames.into_iter().map(|(_, frame)| frame).collect())
        });
        Ok(sorted.collect())
    }

    fn strings(&mut self, causes: &Causes, stacks: &HashMap<i64, Vec<ChainFrame>>) -> Result<HashMap<i64, String>> {
        let of_calls = causes.calls.values().map(|(name, _)| *name);
        let of_stacks = stacks.values().flatten().flat_map(|(symbol, module)| [*symbol, *module]);
        let needed: HashSet<i64> = of_calls.chain(of_stacks).collect();
        let mut strings = HashMap::new();
        self.scan("StringIds", ["id", "value"], &mut |row, [id, value]| {
            if let (Some(id), Some(value)) = (row.integer(id).filter(|id| needed.contains(id)), row.text(value)) {
                strings.insert(id, cut(value).to_owned());
            }
        })?;
        Ok(strings)
    }

    fn gpus(&mut self) -> Result<Gpus> {
        let mut gpus = Gpus::default();
        self.scan("TARGET_INFO_GPU", ["id", "name", "totalMemory"], &mut |row, [id, name, bytes]| {
            let bytes = row.integer(bytes).map_or(0, |bytes| bytes.max(0) as u64);
            let facts = (row.text(name).unwrap_or_default().to_owned(), bytes);
            gpus.facts.extend(row.integer(id).map(|id| (id, facts)));
        })?;
        self.scan("TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId", "gpuId"], &mut |row, [pid, cuda, gpu]| {
            if let (Some(pid), Some(cuda), Some(gpu)) = (row.integer(pid), row.integer(cuda), row.integer(gpu)) {
                gpus.of_cuda.insert((pid, cuda), gpu);
            }
        })?;
        Ok(gpus)
    }

    /// Returns the value called `name` from a table of names and values; empty if there is none.
    fn value(&mut self, table: &str, name: &str) -> Result<String> {
        let mut found = String::new();
        self.scan(table, ["name", "value"], &mut |row, [key, value]| {
            if row.text(key) == Some(name) {
                found = row.text(value).unwrap_or_default().to_owned();
            }
        })?;
        Ok(found)
    }

    fn header(&mut self, events: &[MemoryEvent], causes: &Causes) -> Result<Header> {
        let version = self.value("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION")?;
        let host = self.value("TARGET_INFO_SYSTEM_ENV", "Hostname")?;
        let mut started_unix_us = 0;
        self.scan("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"], &mut |row, [start]| {
            started_unix_us = row.integer(start).map_or(0, |start| start.max(0) as u64 / 1000);
        })?;
        let processes: HashSet<i64> = events.iter().map(|event| event.process).collect();
        let pid = match (processes.len(), processes.iter().next()) {
            (1, Some(process)) => pid_of(*process) as u32,
            _ => 0,
        };
        let pageable = events.iter().filter(|event| event.kind == PAGEABLE).count() as u64;
        let mut notes = Vec::new();
        if pageable > 0 {
            notes.push(format!("{} of pageable host memory left out", count_of(pageable, "event")));
        }
        if causes.failed > 0 {
            let calls = count_of(causes.failed, "call");
            notes.push(format!("{calls} failed for lack of memory: exports do not contain their sizes"));
        }
        let recorder = format!("Nsight Systems {version}").trim_end().to_owned();
        let facts = notes.into_iter().map(|note| (NOTE.to_owned(), note)).collect();
        let level = if causes.calls.values().any(|(_, chain)| chain.is_some()) { "stacks" } else { "events" };
        Ok(Header { recorder, host, pid, started_unix_us, level: level.to_owned(), facts, ..Header::default() })
    }
}

struct Recording<'e> {
    calls: Calls,
    /// Scopes of functions, by the row of the function's name.
    functions: HashMap<i64, ScopeId>,
    stacks: &'e HashMap<i64, Vec<ChainFrame>>,
    names: &'e HashMap<i64, String>,
    gpus: &'e Gpus,
}

impl Recording<'_> {
    fn of(mut self, events: &[MemoryEvent], causes: &Causes, header: Header) -> Trace {
        let mut processes: HashMap<i64, usize> = HashMap::new();
        let mut stacks: HashMap<i64, StackId> = HashMap::new();
        let mut devices: BTreeMap<DeviceId, DeviceFacts> = BTreeMap::new();
        for event in events.iter().filter(|event| event.kind != PAGEABLE) {
            let next = processes.len();
            let process = *processes.entry(event.process).or_insert(next);
            let device = if event.kind == PINNED { PINNED_DEVICE } else { self.device(event, &mut devices) };
            let cause = event.correlation.and_then(|correlation| causes.calls.get(&(event.process, correlation)));
            let stack = cause.and_then(|(_, chain)| *chain);
            let stack = stack.map_or(StackId::NONE, |chain| *stacks.entry(chain).or_insert_with(|| self.stack(chain)));
            let scope = self.scope(event, cause.map(|(name, _)| *name));
            self.calls.calls.push(Call {
                outcome: event.outcome,
                time_ns: event.time_ns,
                device,
                address: in_address_space(process, event.address),
                bytes: event.bytes,
                stream: StreamId(event.stream),
                stack,
                scope,
            });
        }
        self.calls.finish(header, devices.into_values().collect(), Called::Driver)
    }

    /// Returns the GPU of an event. CUDA device ordinals count only the GPUs visible to the process.
    fn device(&self, event: &MemoryEvent, devices: &mut BTreeMap<DeviceId, DeviceFacts>) -> DeviceId {
        let gpu = self.gpus.of_cuda.get(&(pid_of(event.process), event.device)).copied().unwrap_or(event.device);
        let device = DeviceId(u16::try_from(gpu).unwrap_or(u16::MAX));
        devices.entry(device).or_insert_with(|| {
            let (name, capacity_bytes) = self.gpus.facts.get(&gpu).cloned().unwrap_or_default();
            DeviceFacts { device, name, capacity_bytes, ..DeviceFacts::default() }
        });
        device
    }

    fn stack(&mut self, chain: i64) -> StackId {
        let Calls { rows, builder, .. } = &mut self.calls;
        let (tables, names) = (builder.tables(), self.names);
        let frames = self.stacks.get(&chain).map_or(&[][..], Vec::as_slice);
        let frame = |&(symbol, module): &ChainFrame| {
            let [symbol, module] =
                [symbol, module].map(|row| rows.text_of(tables, row, || names.get(&row).map_or("", String::as_str)));
            rows.frame_of(tables, symbol, module, 0)
        };
        let frames: Vec<_> = frames.iter().map(frame).collect();
        rows.stack(tables, &frames)
    }

    /// Returns the scope of an event: the called function, or otherwise the kind of memory, followed by the variable if
    /// there is one.
    fn scope(&mut self, event: &MemoryEvent, function: Option<i64>) -> ScopeId {
        if event.outcome == Outcome::Freed {
            return ScopeId::NONE;
        }
        let kind = usize::try_from(event.kind).ok().and_then(|kind| KINDS.get(kind)).copied().unwrap_or("Unknown");
        let (calls, names) = (&mut self.calls, self.names);
        let scope = match function.and_then(|row| Some((row, names.get(&row)?))) {
            Some((row, name)) => {
                let add = || calls.scope(ScopeId::NONE, without_version(name));
                *self.functions.entry(row).or_insert_with(add)
            }
            None => calls.scope(ScopeId::NONE, kind),
        };
        event.name.as_ref().map_or(scope, |name| self.calls.scope(scope, name))
    }
}

/// Returns a CUDA function's name without the version that Nsight Systems appends, such as `cudaMalloc` for
/// `cudaMalloc_v3020`.
fn without_version(name: &str) -> &str {
    let is_version = |version: &str| version.len() > 1 && version.bytes().all(|byte| byte.is_ascii_digit());
    name.rsplit_once("_v").filter(|(_, version)| is_version(version)).map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_runtime_function_is_left_out() {
        let names = ["cudaMalloc_v3020", "cuMemAlloc_v2", "cudaFree"].map(without_version);
        assert_eq!(names, ["cudaMalloc", "cuMemAlloc_v2", "cudaFree"]);
    }
}
