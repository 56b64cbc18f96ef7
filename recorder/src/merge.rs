//! Merge: reads the queues of all threads as one, in the order in which things happened.
//!
//! Places are without gaps: where the next one is nowhere to be found, a thread has taken it and is about to write, so
//! the merge stops there and goes on next time. A place that is still missing after a while is given up and counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::control::{self, Control};
use crate::message;
use crate::order::SequenceNumber;
use crate::queue::Consumer;
use crate::sender;

/// So many messages are read at a time, so that the clock is looked at and what is due gets done.
const AT_A_TIME: usize = 1 << 16;

/// How long a missing message is waited for. Its thread has only a few instructions to go, but may be kept from them.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked for in that time, at least.
const LOOKS: u32 = 20;

/// What stands at a place.
pub(crate) enum Item<'a> {
    /// A message, in its words.
    Message(&'a [u64]),
    /// A notice.
    Control(Control),
}

/// The queues of all threads, up to a place in their common order.
pub(crate) struct Merge {
    consumers: Vec<Consumer>,
    expected: SequenceNumber,
    /// Since when the place has been missing, and how often it was looked for.
    stuck: Option<(Instant, u32)>,
    /// Places that were given up.
    given_up: u64,
}

impl Merge {
    /// Begins with the place `first`; what is older belongs to nobody and is passed over.
    pub(crate) fn new(first: SequenceNumber) -> Self {
        Self { consumers: Vec::new(), expected: first, stuck: None, given_up: 0 }
    }

    /// Messages that never came.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Gives what there is to `take`, in order, until it says that it is enough. True if it was cut short at some point where
    /// more may follow.
    pub(crate) fn read(&mut self, take: &mut dyn FnMut(Item<'_>) -> bool) -> bool {
        self.consumers.extend(sender::newcomers());
        let began = self.expected;
        let mut left = AT_A_TIME;
        let take: &mut dyn FnMut(Item<'_>) -> bool = &mut |item| {
            left = left.saturating_sub(1);
            take(item) && left > 0
        };
        while self.read_to_gap(take) {}
        self.consumers.retain_mut(|consumer| !consumer.is_over());
        self.mind_gap(began);
        left == 0
    }

    /// Reads up to the first missing place. True when something was read, and what was missing may be there by now.
    fn read_to_gap(&mut self, take: &mut dyn FnMut(Item<'_>) -> bool) -> bool {
        let began = self.expected;
        let mut heads: BinaryHeap<Reverse<(i32, usize)>> = BinaryHeap::with_capacity(self.consumers.len());
        let head =
            |consumer: &mut Consumer| consumer.peek().map(|words| SequenceNumber(message::place(words)).behind(began));
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            heads.extend(head(consumer).map(|behind| Reverse((behind, index))));
        }
        loop {
            let expected = self.expected.behind(began);
            match heads.pop() {
                Some(Reverse((behind, index))) if behind <= expected => {
                    let consumer = &mut self.consumers[index];
                    if behind < expected {
                        // From before this recording, or given up.
                        let len = consumer.peek().map_or(0, <[u64]>::len);
                        consumer.advance(len);
                    } else if !Self::read_run(consumer, &mut self.expected, take) {
                        return false;
                    }
                    heads.extend(head(consumer).map(|behind| Reverse((behind, index))));
                }
                next => {
                    let Some(notice) = control::take_at(self.expected) else {
                        return self.expected != began;
                    };
                    self.expected = self.expected.next();
                    heads.extend(next);
                    if !take(Item::Control(notice)) {
                        return false;
                    }
                }
            }
        }
    }

    /// Reads one queue as long as it has the next place.
    fn read_run(
        consumer: &mut Consumer,
        expected: &mut SequenceNumber,
        take: &mut dyn FnMut(Item<'_>) -> bool,
    ) -> bool {
        while let Some(words) = consumer.peek() {
            if message::place(words) != expected.0 {
                break;
            }
            let len = words.len();
            let goes_on = take(Item::Message(words));
            consumer.advance(len);
            *expected = expected.next();
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Gives up a place that has been missing for long, though there are later ones.
    fn mind_gap(&mut self, began: SequenceNumber) {
        if self.expected != began {
            self.stuck = None;
            return;
        }
        let expected = self.expected;
        let heads = self.consumers.iter_mut().filter_map(|consumer| {
            let behind = SequenceNumber(message::place(consumer.peek()?)).behind(expected);
            (behind > 0).then_some(behind)
        });
        let later = heads.chain(control::next_behind(expected).filter(|behind| *behind > 0)).min();
        let Some(later) = later else {
            self.stuck = None;
            return;
        };
        // Counted as well: a program that was stopped for a while has not been looking.
        let (since, looks) = self.stuck.get_or_insert_with(|| (Instant::now(), 0));
        *looks += 1;
        if since.elapsed() > PATIENCE && *looks > LOOKS {
            self.given_up += later.unsigned_abs() as u64;
            self.expected = SequenceNumber(expected.0.wrapping_add(later.unsigned_abs()));
            self.stuck = None;
        }
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        sender::give_back(std::mem::take(&mut self.consumers));
    }
}
