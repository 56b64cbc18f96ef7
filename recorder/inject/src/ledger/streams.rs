//! Assigns small ids to stream handles, in order of first use.

use std::collections::BTreeMap;

use highwater_recorder::StreamId;

use crate::abi::{STREAM_LEGACY, STREAM_PER_THREAD};

/// Maximum number of streams with distinct ids. All further streams share one id.
const MOST: usize = 1 << 16;

/// The ids of streams. 0 is the legacy default stream.
#[derive(Debug)]
pub(crate) struct Streams {
    numbers: BTreeMap<u64, u64>,
}

impl Streams {
    pub(super) const fn new() -> Self {
        Self { numbers: BTreeMap::new() }
    }

    /// `thread` identifies the owner of a per-thread default stream.
    pub(crate) fn number(&mut self, stream: u64, thread: u64) -> StreamId {
        let name = match stream {
            0 | STREAM_LEGACY => return StreamId(0),
            STREAM_PER_THREAD => thread,
            stream => stream,
        };
        let next = self.numbers.len() + 1;
        if next > MOST && !self.numbers.contains_key(&name) {
            return StreamId(next as u64);
        }
        StreamId(*self.numbers.entry(name).or_insert(next as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_as_they_come_and_keep_their_numbers() {
        let mut streams = Streams::new();
        assert_eq!(streams.number(0, 77), StreamId(0));
        assert_eq!(streams.number(0x5000, 77), StreamId(1));
        assert_eq!(streams.number(STREAM_LEGACY, 77), StreamId(0));
        assert_eq!(streams.number(STREAM_PER_THREAD, 77), StreamId(2));
        assert_eq!(streams.number(STREAM_PER_THREAD, 78), StreamId(3), "another thread has another default stream");
        assert_eq!(streams.number(0x5000, 78), StreamId(1));
    }

    #[test]
    fn a_program_that_makes_streams_for_ever_takes_no_more_memory() {
        let mut streams = Streams::new();
        let numbers: Vec<StreamId> = (0..3 * MOST as u64).map(|stream| streams.number(0x5000 + stream, 0)).collect();
        assert_eq!((numbers[MOST - 1], numbers[MOST]), (StreamId(MOST as u64), StreamId(MOST as u64 + 1)));
        assert_eq!(numbers.last(), Some(&StreamId(MOST as u64 + 1)));
        assert_eq!(streams.numbers.len(), MOST);
    }
}
