//! Turns a tool's list of allocations and frees by address into a trace.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashSet;

use super::lines::sentence;
use crate::rows::Rows;
use highwater_snapshots::event::{Alloc, Event, Range, What};
use highwater_snapshots::ids::{DeviceId, OpId, ScopeId, StackId, StreamId};
use highwater_snapshots::trace::{DRIVER_CALLS, DeviceFacts, Header, NOTE, PINNED_DEVICE, PINNED_DRIVER, Trace};
use highwater_snapshots::units::{count_of, format_bytes};
use highwater_snapshots::{Category, Pool, StartingBlock, StartingState, TraceBuilder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allocated,
    Freed,
    Failed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) outcome: Outcome,
    pub(super) time_ns: u64,
    pub(super) device: DeviceId,
    pub(super) address: u64,
    /// Bytes allocated or freed; 0 for a free whose size is not recorded.
    pub(super) bytes: u64,
    pub(super) stream: StreamId,
    pub(super) stack: StackId,
    pub(super) scope: ScopeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// The CUDA driver: each allocation is a segment with one block, as in recordings of `highwater run`.
    Driver,
    /// Another allocator, whose segments are not recorded.
    Allocator,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) builder: TraceBuilder,
    pub(super) rows: Rows,
    pub(super) calls: Vec<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    key: u64,
    range: Range,
}

/// Makes an address unique among processes: each process has its own address space, so its number is added to the upper
/// bits.
pub(super) fn in_address_space(process: usize, address: u64) -> u64 {
    address.wrapping_add((process as u64) << 50)
}

fn range_of(call: &Call) -> Range {
    // PyTorch's size rule, as in recordings of `highwater run`.
    let pool = if call.bytes > 1 << 20 { Pool::Large } else { Pool::Small };
    Range { address: call.address, bytes: call.bytes, stream: call.stream, pool }
}

impl Calls {
    pub(super) fn scope(&mut self, parent: ScopeId, name: &str) -> ScopeId {
        self.rows.scope(self.builder.tables(), parent, name)
    }

    /// Builds the trace. A block whose address first occurs in a free was live before the first call. A block whose
    /// address range is allocated again was freed before, by a call that is missing.
    pub(super) fn finish(mut self, header: Header, devices: Vec<DeviceFacts>, called: Called) -> Trace {
        self.set_devices(devices, called);
        let notes = header.facts.clone();
        self.builder.set_header(Header { facts: Vec::new(), ..header });
        let (builder, rows) = (self.builder, self.rows);
        let mut writer = Writer { builder, rows, called, live: BTreeMap::new(), keys: 0, repeated: 0 };
        let baseline = writer.set_baseline(&self.calls);
        for call in &self.calls {
            writer.write(call);
        }
        let mut builder = writer.builder;
        builder.trust().repeated_allocs += writer.repeated;
        if baseline > 0 {
            let what = ["was live before the first event: it is", "were live before the first event: they are"];
            let what = sentence(baseline, "block", what);
            let note = format!("{what} known only from the frees; blocks that were never freed are missing");
            builder.add_facts([(NOTE.to_owned(), note)]);
        }
        let failed = self.calls.iter().filter(|call| call.outcome == Outcome::Failed).count() as u64;
        if failed > 0 {
            let what = "as marks show; they are not analysed, because the free memory of the device was not recorded";
            let note = format!("{} failed, {what}", count_of(failed, "request"));
            builder.add_facts([(NOTE.to_owned(), note)]);
        }
        builder.add_facts(notes);
        builder.finish()
    }

    fn set_devices(&mut self, devices: Vec<DeviceFacts>, called: Called) {
        let mut unnamed: BTreeSet<DeviceId> = self.calls.iter().map(|call| call.device).collect();
        let of_driver = [DRIVER_CALLS].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = if called == Called::Driver { of_driver.to_vec() } else { Vec::new() };
        for facts in devices {
            unnamed.remove(&facts.device);
            self.builder.set_device(DeviceFacts { settings: settings.clone(), driver: "cuda".to_owned(), ..facts });
        }
        for device in unnamed {
            let (name, driver) = match device {
                PINNED_DEVICE => ("pinned host memory", PINNED_DRIVER),
                _ => ("", "cuda"),
            };
            let (name, driver, settings) = (name.to_owned(), driver.to_owned(), settings.clone());
            self.builder.set_device(DeviceFacts { device, name, driver, settings, ..DeviceFacts::default() });
        }
    }
}

struct Writer {
    builder: TraceBuilder,
    rows: Rows,
    called: Called,
    live: BTreeMap<(DeviceId, u64), Live>,
    keys: u64,
    /// Number of blocks whose frees are missing.
    repeated: u64,
}

impl Writer {
    /// Sets the blocks that were live before the first call. Returns their number.
    fn set_baseline(&mut self, calls: &[Call]) -> u64 {
        let mut named = HashSet::new();
        let mut states: BTreeMap<DeviceId, StartingState> = BTreeMap::new();
        for call in calls.iter().filter(|call| call.outcome != Outcome::Failed) {
            let is_first = named.insert((call.device, call.address));
            if !is_first || call.outcome != Outcome::Freed || call.bytes == 0 || self.overlapping(call).is_some() {
                continue;
            }
            let (device, range) = (call.device, range_of(call));
            let alloc = self.begin(call, ScopeId::NONE);
            let state = states.entry(device).or_insert_with(|| StartingState { device, ..StartingState::default() });
            if self.called == Called::Driver {
                state.segments.push(range);
            }
            state.blocks.push(StartingBlock { alloc, stack: StackId::NONE, free_requested: false });
        }
        states.values().for_each(|state| self.builder.set_starting_state(state));
        self.keys
    }

    /// Returns the address of the last live block that the range of `call` overlaps; `None` if it overlaps none.
    fn overlapping(&self, call: &Call) -> Option<u64> {
        let end = call.address.saturating_add(call.bytes.max(1));
        let below = self.live.range((call.device, 0)..(call.device, end)).next_back();
        let (&(_, address), live) = below?;
        (address.saturating_add(live.range.bytes.max(1)) > call.address).then_some(address)
    }

    fn begin(&mut self, call: &Call, scope: ScopeId) -> Alloc {
        let (block, range) = (self.keys, range_of(call));
        self.keys += 1;
        self.live.insert((call.device, call.address), Live { key: block, range });
        Alloc {
            block,
            address: range.address,
            requested: range.bytes,
            allocated: range.bytes,
            stream: range.stream,
            pool: range.pool,
            category: Category::Unknown,
            op: OpId::NONE,
            scope,
        }
    }

    fn write(&mut self, call: &Call) {
        let &Call { outcome, device, address, scope, .. } = call;
        match outcome {
            Outcome::Allocated => {
                while let Some(former) = self.overlapping(call) {
                    self.repeated += 1;
                    self.free(call, former, StackId::NONE);
                }
                let alloc = self.begin(call, scope);
                if self.called == Called::Driver {
                    self.push(call, call.stack, What::SegmentAlloc(range_of(call)));
                }
                self.push(call, call.stack, What::Alloc(alloc));
            }
            Outcome::Freed if self.live.contains_key(&(device, address)) => self.free(call, address, call.stack),
            // No block has this key, so that the free is counted as that of an unknown block.
            Outcome::Freed => self.push(call, call.stack, What::FreeRequested(u64::MAX)),
            // An out-of-memory event states the free memory, from which the memory of the device is inferred.
            Outcome::Failed => {
                let text = format!("a request of {} failed", format_bytes(call.bytes));
                let text = self.rows.text(self.builder.tables(), &text);
                self.push(call, call.stack, What::Mark(text));
            }
        }
    }

    fn free(&mut self, call: &Call, address: u64, stack: StackId) {
        let Some(live) = self.live.remove(&(call.device, address)) else { return };
        self.push(call, stack, What::FreeRequested(live.key));
        self.push(call, stack, What::FreeCompleted(live.key));
        if self.called == Called::Driver {
            self.push(call, stack, What::SegmentFree(live.range));
        }
    }

    fn push(&mut self, call: &Call, stack: StackId, what: What) {
        self.builder.push(&Event { time_ns: call.time_ns, device: call.device, stack, what });
    }
}
