//! The neutral entry points: what any allocator calls when it obtains, hands out and takes back memory.
//!
//! All but [`register`], [`used`] and [`oom`] are called under the allocator's own lock, so that events keep its order, and cost
//! one relaxed load while nothing is recorded.
//!
//! A framework whose memory is owned by a value that gives it back when dropped, as a storage of candle's is, needs no list
//! of its blocks. Its memory is told where it is made and where it ends, by address:
//!
//! ```
//! use std::sync::Arc;
//!
//! use highwater_recorder::api::{self, NewBlock};
//! use highwater_recorder::snapshots::{StartingState, trace::DeviceFacts};
//! use highwater_recorder::{DeviceId, HistoryOptions, Pool, Source, StreamId, record_memory_history};
//!
//! const DEVICE: DeviceId = DeviceId(0);
//!
//! /// Memory of the device, in the place where the storage had it bare.
//! struct Tracked<M> { memory: M, address: u64 }
//!
//! impl<M> Tracked<M> {
//!     fn new(memory: M, address: u64, bytes: u64) -> Self {
//!         let (stream, pool) = (StreamId(0), Pool::Large);
//!         api::alloc_at(DEVICE, &NewBlock { block: 0, address, requested: bytes, allocated: bytes, stream, pool });
//!         Self { memory, address }
//!     }
//! }
//!
//! impl<M> Drop for Tracked<M> {
//!     fn drop(&mut self) {
//!         api::free_at(DEVICE, self.address);
//!     }
//! }
//!
//! struct Device;
//!
//! impl Source for Device {
//!     fn facts(&self) -> DeviceFacts {
//!         DeviceFacts { device: DEVICE, name: "my device".to_owned(), ..DeviceFacts::default() }
//!     }
//!
//!     fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
//!         read(StartingState { device: DEVICE, ..StartingState::default() });
//!     }
//! }
//!
//! let device: Arc<dyn Source> = Arc::new(Device);
//! api::register(&device);
//! let run = record_memory_history(HistoryOptions::in_memory(), || {
//!     let numbers = vec![0_f32; 1024];
//!     let address = numbers.as_ptr() as u64;
//!     let storage = Tracked::new(numbers, address, 4096);
//!     assert_eq!(storage.memory.len(), 1024);
//!     Ok(())
//! })?;
//! assert_eq!(run.trace.map(|trace| trace.blocks.requested), Some(vec![4096]));
//! # Ok::<(), highwater_recorder::Error>(())
//! ```

use std::sync::Arc;

use highwater_snapshots::event::{Alloc, BlockKey, Oom, Range, What};
use highwater_snapshots::{Category, DeviceId, Pool, StackId, StreamId};

use crate::context;
use crate::hub;
use crate::level::{self, Level};
use crate::message::Message;
use crate::sender;
use crate::source::Source;

/// A block that is being handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// Names the block: never used again on this device; a counter serves best.
    pub block: BlockKey,
    /// Its first byte.
    pub address: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes after rounding.
    pub allocated: u64,
    /// The stream that it is for.
    pub stream: StreamId,
    /// The pool that it comes from.
    pub pool: Pool,
}

/// A device's number in recordings, its own until this is dropped.
#[derive(Debug)]
pub struct DeviceClaim(DeviceId);

impl DeviceClaim {
    /// The number `wish`, as a driver numbers its devices; the lowest free number if it is taken or nothing is wished.
    pub fn new(wish: Option<DeviceId>) -> Self {
        let claimed = &mut hub::lock().claimed;
        let is_free = |id: &DeviceId| !claimed.contains(id);
        let lowest = || (0..=u16::MAX).map(DeviceId).find(is_free).unwrap_or_default();
        let id = wish.filter(is_free).unwrap_or_else(lowest);
        claimed.insert(id);
        Self(id)
    }

    /// The number.
    pub fn id(&self) -> DeviceId {
        self.0
    }
}

impl Drop for DeviceClaim {
    fn drop(&mut self) {
        hub::lock().claimed.remove(&self.0);
    }
}

/// A device of which nothing is recorded: for allocators that only reckon what a real one would do.
pub const UNRECORDED: DeviceId = DeviceId(u16::MAX);

/// Whether events of `device` are kept.
#[inline]
fn keeps(device: DeviceId) -> bool {
    level::records_events() && device != UNRECORDED
}

/// Makes an allocator known, so that recordings that begin later know what it holds. It is forgotten when dropped.
/// A recording that runs already takes its state now.
pub fn register(source: &Arc<dyn Source>) {
    hub::lock().add_source(Arc::downgrade(source));
    crate::environment::start();
    begin_if_recording(source);
}

/// The same, but nothing that the environment asks for is started: for a recorder that was put into a program which may
/// have one of its own.
pub fn register_alone(source: &Arc<dyn Source>) {
    hub::lock().add_source(Arc::downgrade(source));
    begin_if_recording(source);
}

fn begin_if_recording(source: &Arc<dyn Source>) {
    if level::records_events() {
        hub::start_device(&**source);
        source.sample();
    }
}

/// Whether events are kept at all: for what costs something to find out.
#[inline]
pub fn is_recording() -> bool {
    level::records_events()
}

/// A segment was obtained from the driver. Call after it succeeded.
#[inline]
pub fn reserve(device: DeviceId, range: Range) {
    if keeps(device) {
        tell(device, stack_of_alloc(), What::SegmentAlloc(range));
    }
}

/// A segment is about to be given back to the driver.
#[inline]
pub fn release(device: DeviceId, range: Range) {
    if keeps(device) {
        tell(device, stack_of_free(), What::SegmentFree(range));
    }
}

/// Pages of an expandable segment were mapped.
#[inline]
pub fn map(device: DeviceId, range: Range) {
    if keeps(device) {
        tell(device, stack_of_alloc(), What::SegmentMap(range));
    }
}

/// Pages of an expandable segment are about to be unmapped.
#[inline]
pub fn unmap(device: DeviceId, range: Range) {
    if keeps(device) {
        tell(device, stack_of_free(), What::SegmentUnmap(range));
    }
}

/// A block is handed out. It is recorded with the running thread's scope, op and category.
#[inline]
pub fn alloc(device: DeviceId, block: &NewBlock) {
    if !keeps(device) {
        return;
    }
    tell(device, stack_of_alloc(), What::Alloc(in_context(block)));
}

/// [`free_requested`] and [`free_completed`] in one: the program gives a block back that nothing waits for.
#[inline]
pub fn free(device: DeviceId, block: BlockKey) {
    if keeps(device) {
        sender::tell(device, stack_of_free(), &Message::Freed(block));
    }
}

/// A block is handed out by an allocator that has no numbers for its blocks: it is known by its address until
/// [`free_at`] names that. [`NewBlock::block`] is not looked at. Needs no lock: call it after the memory was obtained.
#[inline]
pub fn alloc_at(device: DeviceId, block: &NewBlock) {
    if keeps(device) {
        sender::tell(device, stack_of_alloc(), &Message::AllocAt(in_context(block)));
    }
}

/// The block at `address` goes back, and its address may be handed out again. Call it before that can happen.
#[inline]
pub fn free_at(device: DeviceId, address: u64) {
    if keeps(device) {
        sender::tell(device, stack_of_free(), &Message::FreedAt(address));
    }
}

/// The program gives a block back.
#[inline]
pub fn free_requested(device: DeviceId, block: BlockKey) {
    if keeps(device) {
        tell(device, stack_of_free(), What::FreeRequested(block));
    }
}

/// The block is free for reuse.
#[inline]
pub fn free_completed(device: DeviceId, block: BlockKey) {
    if keeps(device) {
        tell(device, StackId::NONE, What::FreeCompleted(block));
    }
}

/// A block's category became known, or changed.
#[inline]
pub fn tag(device: DeviceId, block: BlockKey, category: Category) {
    if keeps(device) {
        tell(device, StackId::NONE, What::Tag(block, category));
    }
}

/// The same, for the block at `address`, as [`alloc_at`] told it. An address at which no block begins says nothing.
#[inline]
pub fn tag_at(device: DeviceId, address: u64, category: Category) {
    if keeps(device) {
        sender::tell(device, StackId::NONE, &Message::TagAt(address, category));
    }
}

/// Whether uses of blocks are kept: for what costs something to find out.
#[inline]
pub fn records_uses() -> bool {
    level::records_uses()
}

/// A kernel, a copy or the host reads or writes a block, or is told to. Call while the block cannot be given back, with
/// the allocator's lock or without, once for each kernel, after what that needs was allocated.
#[inline]
pub fn used(device: DeviceId, block: BlockKey) {
    if level::records_uses() {
        tell(device, stack_of_free(), What::Used(block));
    }
}

/// What the driver says is in use on the whole device.
#[inline]
pub fn device_used(device: DeviceId, bytes: u64) {
    if keeps(device) {
        tell(device, StackId::NONE, What::DeviceUsed(bytes));
    }
}

/// A note on the timeline.
#[inline]
pub fn mark(text: &str) {
    if level::records_events() {
        let name = hub::name(text);
        hub::lock().push_of_program(What::Mark(name));
    }
}

/// A request of `requested` bytes failed while `device_free` bytes were free on the device; `stream` is that of the request,
/// if known. Call *without* the allocator's lock: the recording is saved before this returns.
pub fn oom(device: DeviceId, stream: Option<StreamId>, requested: u64, device_free: u64) {
    if !keeps(device) {
        return;
    }
    let context = context::current();
    let oom = Oom { requested, device_free, stream, op: context.op, scope: context.scope };
    tell(device, stack_of_alloc(), What::Oom(oom));
    crate::oom::save();
}

/// The block with the running thread's scope, op and category.
#[inline(always)]
fn in_context(block: &NewBlock) -> Alloc {
    let context = context::current();
    Alloc {
        block: block.block,
        address: block.address,
        requested: block.requested,
        allocated: block.allocated,
        stream: block.stream,
        pool: block.pool,
        category: context.category,
        op: context.op,
        scope: context.scope,
    }
}

#[inline(always)]
fn tell(device: DeviceId, stack: StackId, what: What) {
    sender::tell(device, stack, &Message::Event(what));
}

#[inline]
fn stack_of_alloc() -> StackId {
    if level::current() == Level::Stacks { context::stack() } else { StackId::NONE }
}

#[inline]
fn stack_of_free() -> StackId {
    if level::current() == Level::Stacks && level::has_free_stacks() { context::stack() } else { StackId::NONE }
}
