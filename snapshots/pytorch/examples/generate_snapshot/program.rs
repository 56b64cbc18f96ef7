//! The generated programs: a training run, or a queue that frees its oldest blocks first.

use crate::allocator::{Allocator, Request};

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Events of all devices, unless blocks are freed oldest first.
    pub events: u64,
    /// Blocks of a queue, in place of a training run.
    pub oldest_first: Option<u64>,
    pub devices: u64,
    /// Frames of a stack.
    pub depth: u64,
    /// Distinct stacks.
    pub stacks: u64,
    pub seed: u64,
}

/// The kind of an event and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    SegmentAlloc,
    Alloc,
    FreeRequested,
    FreeCompleted,
}

/// An event of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub action: Action,
    pub address: u64,
    pub size: u64,
    pub time_us: u64,
    /// The call that caused it; the events of one call share the stack that was captured.
    pub request: Request,
}

/// When a training step began and ended, in microseconds since 1970.
pub(crate) type Step = (u64, u64);

/// A program on one device, which stops in the middle of its work once it made its events.
pub(crate) struct Program<'s> {
    plan: Plan,
    numbers: u64,
    memory: Allocator,
    steps: Vec<Step>,
    time_us: u64,
    calls: u64,
    events: u64,
    most: u64,
    sink: &'s mut dyn FnMut(&Event),
}

/// All requested events were made.
struct Full;

#[derive(Clone, Copy)]
struct LiveBlock {
    address: u64,
    size: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LAYERS: u64 = 48;

impl<'s> Program<'s> {
    /// Runs the program of device `device` and tells `sink` every event; what is left in memory, and the steps.
    pub(crate) fn run(plan: Plan, device: u64, sink: &'s mut dyn FnMut(&Event)) -> (Allocator, Vec<Step>) {
        let mut program = Self {
            plan,
            numbers: (0x9e37_79b9_7f4a_7c15 ^ plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (device << 32)) | 1,
            memory: Allocator::new(0x7f10_0000_0000 + device * (1 << 45)),
            steps: Vec::new(),
            time_us: 1_760_000_000_000_000,
            calls: 0,
            events: 0,
            most: plan.events / plan.devices + u64::from(device < plan.events % plan.devices),
            sink,
        };
        let done = match plan.oldest_first {
            Some(blocks) => {
                program.most = u64::MAX;
                program.queue(blocks / plan.devices)
            }
            None => program.train(),
        };
        debug_assert!(done.is_err() || plan.oldest_first.is_some(), "training goes on until it has its events");
        (program.memory, program.steps)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.numbers ^= self.numbers << 13;
        self.numbers ^= self.numbers >> 7;
        self.numbers ^= self.numbers << 17;
        self.numbers % end
    }

    fn call(&mut self, place: u64) -> Request {
        self.calls += 1;
        Request { number: self.calls, stack: place % self.plan.stacks }
    }

    fn record(&mut self, action: Action, address: u64, size: u64, request: Request) -> Result<(), Full> {
        self.time_us += self.below(12);
        self.events += 1;
        (self.sink)(&Event { action, address, size, time_us: self.time_us, request });
        if self.events < self.most { Ok(()) } else { Err(Full) }
    }

    /// Events of two in one call are made whole or not at all, so that the state is always the one that they lead to.
    fn has_room(&self, events: u64) -> Result<(), Full> {
        if self.events + events <= self.most { Ok(()) } else { Err(Full) }
    }

    fn alloc(&mut self, place: u64, size: u64) -> Result<LiveBlock, Full> {
        self.has_room(1)?;
        let request = self.call(place);
        let placed = self.memory.malloc(size, request);
        if let Some((address, bytes)) = placed.segment
            && let Err(full) = self.record(Action::SegmentAlloc, address, bytes, request)
        {
            // No room for the block's own event: it was never handed out.
            self.memory.free(placed.address);
            return Err(full);
        }
        self.record(Action::Alloc, placed.address, size, request)?;
        Ok(LiveBlock { address: placed.address, size })
    }

    fn free(&mut self, place: u64, live: LiveBlock) -> Result<(), Full> {
        if self.has_room(2).is_err() {
            // One block more fills the last place.
            while self.has_room(1).is_ok() {
                self.alloc(place, live.size)?;
            }
            return Err(Full);
        }
        let request = self.call(place);
        self.memory.free(live.address);
        self.record(Action::FreeRequested, live.address, live.size, request)?;
        self.record(Action::FreeCompleted, live.address, live.size, request)
    }

    fn queue(&mut self, blocks: u64) -> Result<(), Full> {
        let mut live = Vec::new();
        for block in 0..blocks {
            let size = MIB - 4 * (block % 7);
            live.push(self.alloc(block, size)?);
        }
        live.into_iter().enumerate().try_for_each(|(block, live)| self.free(block as u64, live))
    }

    /// A deep net: forward keeps activations, backward frees them in reverse and makes gradients, which the next step
    /// frees oldest first; the first step makes the optimizer's state.
    fn train(&mut self) -> Result<(), Full> {
        let weights: Vec<u64> =
            (0..LAYERS * 4).map(|row| [12, 4 * KIB, 16, 64 * KIB][row as usize % 4] * KIB).collect();
        for (row, size) in weights.iter().enumerate() {
            self.alloc(row as u64, *size)?;
        }
        let mut gradients: Vec<LiveBlock> = Vec::new();
        for step in 0.. {
            let began = self.time_us;
            let rows = 8 * (32 + self.below(33));
            let mut kept = Vec::new();
            for layer in 0..LAYERS {
                for part in 0..6 {
                    let place = 1_000 + layer * 40 + part;
                    let size = rows * [2_048, 4_096, 8_192, 24, 8_192, 2_048][part as usize] + 4 * part;
                    kept.push((place, self.alloc(place, size)?));
                    for extra in 0..self.below(3) {
                        let size = 4 + self.below(3) * rows * 1_000;
                        let temporary = self.alloc(place + 7 + extra, size)?;
                        self.free(place + 9 + extra, temporary)?;
                    }
                }
            }
            for (place, live) in gradients.drain(..).enumerate() {
                self.free(4_000 + place as u64, live)?;
            }
            let mut row = weights.len();
            while let Some((place, activation)) = kept.pop() {
                let flowing = self.alloc(place + 20, activation.size)?;
                if place % 3 > 0 && row > 0 {
                    row -= 1;
                    gradients.push(self.alloc(place + 21, weights[row])?);
                }
                self.free(place + 22, activation)?;
                self.free(place + 23, flowing)?;
            }
            for (row, size) in weights.iter().enumerate() {
                let place = 6_000 + row as u64 * 3;
                if step == 0 {
                    self.alloc(place, *size)?;
                    self.alloc(place + 1, *size)?;
                }
                let temporary = self.alloc(place + 2, *size)?;
                self.free(place + 2, temporary)?;
            }
            self.steps.push((began, self.time_us));
        }
        Ok(())
    }
}
