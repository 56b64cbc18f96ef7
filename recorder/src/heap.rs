//! A global allocator that records the program's own host memory, by stack and scope.
//!
//! Frameworks that keep CPU tensors in vectors (candle, burn, ndarray) allocate them with Rust's global allocator. With
//! [`RecordedHeap`] as the global allocator, each of these tensors is a block of the device `host memory (heap)`:
//!
//! ```
//! use highwater_recorder::RecordedHeap;
//!
//! #[global_allocator]
//! static HEAP: RecordedHeap = RecordedHeap::new();
//! ```
//!
//! Blocks below 1 KiB, or below the limit passed to [`over`](RecordedHeap::over), are not recorded, so that a program's
//! strings and lists cost only one comparison. While nothing is recorded, larger blocks cost one more relaxed load. The
//! recorder's own allocations are omitted.

#![expect(unsafe_code, reason = "a global allocator is unsafe by nature")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use highwater_snapshots::trace::{DeviceFacts, HEAP_DEVICE, PINNED_DRIVER};
use highwater_snapshots::{Category, Pool, StartingState, StreamId};

use crate::api::{self, NewBlock};
use crate::source::Source;
use crate::{hub, level, reentrancy};

/// Default minimum size of recorded blocks, in bytes.
const SMALLEST_BYTES: usize = 1024;

/// A recording global allocator, which forwards all calls to an inner allocator, by default the system's.
#[derive(Debug)]
pub struct RecordedHeap<A = System> {
    inner: A,
    smallest: usize,
}

impl RecordedHeap {
    /// Wraps the system's allocator, and records blocks of 1 KiB and more.
    pub const fn new() -> Self {
        Self::over(System, SMALLEST_BYTES)
    }
}

impl Default for RecordedHeap {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> RecordedHeap<A> {
    /// Wraps another allocator, and records blocks of `smallest_bytes` and more.
    pub const fn over(inner: A, smallest_bytes: usize) -> Self {
        Self { inner, smallest: smallest_bytes }
    }

    #[inline(always)]
    fn is_recorded(&self, bytes: usize) -> bool {
        bytes >= self.smallest && level::records_events()
    }
}

// SAFETY: every call is forwarded unchanged to the inner allocator; the memory itself is not touched.
unsafe impl<A: GlobalAlloc> GlobalAlloc for RecordedHeap<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { self.inner.alloc(layout) };
        if self.is_recorded(layout.size()) {
            record_alloc(block, layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        if self.is_recorded(layout.size()) {
            record_alloc(block, layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before the free, since the address may be reused right after it.
        if self.is_recorded(layout.size()) {
            record_free(block);
        }
        // SAFETY: as the caller promises.
        unsafe { self.inner.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if self.is_recorded(layout.size()) {
            record_free(block);
        }
        // SAFETY: as the caller promises.
        let moved = unsafe { self.inner.realloc(block, layout, new_size) };
        if moved.is_null() {
            // The block stays at its address.
            if self.is_recorded(layout.size()) {
                record_alloc(block, layout.size());
            }
        } else if self.is_recorded(new_size) {
            record_alloc(moved, new_size);
        }
        moved
    }
}

#[inline(never)]
fn record_alloc(block: *mut u8, bytes: usize) {
    if block.is_null() || reentrancy::is_own_memory() || !is_known() {
        return;
    }
    let (requested, address) = (bytes as u64, block as u64);
    let (stream, pool) = (StreamId(0), Pool::Large);
    api::alloc_at(HEAP_DEVICE, &NewBlock { block: 0, address, requested, allocated: requested, stream, pool });
}

#[inline(never)]
fn record_free(block: *mut u8) {
    // The recorder's own blocks were not recorded, and frees of unrecorded blocks are ignored.
    if !reentrancy::is_own_memory() {
        api::free_at(HEAP_DEVICE, block as u64);
    }
}

/// Registers the heap at the first block. Returns false if that was not possible yet.
#[inline(always)]
fn is_known() -> bool {
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    IS_KNOWN.load(Ordering::Acquire) || make_known(&IS_KNOWN)
}

/// Maximum number of attempts of a thread to register the heap, or to check whether another thread has registered it.
const PATIENCE: u32 = 1000;

#[cold]
fn make_known(is_known: &AtomicBool) -> bool {
    static SOURCE: OnceLock<Arc<dyn Source>> = OnceLock::new();
    let _own = reentrancy::own_memory();
    for _ in 0..PATIENCE {
        // Other threads wait until the recording has the heap's state: events before that would not be recorded.
        if is_known.load(Ordering::Acquire) {
            return true;
        }
        let Some(mut hub) = hub::try_lock() else {
            std::thread::yield_now();
            continue;
        };
        if !is_known.load(Ordering::Acquire) {
            let source = SOURCE.get_or_init(|| Arc::new(Heap));
            hub.add_source(Arc::downgrade(source));
            hub::start_device(&**source);
            is_known.store(true, Ordering::Release);
            drop(hub);
            source.sample(true);
        }
        return true;
    }
    // This thread itself may hold the hub's lock; the next block will register the heap.
    false
}

/// Sets the category of the heap block that begins at `first`, for example because it was not known at the allocation.
/// Ignored if the block was not recorded. For a vector, `first` is the result of `as_ptr`.
pub fn tag<T>(first: *const T, category: Category) {
    api::tag_at(HEAP_DEVICE, first as u64, category);
}

struct Heap;

impl Source for Heap {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            device: HEAP_DEVICE,
            name: "host memory (heap)".to_owned(),
            capacity_bytes: proc_kib("/proc/meminfo", "MemTotal:").unwrap_or(0),
            driver: PINNED_DRIVER.to_owned(),
            settings: Vec::new(),
        }
    }

    /// Passes an empty state, since existing blocks are unknown while nothing is recorded.
    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState { device: HEAP_DEVICE, ..StartingState::default() });
    }

    /// Reports the resident memory of the process.
    fn sample(&self, _is_due: bool) {
        let _own = reentrancy::own_memory();
        if let Some(bytes) = proc_kib("/proc/self/status", "VmRSS:") {
            api::device_used(HEAP_DEVICE, bytes);
        }
    }
}

/// Returns the size in bytes that Linux reports in KiB after `name` in `file`; `None` if it cannot be read.
fn proc_kib(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}
