//! Storage, a block of device memory that is freed with the last tensor that uses it.
#![expect(unsafe_code, reason = "host memory is seen as slices of numbers")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use highwater_recorder::{Category, StreamId, context, scope};

use crate::device::{Kind, Stream};
use crate::{Device, Error, Result};
use highwater_allocator::Block;

/// A block of memory. Not `Clone`, because copying may run out of memory and is therefore an operation that can fail.
pub struct Storage {
    device: Device,
    // `None` only while dropping.
    block: Option<Block>,
    bytes: usize,
    category: AtomicU8,
    version: AtomicU32,
    savers: AtomicU32,
    // Number of active readers, or -1 while there is a writer. Alternatives: with a RwLock, a mistake would deadlock
    // instead of returning an error; with no check at all, it would be a data race.
    borrows: AtomicIsize,
    /// Streams on which copies from this pinned memory may still be in progress.
    copies: Mutex<Vec<StreamId>>,
}

const WRITING: isize = -1;

impl Storage {
    /// Allocates `bytes` bytes on the device, uninitialized, with the thread's current category.
    ///
    /// # Errors
    /// Fails if the memory cannot be allocated.
    pub fn allocate(device: &Device, bytes: u64) -> Result<Arc<Self>> {
        scope::allocation();
        let block = device.allocator().malloc(bytes, device.stream())?;
        Ok(Arc::new(Self {
            device: device.clone(),
            block: Some(block),
            bytes: bytes as usize,
            category: AtomicU8::new(context::current().category as u8),
            version: AtomicU32::new(0),
            savers: AtomicU32::new(0),
            borrows: AtomicIsize::new(0),
            copies: Mutex::default(),
        }))
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the requested size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the first byte on the device, which is meaningless on the accounting device.
    pub fn address(&self) -> u64 {
        self.block().address()
    }

    /// Returns the stream for which the memory was allocated. Other streams that use the memory must be
    /// [recorded](Self::record_stream).
    pub fn stream(&self) -> StreamId {
        self.block().stream()
    }

    /// Records that work on `stream` uses the memory, which after a free is reused only once that work is complete. For
    /// pinned memory, `stream` belongs to its device.
    ///
    /// # Errors
    /// Fails if the stream belongs neither to this memory's device nor, for pinned memory, to the device that it is
    /// pinned for.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        let device = &self.device;
        let its = if device == stream.device() { Some(stream.id()) } else { device.pinned_stream(stream) };
        let its = its.ok_or(Error::Devices { op: "record_stream" })?;
        device.allocator().record_stream(self.block(), its);
        Ok(())
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("the storage has no block")
    }

    /// Returns the category of the memory; [`Category::Unknown`] if it was not set.
    pub fn category(&self) -> Category {
        Category::from_code(self.category.load(Ordering::Relaxed)).unwrap_or(Category::Unknown)
    }

    /// Sets the category of the memory, here and in the recording.
    pub fn tag(&self, category: Category) {
        if self.category.swap(category as u8, Ordering::Relaxed) != category as u8 && self.bytes > 0 {
            self.device.allocator().tag(self.block(), category);
        }
    }

    /// Reports that work reads or writes the memory now, if the recording includes uses.
    #[inline]
    pub(crate) fn report_use(&self) {
        self.device.allocator().used(self.block());
    }

    /// Tags temporary memory as an activation saved for backward. Other categories, such as parameter, are kept.
    pub(crate) fn tag_saved(&self) {
        if self.category() == Category::Temporary {
            self.tag(Category::Activation);
        }
    }

    /// Returns the number of in-place modifications.
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts an in-place modification.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Increments (if `is_new`) or decrements the number of operations that keep the memory for backward.
    pub(crate) fn count_saver(&self, is_new: bool) {
        if is_new {
            self.savers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.savers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_saved(&self) -> bool {
        self.savers.load(Ordering::Relaxed) > 0
    }

    /// Borrows the memory as a slice for reading. Fails while it is being written, and on a device without host memory.
    pub(crate) fn read<T: Pod>(&self, op: &'static str) -> Result<Reading<'_, T>> {
        self.check_host(op)?;
        let borrow = |borrows: isize| (borrows != WRITING).then(|| borrows + 1);
        self.borrows.fetch_update(Ordering::Acquire, Ordering::Relaxed, borrow).map_err(|_| Error::InUse { op })?;
        Ok(Reading { storage: self, elements: PhantomData })
    }

    /// Borrows the memory as a slice for writing. Fails while it is being read or written, and on a device without host
    /// memory. Waits for copies from pinned memory.
    pub(crate) fn write<T: Pod>(&self, op: &'static str) -> Result<Writing<'_, T>> {
        self.check_host(op)?;
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.borrows.compare_exchange(0, WRITING, acquire, relaxed).map_err(|_| Error::InUse { op })?;
        let writing = Writing { storage: self, elements: PhantomData };
        // No other borrow can start from here on.
        self.finish_copies()?;
        Ok(writing)
    }

    /// Borrows the memory for a kernel that reads it. Fails while it is being written.
    pub(crate) fn lend(&self, op: &'static str) -> Result<Lent<'_>> {
        let borrow = |borrows: isize| (borrows != WRITING).then(|| borrows + 1);
        self.borrows.fetch_update(Ordering::Acquire, Ordering::Relaxed, borrow).map_err(|_| Error::InUse { op })?;
        Ok(Lent { storage: self, is_written: false })
    }

    /// Borrows the memory for a kernel that writes it. Fails while another kernel that reads or writes it is being
    /// submitted.
    pub(crate) fn lend_to_write(&self, op: &'static str) -> Result<Lent<'_>> {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.borrows.compare_exchange(0, WRITING, acquire, relaxed).map_err(|_| Error::InUse { op })?;
        Ok(Lent { storage: self, is_written: true })
    }

    /// Records that a copy from this memory is submitted to `stream` of the device for which the memory is pinned.
    pub(crate) fn begin_copy(&self, stream: &Stream) -> Result<()> {
        self.record_stream(stream)?;
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if !copies.contains(&stream.id()) {
            copies.push(stream.id());
        }
        Ok(())
    }

    /// Waits until no copy from this memory is in progress. Only pinned memory has such copies.
    fn finish_copies(&self) -> Result<()> {
        let Some(gpu) = self.device.pinned_for() else { return Ok(()) };
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(stream) = copies.last() {
            gpu.synchronize(stream.0)?;
            copies.pop();
        }
        Ok(())
    }

    fn check_host(&self, op: &'static str) -> Result<()> {
        match self.device.kind() {
            Kind::Cpu => Ok(()),
            Kind::Cuda => Err(Error::NotOnHost { op }),
            Kind::Accounting => Err(Error::NoValues { op }),
        }
    }

    /// Returns the address of the first element and the number of elements. If there are none, the address is dangling
    /// but aligned.
    fn elements<T: Pod>(&self) -> (*mut T, usize) {
        let count = self.bytes / size_of::<T>();
        if count == 0 {
            (std::ptr::dangling_mut(), 0)
        } else {
            (std::ptr::with_exposed_provenance_mut(self.address() as usize), count)
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.device.allocator().free(block);
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {} on {}", self.bytes, self.category(), self.device)
    }
}

/// Memory borrowed while a kernel that reads or writes it is submitted. Kernels of one stream run in order, so no
/// borrow is needed while they run. Code that uses several streams must synchronize them.
pub(crate) struct Lent<'a> {
    storage: &'a Storage,
    is_written: bool,
}

impl Lent<'_> {
    pub(crate) fn address(&self) -> u64 {
        self.storage.address()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.is_written {
            self.storage.borrows.store(0, Ordering::Release);
        } else {
            self.storage.borrows.fetch_sub(1, Ordering::Release);
        }
    }
}

pub(crate) struct Reading<'a, T> {
    storage: &'a Storage,
    elements: PhantomData<&'a [T]>,
}

impl<T: Pod> Deref for Reading<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (first, count) = self.storage.elements();
        // SAFETY: the block is host memory owned by the storage, at least `count` elements long, aligned for any
        // element type and zeroed by its driver when reserved; every bit pattern is a valid T. The borrow count
        // excludes writers.
        unsafe { slice::from_raw_parts(first, count) }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.storage.borrows.fetch_sub(1, Ordering::Release);
    }
}

pub(crate) struct Writing<'a, T> {
    storage: &'a Storage,
    elements: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Deref for Writing<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (first, count) = self.storage.elements();
        // SAFETY: as for `Reading`; this is the only borrow, and it is shared while this reference lives.
        unsafe { slice::from_raw_parts(first, count) }
    }
}

impl<T: Pod> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (first, count) = self.storage.elements();
        // SAFETY: as for `Reading`; this is the only borrow, and it is unique while this reference lives.
        unsafe { slice::from_raw_parts_mut(first, count) }
    }
}

impl<T> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        self.storage.borrows.store(0, Ordering::Release);
    }
}
