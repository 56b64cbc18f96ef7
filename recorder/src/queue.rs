//! Queue: what a thread has told and the collector has not read yet. One writer, one reader, no lock and no waiting.
//!
//! A queue is a chain of chunks. The writer fills the last one and says how far it is; the reader follows, and hands
//! emptied chunks back, so that a steady program allocates nothing. All chunks together are limited: a writer that gets
//! none loses the message, and counts it.

#![expect(unsafe_code, reason = "a chain of chunks that one thread writes while another reads")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::message::{self, MOST_WORDS, Words};

/// Words of a chunk, 32 KiB.
const CHUNK_WORDS: usize = 4096;
/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: usize = size_of::<Chunk>();
/// Emptied chunks that a queue keeps for its writer.
const MOST_SPARE: usize = 16;

/// The chunks that exist, of all queues.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);
/// How many there may be.
static MOST_CHUNKS: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Limits the memory of all queues together, in bytes; each thread gets two chunks in any case.
pub(crate) fn limit(bytes: usize) {
    MOST_CHUNKS.store(bytes / CHUNK_BYTES, Ordering::Relaxed);
}

/// The memory of all queues, in bytes.
pub(crate) fn bytes() -> usize {
    CHUNKS.load(Ordering::Relaxed) * CHUNK_BYTES
}

struct Chunk {
    /// How many words are written and may be read. Set by the writer.
    written: AtomicUsize,
    /// The chunk that follows, once this one is full; or the next spare one.
    next: AtomicPtr<Self>,
    words: [std::cell::UnsafeCell<u64>; CHUNK_WORDS],
}

impl Chunk {
    /// A new chunk, if the limit allows for it.
    fn new(is_needed: bool) -> *mut Self {
        if CHUNKS.fetch_add(1, Ordering::Relaxed) >= MOST_CHUNKS.load(Ordering::Relaxed) && !is_needed {
            CHUNKS.fetch_sub(1, Ordering::Relaxed);
            return null_mut();
        }
        // SAFETY: all fields of a chunk are plain numbers, or null pointers, when they are zero.
        Box::into_raw(unsafe { Box::<Self>::new_zeroed().assume_init() })
    }

    /// Gives a chunk back to the system.
    ///
    /// # Safety
    /// `chunk` came from [`new`](Self::new), and nobody else has it.
    unsafe fn drop(chunk: *mut Self) {
        CHUNKS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(chunk) });
    }
}

/// What writer and reader share beside the chain.
struct Shared {
    /// A pile of emptied chunks: the reader adds to it, the writer takes it whole.
    spare: AtomicPtr<Chunk>,
    /// How many lie there, or with the writer.
    spares: AtomicUsize,
    /// How many are in the chain.
    chained: AtomicUsize,
    /// The writer is gone: when all is read, the queue is over.
    is_over: AtomicBool,
}

/// The writing end.
pub(crate) struct Producer {
    shared: Arc<Shared>,
    chunk: *mut Chunk,
    at: usize,
    /// Chunks taken from the pile.
    free: *mut Chunk,
}

/// The reading end.
pub(crate) struct Consumer {
    shared: Arc<Shared>,
    chunk: *mut Chunk,
    at: usize,
}

// SAFETY: the chain is written through atomics, and each end belongs to whoever holds it: words below `written` are only
// read, those above only written.
unsafe impl Send for Producer {}
// SAFETY: as above.
unsafe impl Send for Consumer {}

/// A new queue.
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
    /// Whether a message of `len` words fits into the chunk that is being filled.
    #[inline(always)]
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.at + len <= CHUNK_WORDS
    }

    /// Goes on to another chunk; false if there is none to be had.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn_over(&mut self) -> bool {
        if self.free.is_null() {
            self.free = self.shared.spare.swap(null_mut(), Ordering::Acquire);
        }
        // Where nothing waits but what is in one chunk, there is always a second: others' spare ones must not stop this.
        let is_needed = self.shared.chained.load(Ordering::Relaxed) < 2;
        let chunk = if self.free.is_null() { Chunk::new(is_needed) } else { self.take_free() };
        if chunk.is_null() {
            return false;
        }
        self.shared.chained.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the chunk being filled stays until the reader has seen that another follows; this is what tells it.
        unsafe { &*self.chunk }.next.store(chunk, Ordering::Release);
        (self.chunk, self.at) = (chunk, 0);
        true
    }

    fn take_free(&mut self) -> *mut Chunk {
        let chunk = self.free;
        // SAFETY: chunks of the pile belong to the writer once it has taken them, and are chained by `next`.
        let taken = unsafe { &*chunk };
        self.free = taken.next.swap(null_mut(), Ordering::Relaxed);
        taken.written.store(0, Ordering::Relaxed);
        self.shared.spares.fetch_sub(1, Ordering::Relaxed);
        chunk
    }

    /// Writes a message for which there is room.
    #[inline(always)]
    pub(crate) fn write(&mut self, message: &Words) {
        let len = message.len.min(MOST_WORDS);
        debug_assert!(self.has_room(len));
        // SAFETY: the writer's own chunk; words from `at` on are the writer's alone until `written` says otherwise, and
        // the caller has made sure that there is room.
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
            // SAFETY: it belongs to this end alone.
            unsafe { Chunk::drop(chunk) };
        }
        // The chain itself belongs to the reader from here on.
        self.shared.is_over.store(true, Ordering::Release);
    }
}

impl Consumer {
    /// The next message, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&[u64]> {
        loop {
            // SAFETY: the reader's chunk stays until the reader gives it back.
            let chunk = unsafe { &*self.chunk };
            // In this order: once another chunk follows, no more is written to this one.
            let next = chunk.next.load(Ordering::Acquire);
            let written = chunk.written.load(Ordering::Acquire);
            if self.at < written {
                // SAFETY: the words from `at` to `written` hold whole messages and are never written again.
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

    /// Goes past a message of `len` words.
    #[inline]
    pub(crate) fn advance(&mut self, len: usize) {
        self.at += len;
    }

    /// Whether nothing is left and nothing can follow.
    pub(crate) fn is_over(&mut self) -> bool {
        // In this order: what was written before the writer left is then seen.
        self.shared.is_over.load(Ordering::Acquire) && self.peek().is_none()
    }

    fn give_back(&self, chunk: *mut Chunk) {
        self.shared.chained.fetch_sub(1, Ordering::Relaxed);
        let is_scarce = CHUNKS.load(Ordering::Relaxed) > MOST_CHUNKS.load(Ordering::Relaxed) / 2;
        let has_enough = self.shared.spares.load(Ordering::Relaxed) >= MOST_SPARE;
        if has_enough || is_scarce || self.shared.is_over.load(Ordering::Relaxed) {
            // SAFETY: the writer has gone on from it, and the reader as well.
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
        // While the writer is there, it goes on in these chunks: better lost than taken from it.
        if !self.shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let chains = [self.chunk, self.shared.spare.swap(null_mut(), Ordering::Acquire)];
        for mut chunk in chains {
            while !chunk.is_null() {
                // SAFETY: chained chunks that nobody else has.
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
                    while !producer.has_room(message.len) && !producer.turn_over() {
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
                assert_eq!(message::read(words).told, Message::Event(What::Used(expected)));
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
                assert!(producer.turn_over());
            }
            producer.write(&message);
            chunks.insert(producer.chunk);
            let len = consumer.peek().expect("just written").len();
            consumer.advance(len);
        }
        assert!(chunks.len() <= 3, "{} chunks", chunks.len());
    }
}
