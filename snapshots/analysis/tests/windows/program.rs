//! A program that allocates and frees in every possible way, and recordings of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_analysis::source::Watch;
use highwater_snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_snapshots::format::{EndFacts, SnapWriter, Windows};
use highwater_snapshots::tables::Op;
use highwater_snapshots::trace::Header;
use highwater_snapshots::{
    Category, DeviceId, OpId, Phase, Pool, ScopeId, StackId, StartingBlock, StartingState, StreamId, StringId,
};

/// Watches nothing.
pub(crate) fn watch() -> Watch<'static> {
    Box::leak(Box::new(|_| ControlFlow::Continue(())))
}

/// A sequence of numbers that looks random and is the same every time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// The next one, less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A program that allocates and frees on two devices, contradicts itself at times, and has steps.
struct Program {
    numbers: Numbers,
    /// Blocks by device: key, and whether the free was requested.
    live: [Vec<(u64, bool)>; 2],
    segments: Vec<(DeviceId, Range)>,
    next_block: u64,
    next_op: u32,
    events: Vec<Event>,
    /// Whether segments are released that were not obtained, or obtained twice.
    contradicts: bool,
}

fn alloc(block: u64, requested: u64, category: Category, op: OpId) -> Alloc {
    Alloc {
        block,
        address: block << 12,
        requested,
        allocated: requested.next_multiple_of(512),
        stream: StreamId(block % 3),
        pool: Pool::Small,
        category,
        op,
        scope: ScopeId::NONE,
    }
}

impl Program {
    fn push(&mut self, device: DeviceId, what: What) {
        let time_ns = self.events.len() as u64 * 10;
        self.events.push(Event { time_ns, device, stack: StackId::NONE, what });
    }

    fn go_on(&mut self, step: u32) {
        let row = self.numbers.below(2) as usize;
        let device = DeviceId(row as u16);
        let count = self.live[row].len() as u64;
        match self.numbers.below(40) {
            0..16 => {
                let category = Category::ALL[self.numbers.below(9) as usize];
                let requested = self.numbers.below(5000);
                self.push(device, What::Alloc(alloc(self.next_block, requested, category, OpId(self.next_op))));
                self.live[row].push((self.next_block, false));
                self.next_block += 1;
            }
            16..28 if count > 0 => {
                // Mostly recent blocks, sometimes old ones.
                let back = if self.numbers.below(6) == 0 { self.numbers.below(count) } else { count - 1 };
                let (key, is_requested) = self.live[row][back as usize];
                if !is_requested {
                    self.push(device, What::FreeRequested(key));
                }
                if self.numbers.below(4) > 0 {
                    self.push(device, What::FreeCompleted(key));
                    self.live[row].remove(back as usize);
                } else {
                    self.live[row][back as usize].1 = true;
                }
            }
            28 if count > 0 => {
                // A category that is given after the free is not looked for.
                let (key, is_requested) = self.live[row][self.numbers.below(count) as usize];
                if !is_requested {
                    self.push(device, What::Tag(key, Category::Gradient));
                }
            }
            29 if self.contradicts => {
                let range = Range {
                    address: self.numbers.below(64) << 21,
                    bytes: 2 << 20,
                    stream: StreamId(0),
                    pool: Pool::Large,
                };
                self.push(device, What::SegmentAlloc(range));
                self.segments.push((device, range));
            }
            30 if !self.segments.is_empty() => {
                let place = self.numbers.below(self.segments.len() as u64) as usize;
                let (device, range) = self.segments.remove(place);
                self.push(device, What::SegmentFree(range));
            }
            31 => self.push(device, What::DeviceUsed(1000 + u64::from(step))),
            32 => self.push(device, What::FreeRequested(1 << 50)),
            33 => self.push(
                device,
                What::Oom(Oom {
                    requested: 9,
                    device_free: 1,
                    stream: None,
                    op: OpId(self.next_op),
                    scope: ScopeId::NONE,
                }),
            ),
            34 if count > 0 => {
                // The free of the former block is missing.
                let key = self.live[row][self.numbers.below(count) as usize].0;
                self.live[row].retain(|(other, _)| *other != key);
                self.live[row].push((key, false));
                self.push(device, What::Alloc(alloc(key, 77, Category::Input, OpId::NONE)));
            }
            35 if self.contradicts => self.push(
                device,
                What::SegmentFree(Range { address: 1 << 60, bytes: 512, stream: StreamId(0), pool: Pool::Small }),
            ),
            36 if count > 0 => {
                let key = self.live[row][self.numbers.below(count) as usize].0;
                self.push(device, What::Used(key));
            }
            _ => self.next_op += 1,
        }
    }
}

impl Program {
    /// A program before its first event, with the blocks that it has then.
    fn new(seed: u64, contradicts: bool) -> (Self, StartingState) {
        let mut program = Self {
            numbers: Numbers(seed),
            live: [Vec::new(), Vec::new()],
            segments: Vec::new(),
            next_block: 100,
            next_op: 0,
            events: Vec::new(),
            contradicts,
        };
        let mut state = StartingState { device: DeviceId(0), ..StartingState::default() };
        for key in 0..20 {
            let alloc = alloc(key, 300 + key, Category::Parameter, OpId::NONE);
            state.blocks.push(StartingBlock { alloc, stack: StackId::NONE, free_requested: key == 7 });
            program.live[0].push((key, key == 7));
        }
        (program, state)
    }

    fn step(&mut self, step: u32) {
        self.push(DeviceId(0), What::Step(step));
        for phase in [Phase::Forward, Phase::Backward, Phase::Forward, Phase::Optimizer] {
            self.push(DeviceId(0), What::Phase(phase));
            for _ in 0..self.numbers.below(300) {
                self.go_on(step);
            }
        }
        if step % 5 == 4 {
            self.push(DeviceId(0), What::Phase(Phase::Setup));
        }
    }
}

/// A recording of about `steps` × 600 events, and its bytes.
pub(crate) fn recording(seed: u64, steps: u32, is_finished: bool) -> Vec<u8> {
    let (mut program, state) = Program::new(seed, true);
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    writer.set_checkpoint_interval(600);
    writer.append_strings(&["linear", "add"]).unwrap();
    writer.write_starting_state(&state).unwrap();
    for step in 0..steps {
        program.step(step);
        let known = writer.rows(highwater_snapshots::format::SectionKind::Ops) as u32;
        let op = |number: u32| Op { name: StringId(number % 2), scope: ScopeId::NONE, stack: StackId::NONE };
        let ops: Vec<Op> = (known..=program.next_op).map(op).collect();
        writer.append_ops(&ops).unwrap();
        for events in program.events[writer.events() as usize..].chunks(170) {
            writer.write_events(events).unwrap();
        }
    }
    if is_finished { writer.finish(&EndFacts::default()).unwrap() } else { writer.get_ref().clone() }
}

/// The events of a consistent program, the blocks before them, and the number of its operations.
pub(crate) fn events(seed: u64, steps: u32) -> (Vec<Event>, StartingState, u32) {
    let (mut program, state) = Program::new(seed, false);
    (0..steps).for_each(|step| program.step(step));
    (program.events, state, program.next_op + 1)
}

/// Opens a recording to read windows of it.
pub(crate) fn open(bytes: &[u8]) -> Windows {
    let bytes: Arc<[u8]> = bytes.into();
    Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Training steps, the events of one of which are in `extra`.
pub(crate) fn training(steps: u32, extra: impl Fn(u32) -> String) -> String {
    let mut text = String::from("alloc w 1000 parameter @model\nalloc k 900 buffer @model\n");
    for step in 0..steps {
        text += &format!("step {step}\nphase forward\n");
        for layer in 0..3 {
            text += &format!("alloc a{layer} 400 activation #linear @model.layers.{layer}\n");
            text += &format!("alloc t{layer} 300 temporary #linear @model.layers.{layer}\nfree t{layer}\n");
        }
        text += "phase backward\n";
        for layer in (0..3).rev() {
            text += &format!("alloc g{layer} 250 gradient @model.layers.{layer}\nfree a{layer}\n");
        }
        text += "phase optimizer\n";
        if step == 0 {
            text += "alloc m 700 optimizer_state\nalloc v 700 optimizer_state\n";
        }
        text += "alloc s 600 temporary #sqrt\nalloc r 500 temporary #sqrt\n";
        text += &extra(step);
        text += "free r\nfree s\nfree g0\nfree g1\nfree g2\n";
    }
    text
}
