//! The queue between a thread and the collector, with one producer and one consumer, and without locks or waiting.
//!
//! A queue is a chain of chunks. The producer fills the last chunk and publishes how far it is written. The consumer
//! follows and returns emptied chunks, so that a program in a steady state allocates nothing. The total number of
//! chunks is limited. A producer that gets no chunk loses the message and counts it.

#![expect(unsafe_code, reason = "a chain of chunks that one thread writes while another reads")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::message::{self, MAX_WORDS, Words};

/// Number of words per chunk (32 KiB).
const CHUNK_WORDS: usize = 4096;
pub(crate) const CHUNK_BYTES: usize = size_of::<Chunk>();
/// Maximum number of spare chunks that a queue keeps for its producer.
const MAX_SPARE: usize = 16;

static CHUNKS: AtomicUsize = AtomicUsize::new(0);
static MAX_CHUNKS: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Limits the memory of all queues together, in bytes. Each thread gets two chunks in any case.
pub(crate) fn limit(bytes: usize) {
    MAX_CHUNKS.store(bytes / CHUNK_BYTES, Ordering::Relaxed);
}

pub(crate) fn bytes() -> usize {
    CHUNKS.load(Ordering::Relaxed) * CHUNK_BYTES
}

struct Chunk {
    /// Number of words that are written and may be read. Set by the producer.
    written: AtomicUsize,
    /// The next chunk of the chain once this chunk is full, or the next spare chunk if this chunk is spare.
    next: AtomicPtr<Self>,
    words: [std::cell::UnsafeCell<u64>; CHUNK_WORDS],
}

impl Chunk {
    /// Allocates a chunk, or returns null at the limit unless `is_needed`.
    fn new(is_needed: bool) -> *mut Self {
        if CHUNKS.fetch_add(1, Ordering::Relaxed) >= MAX_CHUNKS.load(Ordering::Relaxed) && !is_needed {
            CHUNKS.fetch_sub(1, Ordering::Relaxed);
            return null_mut();
        }
        // SAFETY: all fields of a chunk are plain numbers or pointers, for which zero is valid.
        Box::into_raw(unsafe { Box::<Self>::new_zeroed().assume_init() })
    }

    /// Frees a chunk.
    ///
    /// # Safety
    /// `chunk` came from [`new`](Self::new), and nothing else refers to it.
    unsafe fn drop(chunk: *mut Self) {
        CHUNKS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(chunk) });
    }
}

/// State that producer and consumer share in addition to the chain.
struct Shared {
    /// Stack of emptied chunks, to which the consumer pushes and which the producer takes as a whole.
    spare: AtomicPtr<Chunk>,
    /// Number of chunks in `spare` or in the producer's `free`.
    spares: AtomicUsize,
    chained: AtomicUsize,
    /// Whether the producer was dropped. The queue is finished once everything is read.
    is_over: AtomicBool,
}

pub(crate) struct Producer {
    shared: Arc<Shared>,
    chunk: *mut Chunk,
    at: usize,
    /// Chunks taken from `spare`, which the producer may fill next.
    free: *mut Chunk,
}

pub(crate) struct Consumer {
    shared: Arc<Shared>,
    chunk: *mut Chunk,
    at: usize,
}

// SAFETY: the chain is accessed through atomics, and each end has a single owner: words below `written` are only read,
// those above only written.
unsafe impl Send for Producer {}
// SAFETY: as above.
unsafe impl Send for Consumer {}

pub(crate) fn queue() -> (Producer, Consumer) {
    let shared = Arc::new(Shared {
        spare: AtomicPtr::new(null_mut()),
        spares: AtomicUsize::new(0),
        chained: AtomicUsize::new(1),
        is_over: AtomicBool::new(false),
    });
    let chunk = Chunk::new(true);
    (Producer { shared: Arc::clone(&shared), chunk, at: 0, free: null_mut() }, Consumer { shared, chunk, at: 0 })
}

impl Producer {
    #[inline(always)]
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.at + len <= CHUNK_WORDS
    }

    /// Moves on to another chunk. Returns false if none is available.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_chunk(&mut self) -> bool {
        if self.free.is_null() {
            self.free = self.shared.spare.swap(null_mut(), Ordering::Acquire);
        }
        // A queue with a single chunk always gets a second one, however many spare chunks other queues keep.
        let is_needed = self.shared.chained.load(Ordering::Relaxed) < 2;
        let chunk = if self.free.is_null() { Chunk::new(is_needed) } else { self.take_free() };
        if chunk.is_null() {
            return false;
        }
        self.shared.chained.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the current chunk stays allocated until the consumer has seen `next`, which is set here.
        unsafe { &*self.chunk }.next.store(chunk, Ordering::Release);
        (self.chunk, self.at) = (chunk, 0);
        true
    }

    fn take_free(&mut self) -> *mut Chunk {
        let chunk = self.free;
        // SAFETY: spare chunks belong to the producer once it has taken them, and are linked by `next`.
        let taken = unsafe { &*chunk };
        self.free = taken.next.swap(null_mut(), Ordering::Relaxed);
        taken.written.store(0, Ordering::Relaxed);
        self.shared.spares.fetch_sub(1, Ordering::Relaxed);
        chunk
    }

    /// The caller must have checked [`has_room`](Self::has_room).
    #[inline(always)]
    pub(crate) fn write(&mut self, message: &Words) {
        let len = message.len.min(MAX_WORDS);
        debug_assert!(self.has_room(len));
        // SAFETY: the producer's current chunk; words from `at` on belong to the producer alone until `written` is
        // stored, and the caller has made sure that there is room.
        unsafe {
            let chunk = &*self.chunk;
            let to = chunk.words.as_ptr().add(self.at).cast::<u64>().cast_mut();
            std::ptr::copy_nonoverlapping(message.words.as_ptr(), to, len);
            self.at += len;
            chunk.written.store(self.at, Ordering::Release);
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        while !self.free.is_null() {
            let chunk = self.take_free();
            // SAFETY: the chunk belongs to this end alone.
            unsafe { Chunk::drop(chunk) };
        }
        // The chain itself belongs to the consumer from here on.
        self.shared.is_over.store(true, Ordering::Release);
    }
}

impl Consumer {
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&[u64]> {
        loop {
            // SAFETY: the consumer's current chunk stays allocated until the consumer returns it.
            let chunk = unsafe { &*self.chunk };
            // In this order: once another chunk follows, nothing more is written to this one.
            let next = chunk.next.load(Ordering::Acquire);
            let written = chunk.written.load(Ordering::Acquire);
            if self.at < written {
                // SAFETY: the words from `at` to `written` are whole messages that are never written again.
                let rest = unsafe {
                    std::slice::from_raw_parts(chunk.words.as_ptr().add(self.at).cast::<u64>(), written - self.at)
                };
                return rest.get(..message::len(*rest.first()?));
            }
            if next.is_null() {
                return None;
            }
            let emptied = std::mem::replace(&mut self.chunk, next);
            self.at = 0;
            self.give_back(emptied);
        }
    }

    #[inline]
    pub(crate) fn advance(&mut self, len: usize) {
        self.at += len;
    }

    /// Returns whether everything is read and no message can follow.
    pub(crate) fn is_over(&mut self) -> bool {
        // In this order, so that everything written before the producer was dropped is seen.
        self.shared.is_over.load(Ordering::Acquire) && self.peek().is_none()
    }

    fn give_back(&self, chunk: *mut Chunk) {
        self.shared.chained.fetch_sub(1, Ordering::Relaxed);
        let is_scarce = CHUNKS.load(Ordering::Relaxed) > MAX_CHUNKS.load(Ordering::Relaxed) / 2;
        let has_enough = self.shared.spares.load(Ordering::Relaxed) >= MAX_SPARE;
        if has_enough || is_scarce || self.shared.is_over.load(Ordering::Relaxed) {
            // SAFETY: both the producer and the consumer have moved on from it.
            return unsafe { Chunk::drop(chunk) };
        }
        self.shared.spares.fetch_add(1, Ordering::Relaxed);
        let mut top = self.shared.spare.load(Ordering::Relaxed);
        loop {
            // SAFETY: as above.
            unsafe { &*chunk }.next.store(top, Ordering::Relaxed);
            let put = self.shared.spare.compare_exchange_weak(top, chunk, Ordering::Release, Ordering::Relaxed);
            match put {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // While the producer exists, it goes on writing to these chunks: leak them rather than free them.
        if !self.shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let chains = [self.chunk, self.shared.spare.swap(null_mut(), Ordering::Acquire)];
        for mut chunk in chains {
            while !chunk.is_null() {
                // SAFETY: linked chunks that nothing else refers to.
                unsafe {
                    let next = (*chunk).next.load(Ordering::Relaxed);
                    Chunk::drop(chunk);
                    chunk = next;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::event::What;
    use highwater_snapshots::{DeviceId, StackId};

    use super::*;
    use crate::message::Message;

    fn used(number: u64) -> Words {
        Words::of(DeviceId(0), StackId::NONE, &Message::Event(What::Used(number)))
    }

    #[test]
    fn messages_of_one_thread_arrive_on_another_whole_and_in_order() {
        let (mut producer, mut consumer) = queue();
        let sent = 300_000;
        let mut expected = 0;
        std::thread::scope(|threads| {
            threads.spawn(move || {
                for number in 0..sent {
                    let message = used(number);
                    while !producer.has_room(message.len) && !producer.next_chunk() {
                        std::thread::yield_now();
                    }
                    producer.write(&message);
                }
            });
            while expected < sent || !consumer.is_over() {
                let Some(words) = consumer.peek() else {
                    std::thread::yield_now();
                    continue;
                };
                let len = words.len();
                assert_eq!(message::read(words).message, Message::Event(What::Used(expected)));
                expected += 1;
                consumer.advance(len);
            }
        });
        assert_eq!(expected, sent);
    }

    #[test]
    fn a_reader_that_keeps_up_makes_the_writer_use_the_same_chunks_again() {
        let (mut producer, mut consumer) = queue();
        let mut chunks = std::collections::HashSet::new();
        for number in 0..100_000 {
            let message = used(number);
            if !producer.has_room(message.len) {
                assert!(producer.next_chunk());
            }
            producer.write(&message);
            chunks.insert(producer.chunk);
            let len = consumer.peek().expect("just written").len();
            consumer.advance(len);
        }
        assert!(chunks.len() <= 3, "{} chunks", chunks.len());
    }
}
