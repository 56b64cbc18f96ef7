//! Assigns the blocks of windows their ids in the whole recording.

use std::ops::ControlFlow;

use hashbrown::HashMap;

use super::Windows;
use crate::error::Result;
use crate::event::{Event, EventKind, What};
use crate::ids::{BlockId, DeviceId};
use crate::trace::Trace;

impl Windows {
    /// Replaces the block ids of a window by the ids in the whole recording, which number the baseline blocks first and
    /// then the others in allocation order. For blocks allocated before the window, reads the sections that contain
    /// their allocations.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the part that is read is damaged.
    pub fn number_blocks(&self, mut window: Trace) -> Result<Trace> {
        let mut numbers = vec![BlockId::NONE; window.blocks.len()];
        let at_start = self.numbers_at_start();
        let mut births: Vec<(u64, usize)> = Vec::new();
        for (row, number) in numbers.iter_mut().enumerate() {
            match window.alloc_number(BlockId::from_index(row)) {
                Some(event) => births.push((event, row)),
                None => {
                    let key = (window.blocks.device[row], window.blocks.address[row]);
                    *number = at_start.get(&key).copied().unwrap_or(BlockId::NONE);
                }
            }
        }
        births.sort_unstable();
        let inside = births.partition_point(|(event, _)| *event < window.start.events);
        let (before, inside) = births.split_at(inside);
        let mut events: Vec<u64> = before.iter().map(|(event, _)| *event).collect();
        events.push(window.start.events);
        let counts = self.allocations_before(&events)?;
        let first = self.starting.iter().map(|state| state.blocks.len() as u64).sum::<u64>();
        let number = |allocations: u64| BlockId::from_index((first + allocations) as usize);
        for ((_, row), count) in before.iter().zip(&counts) {
            numbers[*row] = number(*count);
        }
        for ((_, row), count) in inside.iter().zip(counts.last().copied().unwrap_or(0)..) {
            numbers[*row] = number(count);
        }
        window.0.start.blocks = numbers;
        Ok(window)
    }

    /// Returns the ids of the blocks that are live before the recording, by device and address.
    fn numbers_at_start(&self) -> HashMap<(DeviceId, u64), BlockId> {
        let blocks = self.starting.iter().flat_map(|state| state.blocks.iter().map(|block| (state.device, block)));
        blocks.zip(0..).map(|((device, block), row)| ((device, block.alloc.address), BlockId(row))).collect()
    }

    /// The number of allocations before each of `events`, which must be sorted.
    fn allocations_before(&self, events: &[u64]) -> Result<Vec<u64>> {
        let mut counts = Vec::with_capacity(events.len());
        let (mut left, mut before) = (events, 0);
        for row in &self.summaries {
            let end = row.first + u64::from(row.events);
            let (of_row, rest) = left.split_at(left.partition_point(|event| *event < end));
            left = rest;
            if let Some(last) = of_row.last() {
                let (mut next, mut count) = (of_row, before);
                let mut take = |first: u64, run: &[Event]| {
                    for (event, number) in run.iter().zip(first..) {
                        let here = next.partition_point(|event| *event <= number);
                        counts.extend(std::iter::repeat_n(count, here));
                        next = &next[here..];
                        count += u64::from(matches!(event.what, What::Alloc(_)));
                    }
                    ControlFlow::Continue(())
                };
                self.files.read(row.first..last + 1, &mut take)?;
            }
            let allocs = row.devices.iter().map(|device| u64::from(device.counts[EventKind::Alloc as usize]));
            before += allocs.sum::<u64>();
            if left.is_empty() {
                break;
            }
        }
        counts.resize(events.len(), before);
        Ok(counts)
    }
}
