//! Frees blocks: immediately, or after the other streams that use them have completed their work.

use highwater_recorder::{StreamId, api};

use super::arena::{BlockIndex, Use};
use super::driver::DriverError;
use super::heap::Heap;

impl Heap {
    /// Records that work on `stream` uses the block, so that freeing it waits for that work.
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

    /// Frees a block. It is available immediately, unless other streams use it.
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
                // Without an event, wait for the stream here. If that fails too, it is unknown whether the work still
                // runs: counting an event that never completes keeps the block from being reused.
                Err(_) => events += u32::from(self.driver.synchronize(stream).is_err()),
            }
        }
        self.arena[index].events = events;
        if events == 0 {
            self.complete_free(index);
        }
    }

    /// Frees the blocks whose events have completed, without waiting.
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
