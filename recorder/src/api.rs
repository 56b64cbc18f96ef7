//! The functions that any allocator can call when it reserves, allocates and frees memory.
//!
//! While nothing is recorded, recording an event costs one relaxed load. The functions that identify a block by its key
//! or report a segment must be called under the allocator's own lock, so that events keep its order, except [`used`],
//! which needs no lock. [`register`] and [`oom`] must be called without that lock.
//!
//! A framework whose memory is owned by a value that frees it when dropped, such as candle's storage, needs no list of
//! its blocks. It reports allocations and frees by address:
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
//! /// Device memory; replaces the untracked memory in the framework's storage.
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
//! assert_eq!(run.trace.map(|trace| trace.blocks.requested.clone()), Some(vec![4096]));
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

/// A newly allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// Block key, never reused on this device, for example from a counter. Ignored by [`alloc_at`].
    pub block: BlockKey,
    /// Address of the first byte.
    pub address: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Allocated bytes, after rounding.
    pub allocated: u64,
    /// Stream for which the block was allocated.
    pub stream: StreamId,
    /// Pool from which the block was allocated.
    pub pool: Pool,
}

/// A device id in recordings, reserved until the claim is dropped.
#[derive(Debug)]
pub struct DeviceClaim(DeviceId);

impl DeviceClaim {
    /// Claims the id `wish`, such as the driver's ordinal. If it is taken or `None`, claims the lowest free id.
    pub fn new(wish: Option<DeviceId>) -> Self {
        let claimed = &mut hub::lock().claimed;
        let is_free = |id: &DeviceId| !claimed.contains(id);
        let lowest = || (0..=u16::MAX).map(DeviceId).find(is_free).unwrap_or_default();
        let id = wish.filter(is_free).unwrap_or_else(lowest);
        claimed.insert(id);
        Self(id)
    }

    /// Returns the claimed id.
    pub fn id(&self) -> DeviceId {
        self.0
    }
}

impl Drop for DeviceClaim {
    fn drop(&mut self) {
        hub::lock().claimed.remove(&self.0);
    }
}

/// A device that is never recorded, for allocators that only simulate a real one.
pub const UNRECORDED: DeviceId = DeviceId(u16::MAX);

#[inline]
fn keeps(device: DeviceId) -> bool {
    level::records_events() && device != UNRECORDED
}

/// Registers an allocator, so that later recordings can read its state when they start. A running recording reads its
/// state immediately. The allocator is unregistered when it is dropped. Also starts the recordings requested by
/// environment variables.
pub fn register(source: &Arc<dyn Source>) {
    hub::lock().add_source(Arc::downgrade(source));
    crate::environment::start();
    begin_if_recording(source);
}

/// Like [`register`], but does not start the recordings requested by environment variables. Used by a recorder that was
/// injected into a program that may have its own recorder.
pub fn register_alone(source: &Arc<dyn Source>) {
    hub::lock().add_source(Arc::downgrade(source));
    begin_if_recording(source);
}

fn begin_if_recording(source: &Arc<dyn Source>) {
    if level::records_events() {
        hub::start_device(&**source);
        source.sample(true);
    }
}

/// Returns whether events are recorded, so that callers can skip expensive preparation.
#[inline]
pub fn is_recording() -> bool {
    level::records_events()
}

/// Records that a segment was reserved from the driver. Call after the reservation succeeded.
#[inline]
pub fn reserve(device: DeviceId, range: Range) {
    if keeps(device) {
        send(device, stack_of_alloc(), What::SegmentAlloc(range));
    }
}

/// Records that a segment is about to be released to the driver.
#[inline]
pub fn release(device: DeviceId, range: Range) {
    if keeps(device) {
        send(device, stack_of_free(), What::SegmentFree(range));
    }
}

/// Records that pages of an expandable segment were mapped.
#[inline]
pub fn map(device: DeviceId, range: Range) {
    if keeps(device) {
        send(device, stack_of_alloc(), What::SegmentMap(range));
    }
}

/// Records that pages of an expandable segment are about to be unmapped.
#[inline]
pub fn unmap(device: DeviceId, range: Range) {
    if keeps(device) {
        send(device, stack_of_free(), What::SegmentUnmap(range));
    }
}

/// Records that a block was allocated, with the current thread's scope, op and category.
#[inline]
pub fn alloc(device: DeviceId, block: &NewBlock) {
    if !keeps(device) {
        return;
    }
    send(device, stack_of_alloc(), What::Alloc(in_context(block)));
}

/// Records a free that does not have to wait for a stream: [`free_requested`] and [`free_completed`] in one.
#[inline]
pub fn free(device: DeviceId, block: BlockKey) {
    if keeps(device) {
        sender::send(device, stack_of_free(), &Message::Freed(block));
    }
}

/// Records an allocation by an allocator that has no keys for its blocks. The block is identified by its address until
/// [`free_at`] is called with that address. [`NewBlock::block`] is ignored. Needs no lock.
#[inline]
pub fn alloc_at(device: DeviceId, block: &NewBlock) {
    if keeps(device) {
        sender::send(device, stack_of_alloc(), &Message::AllocAt(in_context(block)));
    }
}

/// Records that the block at `address` is freed. Must be called before the address can be reused.
#[inline]
pub fn free_at(device: DeviceId, address: u64) {
    if keeps(device) {
        sender::send(device, stack_of_free(), &Message::FreedAt(address));
    }
}

/// Records that the program frees a block.
#[inline]
pub fn free_requested(device: DeviceId, block: BlockKey) {
    if keeps(device) {
        send(device, stack_of_free(), What::FreeRequested(block));
    }
}

/// Records that a freed block is available for reuse.
#[inline]
pub fn free_completed(device: DeviceId, block: BlockKey) {
    if keeps(device) {
        send(device, StackId::NONE, What::FreeCompleted(block));
    }
}

/// Records that a block's category became known or changed.
#[inline]
pub fn tag(device: DeviceId, block: BlockKey, category: Category) {
    if keeps(device) {
        send(device, StackId::NONE, What::Tag(block, category));
    }
}

/// Like [`tag`], for the block that [`alloc_at`] recorded at `address`. Ignored if no block begins at that address.
#[inline]
pub fn tag_at(device: DeviceId, address: u64, category: Category) {
    if keeps(device) {
        sender::send(device, StackId::NONE, &Message::TagAt(address, category));
    }
}

/// Returns whether uses of blocks are recorded, so that callers can skip expensive preparation.
#[inline]
pub fn records_uses() -> bool {
    level::records_uses()
}

/// Records that a kernel, a copy or the host reads or writes a block, or was enqueued to do so. Must be called while
/// the block cannot be freed, with or without the allocator's lock, once per kernel, after the kernel's memory was
/// allocated.
#[inline]
pub fn used(device: DeviceId, block: BlockKey) {
    if level::records_uses() {
        send(device, stack_of_free(), What::Used(block));
    }
}

/// Records the memory in use on the whole device, as reported by the driver.
#[inline]
pub fn device_used(device: DeviceId, bytes: u64) {
    if keeps(device) {
        send(device, StackId::NONE, What::DeviceUsed(bytes));
    }
}

/// Records a note on the timeline.
#[inline]
pub fn mark(text: &str) {
    if level::records_events() {
        let name = hub::name(text);
        hub::lock().push_of_program(What::Mark(name));
    }
}

/// Records that a request of `requested` bytes failed while `device_free` bytes were free on the device. `stream` is
/// the stream of the request, if known. Must be called *without* the allocator's lock, since it waits until all events
/// are in the file, if there is one, and writes the dump, if one is requested.
pub fn oom(device: DeviceId, stream: Option<StreamId>, requested: u64, device_free: u64) {
    if !keeps(device) {
        return;
    }
    let context = context::current();
    let oom = Oom { requested, device_free, stream, op: context.op, scope: context.scope };
    send(device, stack_of_alloc(), What::Oom(oom));
    crate::oom::save();
}

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
fn send(device: DeviceId, stack: StackId, what: What) {
    sender::send(device, stack, &Message::Event(what));
}

#[inline]
fn stack_of_alloc() -> StackId {
    if level::current() == Level::Stacks { context::stack() } else { StackId::NONE }
}

#[inline]
fn stack_of_free() -> StackId {
    if level::current() == Level::Stacks && level::has_free_stacks() { context::stack() } else { StackId::NONE }
}
