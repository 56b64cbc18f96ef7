//! Sends messages from the program's threads to the collector, through one queue per thread, created when needed.

#![expect(unsafe_code, reason = "keeps the thread's queue behind a pointer")]

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_snapshots::{DeviceId, OpId, StackId};

use crate::clock;
use crate::message::{Message, NewOp, Words};
use crate::order;
use crate::queue::{self, Consumer, Producer};
use crate::reentrancy;

/// Consumers that the collector has not adopted yet.
static NEWCOMERS: Mutex<Vec<Consumer>> = Mutex::new(Vec::new());
/// Shared queue for threads that are ending and whose own queues are already destroyed.
static LAST_WORDS: Mutex<Option<Producer>> = Mutex::new(None);
/// Number of events lost since the process began.
static LOST: AtomicU64 = AtomicU64::new(0);
/// Whether threads wait rather than lose events when the queues are full.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Whether the collector should read the queues soon.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
static COLLECTOR: Condvar = Condvar::new();
static COLLECTOR_SLEEPS: Mutex<()> = Mutex::new(());

struct Owner(Cell<*mut Producer>);

impl Drop for Owner {
    fn drop(&mut self) {
        let _guard = reentrancy::enter();
        CURRENT.set(null_mut());
        let producer = self.0.replace(null_mut());
        if !producer.is_null() {
            // SAFETY: created by `Box::into_raw` in `make`; both pointers to it have been cleared.
            drop(unsafe { Box::from_raw(producer) });
        }
    }
}

thread_local! {
    /// Without a destructor, so that it can be read at any time in a thread's life, at the cost of one load.
    static CURRENT: Cell<*mut Producer> = const { Cell::new(null_mut()) };
    static OWNER: Owner = const { Owner(Cell::new(null_mut())) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a message about `device` to the collector, stamped with the current time. Neither allocates nor locks, unless
/// the thread's queue is new or full.
#[inline(always)]
pub(crate) fn send(device: DeviceId, stack: StackId, message: &Message) {
    send_words(Words::of(device, stack, message), message.events());
}

/// Begins an operation and returns its id, or [`OpId::NONE`] when all ids are used up.
pub(crate) fn send_op(op: NewOp) -> OpId {
    let mut id = OpId::NONE;
    let mut words = Words::of(DeviceId(0), op.stack, &Message::Op(OpId::NONE, op));
    with_room(words.len, 0, |producer| {
        let Some((place, number)) = order::take_with_op() else { return };
        id = number;
        words = Words::of(DeviceId(0), op.stack, &Message::Op(id, op));
        words.stamp(place.0, clock::ticks());
        producer.write(&words);
    });
    id
}

#[inline(always)]
fn send_words(mut words: Words, events: u64) {
    with_room(words.len, events, |producer| {
        // Taken only now that the write cannot fail: every sequence number that is taken must be written.
        let place = order::take();
        words.stamp(place.0, clock::ticks());
        producer.write(&words);
    });
}

#[inline(always)]
fn with_room(len: usize, events: u64, write: impl FnOnce(&mut Producer)) {
    let Some(_guard) = reentrancy::enter() else { return lose(events) };
    let mut producer = CURRENT.get();
    if producer.is_null() {
        producer = make();
    }
    // SAFETY: the current thread's queue, if it has one; `_guard` ensures that nothing else on this thread uses it.
    let Some(producer) = (unsafe { producer.as_mut() }) else {
        return last_words(len, events, write);
    };
    if producer.has_room(len) || next_chunk(producer, events) {
        write(producer);
    }
}

/// Creates the current thread's queue. Returns null if the thread is ending and its queue is already destroyed.
#[cold]
#[inline(never)]
fn make() -> *mut Producer {
    OWNER
        .try_with(|owner| {
            let (producer, consumer) = queue::queue();
            locked(&NEWCOMERS).push(consumer);
            // Perhaps the first events of the recording follow, which the file should have soon.
            wake();
            let producer = Box::into_raw(Box::new(producer));
            owner.0.set(producer);
            CURRENT.set(producer);
            producer
        })
        .unwrap_or(null_mut())
}

#[cold]
#[inline(never)]
fn last_words(len: usize, events: u64, write: impl FnOnce(&mut Producer)) {
    let mut producer = locked(&LAST_WORDS);
    let producer = producer.get_or_insert_with(|| {
        let (producer, consumer) = queue::queue();
        locked(&NEWCOMERS).push(consumer);
        producer
    });
    if producer.has_room(len) || next_chunk(producer, events) {
        write(producer);
    }
}

/// Moves on to another chunk. If none is available, waits for one if [`set_waiting`] is on; otherwise counts the events
/// as lost and returns false.
#[cold]
#[inline(never)]
fn next_chunk(producer: &mut Producer, events: u64) -> bool {
    wake();
    while !producer.next_chunk() {
        if !WAITS.load(Ordering::Relaxed) {
            lose(events);
            return false;
        }
        wake();
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

#[cold]
#[inline(never)]
fn lose(events: u64) {
    LOST.fetch_add(events, Ordering::Relaxed);
}

pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

pub(crate) fn set_waiting(waits: bool) {
    WAITS.store(waits, Ordering::Relaxed);
}

pub(crate) fn wake() {
    IS_WANTED.store(true, Ordering::Relaxed);
    COLLECTOR.notify_one();
}

/// Waits until [`wake`] is called (returns true) or until the timeout. A call just before the wait may be missed.
pub(crate) fn wait(at_most: Duration) -> bool {
    let waiting = COLLECTOR
        .wait_timeout_while(locked(&COLLECTOR_SLEEPS), at_most, |()| !IS_WANTED.swap(false, Ordering::Relaxed));
    !waiting.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

/// Takes over the consumers of queues that were created or returned since the last call.
pub(crate) fn newcomers() -> Vec<Consumer> {
    std::mem::take(&mut *locked(&NEWCOMERS))
}

/// Returns consumers to the list from which the next collector takes them.
pub(crate) fn give_back(consumers: Vec<Consumer>) {
    locked(&NEWCOMERS).extend(consumers);
}
