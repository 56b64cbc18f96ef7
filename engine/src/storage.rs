//! Storage: a block of device memory, freed with the last tensor that uses it.
#![expect(unsafe_code, reason = "host memory is seen as slices of numbers")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use highwater_recorder::{Category, StreamId, context, scope};

use crate::device::{Device, Kind, Stream};
use crate::error::{Error, Result};
use highwater_allocator::Block;

/// One block of memory. Not `Clone`: a copy may run out of memory, so copying is an operation that can fail.
pub struct Storage {
    device: Device,
    // None only while dropping.
    block: Option<Block>,
    bytes: usize,
    category: AtomicU8,
    version: AtomicU32,
    savers: AtomicU32,
    // Readers at work, or -1 while somebody writes. Alternatives: a RwLock would make a mistake wait for ever where
    // this makes it an error; no check at all would make it a data race.
    borrows: AtomicIsize,
    /// Of pinned memory: streams of its device that were given copies from it, which may be under way.
    copies: Mutex<Vec<StreamId>>,
}

const WRITING: isize = -1;

impl Storage {
    /// Takes `bytes` bytes from the device; their content is unspecified. The category is the thread's.
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

    /// Where the memory is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Requested bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte's address on the device; meaningless on the accounting device.
    pub fn address(&self) -> u64 {
        self.block().address()
    }

    /// The stream that the memory was allocated for, on which it is used unless others are
    /// [named](Self::record_stream).
    pub fn stream(&self) -> StreamId {
        self.block().stream()
    }

    /// Says that work on `stream` uses the memory: once freed, it is allocated again when that work is done. Of pinned
    /// memory, `stream` is its device's.
    ///
    /// # Errors
    /// If the stream is neither of this memory's device nor, for pinned memory, of the device that it is pinned for.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        let device = &self.device;
        let its = if device == stream.device() { Some(stream.id()) } else { device.pinned_stream(stream) };
        let its = its.ok_or(Error::Devices { op: "record_stream" })?;
        device.allocator().record_stream(self.block(), its);
        Ok(())
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("a storage keeps its block until it is dropped")
    }

    /// What the memory is for, as far as is known.
    pub fn category(&self) -> Category {
        Category::from_code(self.category.load(Ordering::Relaxed)).unwrap_or(Category::Unknown)
    }

    /// Says what the memory is for, here and in the recording.
    pub fn tag(&self, category: Category) {
        if self.category.swap(category as u8, Ordering::Relaxed) != category as u8 && self.bytes > 0 {
            self.device.allocator().tag(self.block(), category);
        }
    }

    /// Says, in a recording that asks for it, that work reads or writes the memory now.
    #[inline]
    pub(crate) fn report_use(&self) {
        self.device.allocator().used(self.block());
    }

    /// Says that the memory is saved for backward, unless it is known to be something else, such as a parameter.
    pub(crate) fn tag_saved(&self) {
        if self.category() == Category::Temporary {
            self.tag(Category::Activation);
        }
    }

    /// How often the memory was changed in place since it was first written.
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts a change in place.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more, or one less, that keeps the memory for backward.
    pub(crate) fn count_saver(&self, is_new: bool) {
        if is_new {
            self.savers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.savers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the memory is kept for backward now.
    pub(crate) fn is_saved(&self) -> bool {
        self.savers.load(Ordering::Relaxed) > 0
    }

    /// The memory as numbers, to read. Fails while it is written, and on a device without values.
    pub(crate) fn read<T: Pod>(&self, op: &'static str) -> Result<Reading<'_, T>> {
        self.check_host(op)?;
        let borrow = |borrows: isize| (borrows != WRITING).then(|| borrows + 1);
        self.borrows.fetch_update(Ordering::Acquire, Ordering::Relaxed, borrow).map_err(|_| Error::InUse { op })?;
        Ok(Reading { storage: self, elements: PhantomData })
    }

    /// The memory as numbers, to write. Fails while anybody else reads or writes it, and on a device without values.
    /// Waits for copies from pinned memory.
    pub(crate) fn write<T: Pod>(&self, op: &'static str) -> Result<Writing<'_, T>> {
        self.check_host(op)?;
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.borrows.compare_exchange(0, WRITING, acquire, relaxed).map_err(|_| Error::InUse { op })?;
        let writing = Writing { storage: self, elements: PhantomData };
        // From here on nobody gives another.
        self.finish_copies()?;
        Ok(writing)
    }

    /// The memory for a kernel to read. Fails while it is written.
    pub(crate) fn lend(&self, op: &'static str) -> Result<Lent<'_>> {
        let borrow = |borrows: isize| (borrows != WRITING).then(|| borrows + 1);
        self.borrows.fetch_update(Ordering::Acquire, Ordering::Relaxed, borrow).map_err(|_| Error::InUse { op })?;
        Ok(Lent { storage: self, is_written: false })
    }

    /// The memory for a kernel to write. Fails while another kernel that is being given reads or writes it.
    pub(crate) fn lend_to_write(&self, op: &'static str) -> Result<Lent<'_>> {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.borrows.compare_exchange(0, WRITING, acquire, relaxed).map_err(|_| Error::InUse { op })?;
        Ok(Lent { storage: self, is_written: true })
    }

    /// Says that `stream`, of the device that this memory is pinned for, is given a copy from it.
    pub(crate) fn begin_copy(&self, stream: &Stream) -> Result<()> {
        self.record_stream(stream)?;
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if !copies.contains(&stream.id()) {
            copies.push(stream.id());
        }
        Ok(())
    }

    /// Waits until no copy from this memory is under way. Only pinned memory has any.
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

    /// The first element's address and how many fit; a dangling, aligned address when there are none.
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

/// A device's memory while a kernel that reads or writes it is being given to the device. Kernels of one stream run one
/// after another, so no borrow is needed while they run; who works with several lets them wait for one another.
pub(crate) struct Lent<'a> {
    storage: &'a Storage,
    is_written: bool,
}

impl Lent<'_> {
    /// The first byte's address on the device.
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

/// Host memory being read.
pub(crate) struct Reading<'a, T> {
    storage: &'a Storage,
    elements: PhantomData<&'a [T]>,
}

impl<T: Pod> Deref for Reading<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (first, count) = self.storage.elements();
        // SAFETY: the block is host memory of the storage's own, at least `count` elements long, aligned for any number
        // and zeroed by its driver when it was made; any bits are a T. The count of borrows keeps writers away.
        unsafe { slice::from_raw_parts(first, count) }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.storage.borrows.fetch_sub(1, Ordering::Release);
    }
}

/// Host memory being written.
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
