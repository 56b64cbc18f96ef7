//! Recordings that are generated in memory for the benchmarks, the same in every run.

use highwater_snapshots::event::{Alloc, Event, What};
use highwater_snapshots::format::{CHUNK_EVENTS, EndFacts, SnapWriter};
use highwater_snapshots::tables::{Frame, Module, Op, Scope, SourceLine, Stack};
use highwater_snapshots::trace::Header;
use highwater_snapshots::{
    Category, DeviceId, FrameId, ModuleId, OpId, Phase, Pool, ScopeId, StackId, StreamId, StringId,
};

/// Pseudorandom numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Operations of the generated model's step; each has its own stack, some 40 frames deep.
const OPS: u32 = 4_000;
const DEPTH: u32 = 40;

/// The addresses of a caching allocator: the address that was freed last is reused for the next block of that size.
#[derive(Default)]
struct Addresses {
    free: std::collections::HashMap<u64, Vec<u64>>,
    end: u64,
}

impl Addresses {
    fn take(&mut self, bytes: u64) -> u64 {
        if let Some(address) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return address;
        }
        self.end += bytes;
        0x7f2a_0000_0000 + self.end - bytes
    }
}

/// Training steps as events, in the pattern of a deep net: forward keeps activations, backward frees them in reverse.
struct Program {
    numbers: Numbers,
    addresses: Addresses,
    events: Vec<Event>,
    time_ns: u64,
    next_block: u64,
}

/// A live block.
#[derive(Clone, Copy)]
struct Held {
    block: u64,
    bytes: u64,
    address: u64,
}

impl Program {
    fn new() -> Self {
        let numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        Self { numbers, addresses: Addresses::default(), events: Vec::new(), time_ns: 0, next_block: 0 }
    }

    fn add(&mut self, stack: StackId, what: What) {
        self.time_ns += 200 + self.numbers.below(9_000);
        self.events.push(Event { time_ns: self.time_ns, device: DeviceId(0), stack, what });
    }

    fn alloc(&mut self, op: u32, category: Category) -> Held {
        let requested = match op % 5 {
            0 => 4 * (1 + self.numbers.below(40_000)),
            other => u64::from(op % 97 + 1) * 4096 * u64::from(other),
        };
        self.alloc_bytes(op, requested, category)
    }

    fn alloc_bytes(&mut self, op: u32, requested: u64, category: Category) -> Held {
        let bytes = requested.next_multiple_of(512);
        let held = Held { block: self.next_block, bytes, address: self.addresses.take(bytes) };
        self.next_block += 1;
        let pool = if bytes > 1 << 20 { Pool::Large } else { Pool::Small };
        let stack = StackId(op % OPS * 3 + DEPTH + op % 3);
        let alloc = Alloc {
            block: held.block,
            address: held.address,
            requested,
            allocated: bytes,
            stream: StreamId(0),
            pool,
            category,
            op: OpId(op),
            scope: ScopeId(op % OPS / 10),
        };
        self.add(stack, What::Alloc(alloc));
        held
    }

    fn free(&mut self, held: Held) {
        self.add(StackId::NONE, What::FreeRequested(held.block));
        self.add(StackId::NONE, What::FreeCompleted(held.block));
        self.addresses.free.entry(held.bytes).or_default().push(held.address);
    }

    fn step(&mut self, step: u32) {
        self.add(StackId::NONE, What::Step(step));
        self.add(StackId::NONE, What::Phase(Phase::Forward));
        let mut kept = Vec::new();
        for op in 0..OPS {
            kept.push((op, self.alloc(op, Category::Activation)));
            for _ in 0..self.numbers.below(3) {
                let temporary = self.alloc(op, Category::Temporary);
                self.free(temporary);
            }
        }
        self.add(StackId::NONE, What::Phase(Phase::Backward));
        let mut gradients = Vec::new();
        while let Some((op, activation)) = kept.pop() {
            gradients.push(self.alloc(op, Category::Gradient));
            let temporary = self.alloc(op, Category::Temporary);
            self.free(activation);
            self.free(temporary);
        }
        self.add(StackId::NONE, What::Phase(Phase::ZeroGrad));
        gradients.into_iter().for_each(|gradient| self.free(gradient));
    }
}

/// The first `events` events of as many training steps as that takes.
pub(crate) fn training(events: usize) -> Vec<Event> {
    let mut program = Program::new();
    for step in 0.. {
        if program.events.len() >= events {
            break;
        }
        program.step(step);
    }
    program.events.truncate(events);
    program.events
}

/// `blocks` blocks of one KiB, then each freed, the oldest first: three events a block, and every free moves all
/// others.
#[allow(dead_code, reason = "not every benchmark asks for it")]
pub(crate) fn oldest_first(blocks: usize) -> Vec<Event> {
    let mut program = Program::new();
    let held: Vec<Held> = (0..blocks).map(|_| program.alloc_bytes(0, 1024, Category::Activation)).collect();
    held.into_iter().for_each(|held| program.free(held));
    program.events
}

/// The numbers in environment variable `name`, separated by commas, or `default` where it is not set.
pub(crate) fn numbers(name: &str, default: &[usize]) -> Vec<usize> {
    match std::env::var(name) {
        Ok(said) => said.split(',').filter_map(|count| count.trim().parse().ok()).collect(),
        Err(_) => default.to_vec(),
    }
}

/// The events as a `.snap` file, with the tables that they refer to.
pub(crate) fn write(events: &[Event]) -> Vec<u8> {
    let mut numbers = Numbers(7);
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    let names: Vec<String> = (0..OPS)
        .map(|op| format!("highwater_engine::nn::module{}::Layer{op}::forward::{{closure}}", op / 10))
        .collect();
    writer.append_strings(&names).unwrap();
    writer.append_modules(&[Module { path: StringId(0), build_id: vec![7; 20], load_bias: 0x5555_5000_0000 }]).unwrap();
    let stacks = OPS * 3 + DEPTH;
    let frame = |_| Frame { module: ModuleId(0), address: numbers.below(1 << 24), first_line: 0, line_count: 0 };
    writer.append_frames(&(0..stacks).map(frame).collect::<Vec<_>>()).unwrap();
    let parent = |row: u32| {
        if row == 0 { StackId::NONE } else { StackId(if row < DEPTH { row - 1 } else { row * 7 % row }) }
    };
    let stack = |row| Stack { parent: parent(row), frame: FrameId(row) };
    writer.append_stacks(&(0..stacks).map(stack).collect::<Vec<_>>()).unwrap();
    let scope = |row| Scope { parent: if row == 0 { ScopeId::NONE } else { ScopeId(row / 4) }, name: StringId(row) };
    writer.append_scopes(&(0..OPS / 10).map(scope).collect::<Vec<_>>()).unwrap();
    let op = |op| Op { name: StringId(op), scope: ScopeId(op / 10), stack: StackId(op * 3 + DEPTH) };
    writer.append_ops(&(0..OPS).map(op).collect::<Vec<_>>()).unwrap();
    for chunk in events.chunks(CHUNK_EVENTS) {
        writer.write_events(chunk).unwrap();
    }
    let line =
        |frame: u32| SourceLine { function: StringId(frame % OPS), file: StringId(frame % 50), line: frame % 900 };
    let symbols = |frame| highwater_snapshots::format::Symbols { frame: FrameId(frame), lines: vec![line(frame)] };
    writer.append_symbols(&(0..stacks).map(symbols).collect::<Vec<_>>()).unwrap();
    writer.finish(&EndFacts::default()).unwrap()
}
