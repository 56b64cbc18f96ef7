//! Merges the queues of all threads into one sequence, in the order in which the events happened.
//!
//! Sequence numbers have no gaps. If the next number is missing, a thread has taken it and is about to write, so the
//! merge stops there and continues later. A number that is still missing after a while is skipped and counted as lost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::control::{self, Control};
use crate::message;
use crate::order::SequenceNumber;
use crate::queue::Consumer;
use crate::sender;

/// Number of messages read at a time, so that the clock is updated and pending work is done in between.
const AT_A_TIME: usize = 1 << 16;

/// The time to wait for a missing message. Its thread has only a few instructions left, but may be descheduled.
const PATIENCE: Duration = Duration::from_secs(1);

/// Minimum number of retries while waiting for a missing message.
const LOOKS: u32 = 20;

pub(crate) enum Item<'a> {
    Message(&'a [u64]),
    Control(Control),
}

/// The queues of all threads, read up to a common sequence number.
pub(crate) struct Merge {
    consumers: Vec<Consumer>,
    expected: SequenceNumber,
    /// The time at which the next number was first found missing, and the number of checks since then.
    stuck: Option<(Instant, u32)>,
    /// Number of sequence numbers that were skipped.
    given_up: u64,
}

impl Merge {
    /// Starts at the sequence number `first`. Older messages belong to no recording and are skipped.
    pub(crate) fn new(first: SequenceNumber) -> Self {
        Self { consumers: Vec::new(), expected: first, stuck: None, given_up: 0 }
    }

    pub(crate) fn expected(&self) -> SequenceNumber {
        self.expected
    }

    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Passes the available items to `take`, in order, until it returns false. Returns true if the limit of items was
    /// reached and more may follow.
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
        self.skip_gap(began);
        left == 0
    }

    /// Reads up to the first missing number. Returns whether to try again, since something was read and the missing
    /// message may have arrived meanwhile.
    fn read_to_gap(&mut self, take: &mut dyn FnMut(Item<'_>) -> bool) -> bool {
        let began = self.expected;
        let mut heads: BinaryHeap<Reverse<(i32, usize)>> = BinaryHeap::with_capacity(self.consumers.len());
        let head = |consumer: &mut Consumer| {
            consumer.peek().map(|words| SequenceNumber(message::sequence_number(words)).behind(began))
        };
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            heads.extend(head(consumer).map(|behind| Reverse((behind, index))));
        }
        loop {
            let expected = self.expected.behind(began);
            match heads.pop() {
                Some(Reverse((behind, index))) if behind <= expected => {
                    let consumer = &mut self.consumers[index];
                    if behind < expected {
                        // From before this recording, or skipped.
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

    /// Reads one queue as long as it has the next number.
    fn read_run(
        consumer: &mut Consumer,
        expected: &mut SequenceNumber,
        take: &mut dyn FnMut(Item<'_>) -> bool,
    ) -> bool {
        while let Some(words) = consumer.peek() {
            if message::sequence_number(words) != expected.0 {
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

    /// Skips a number that has been missing for too long although later numbers exist.
    fn skip_gap(&mut self, began: SequenceNumber) {
        if self.expected != began {
            self.stuck = None;
            return;
        }
        let expected = self.expected;
        let heads = self.consumers.iter_mut().filter_map(|consumer| {
            let behind = SequenceNumber(message::sequence_number(consumer.peek()?)).behind(expected);
            (behind > 0).then_some(behind)
        });
        let later = heads.chain(control::next_behind(expected).filter(|behind| *behind > 0)).min();
        let Some(later) = later else {
            self.stuck = None;
            return;
        };
        // Retries are counted too, since time also passes while the process is stopped, without any retry.
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
