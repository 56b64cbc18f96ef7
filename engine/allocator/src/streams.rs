//! Streams: giving blocks back, at once or when the other streams that work with them have got far enough.

use highwater_recorder::{StreamId, api};

use super::arena::{BlockIndex, Use};
use super::driver::DriverError;
use super::heap::Heap;

impl Heap {
    /// Notes that work on `stream` uses the block, so that freeing it waits for that work.
    pub(super) fn record_stream(&mut self, index: BlockIndex, stream: StreamId) {
        let record = &mut self.arena[index];
        if stream == record.stream {
            return;
        }
        let others = record.other_streams.get_or_insert_default();
        if !others.0.contains(&stream) {
            others.0.push(stream);
        }
    }

    /// Takes a block back. It is available at once, unless other streams work with it.
    pub(super) fn free(&mut self, index: BlockIndex) {
        let record = &mut self.arena[index];
        let (pool, bytes) = (record.pool, record.bytes);
        record.used = Use::Waiting;
        self.stats.allocation.decrease(pool, 1);
        self.stats.allocated_bytes.decrease(pool, bytes);
        if !self.config.splits_freely(bytes) {
            self.stats.oversize_allocations.decrease(1);
        }
        if record.other_streams.is_none() {
            api::free(self.device, record.key);
            self.make_available(index);
        } else {
            api::free_requested(self.device, record.key);
            self.wait_for_streams(index);
        }
    }

    #[cold]
    fn wait_for_streams(&mut self, index: BlockIndex) {
        let streams = self.arena[index].other_streams.take().unwrap_or_default();
        let mut events = 0;
        for stream in streams.0 {
            match self.driver.record_event(stream) {
                Ok(event) => {
                    self.events.push(stream, event, index);
                    events += 1;
                }
                // Without an event the stream's work is waited for here. If that fails too, nobody knows whether the
                // work still runs: an event that never comes keeps the block from being used again.
                Err(_) => events += u32::from(self.driver.synchronize(stream).is_err()),
            }
        }
        self.arena[index].events = events;
        if events == 0 {
            self.complete_free(index);
        }
    }

    /// Frees the blocks whose streams have got far enough. Never waits.
    #[cold]
    pub(super) fn process_events(&mut self) -> Result<(), DriverError> {
        for stream in self.events.streams() {
            while let Some(event) = self.events.first(stream)
                && self.driver.query(event)?
            {
                self.pass_event(stream);
            }
        }
        Ok(())
    }

    /// Waits for all outstanding events and frees their blocks.
    pub(super) fn synchronize_events(&mut self) -> Result<(), DriverError> {
        self.stats.num_sync_all_streams += 1;
        for stream in self.events.streams() {
            while let Some(event) = self.events.first(stream) {
                self.driver.wait(event)?;
                self.pass_event(stream);
            }
        }
        Ok(())
    }

    fn pass_event(&mut self, stream: StreamId) {
        let Some(index) = self.events.pop(stream) else {
            return;
        };
        let record = &mut self.arena[index];
        record.events -= 1;
        if record.events == 0 {
            self.complete_free(index);
        }
    }
}
