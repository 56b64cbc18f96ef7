//! Computes missing summaries and checkpoints, for all events or for those after the last checkpoint.

use std::ops::ControlFlow;

use super::{Watch, Windows};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::reader::Progress;
use crate::format::section::Packer;
use crate::format::summary::Summarizer;
use crate::format::windows::computed::{Computed, ComputedStore};
use crate::format::writer::{CHECKPOINT_EVENTS, MIN_BYTES_A_BLOCK};

impl Windows {
    /// Adds the summaries and checkpoints missing after the last checkpoint, from `store` or computed from the events.
    pub(super) fn summarize_rest(&mut self, store: &dyn ComputedStore, watch: Watch<'_>) -> Result<()> {
        let at_last = self.restore_last();
        let rest = at_last.events()..self.files.count;
        let is_kept = store.is_for(rest.end - rest.start);
        let loaded = if is_kept { store.load() } else { None };
        let taken =
            loaded.and_then(|bytes| Computed::decode(bytes, &rest)).and_then(|loaded| self.take_computed(loaded));
        let summarizer = match taken {
            Some(summarizer) => summarizer,
            None => {
                let (first, mut packer) = (self.summaries.len(), Packer::new()?);
                let summarizer = self.compute_rest(at_last, &mut packer, watch)?;
                if is_kept {
                    let (rows, checkpoints) = (&self.summaries[first..], self.checkpoints.added());
                    store.save(&Computed::encode(rows, checkpoints, rest.end, &mut packer)?);
                }
                summarizer
            }
        };
        self.end = summarizer.states().map(|(device, live)| (device, live.clone())).collect();
        self.take_trust();
        Ok(())
    }

    /// Adds cached results, and returns the summarizer at the last event; `None` if that state cannot be restored.
    fn take_computed(&mut self, computed: Computed) -> Option<Summarizer> {
        self.checkpoints.extend(computed.checkpoints, computed.bytes);
        let last = self.checkpoints.count() - 1;
        let Ok(summarizer) = self.checkpoints.restore(&self.files, last, || self.at_start()) else {
            self.checkpoints.forget_computed();
            return None;
        };
        self.summaries.extend(computed.summaries);
        Some(summarizer)
    }

    /// Restores the state at the last checkpoint up to which summaries exist, and removes later checkpoints. If there
    /// is none, starts at the first event.
    fn restore_last(&mut self) -> Summarizer {
        while let Some(events) = self.checkpoints.last_events() {
            let kept = self.summaries.partition_point(|row| row.first < events);
            let end = self.summaries[..kept].last().map_or(0, |row| row.first + u64::from(row.events));
            let number = self.checkpoints.before(u64::MAX).unwrap_or(0);
            if let Some(summarizer) = (end == events)
                .then(|| self.checkpoints.restore(&self.files, number, || self.at_start()).ok())
                .flatten()
            {
                self.summaries.truncate(kept);
                return summarizer;
            }
            self.checkpoints.forget_last();
        }
        self.summaries.clear();
        self.at_start()
    }

    /// Computes summaries and checkpoints of the events after the last checkpoint, whose state `summarizer` contains.
    fn compute_rest(
        &mut self,
        mut summarizer: Summarizer,
        packer: &mut Packer,
        watch: Watch<'_>,
    ) -> Result<Summarizer> {
        let (first, count) = (summarizer.events(), self.files.count);
        let (mut next, mut end) = (first + CHECKPOINT_EVENTS, 0_u64);
        let (mut failed, mut rows) = (None, Vec::new());
        let (checkpoints, summaries) = (&mut self.checkpoints, &mut rows);
        let length = self.files.length();
        let mut take = |_: u64, run: &[Event]| {
            summarizer.take(run);
            let done = summarizer.events();
            let share = u128::from(done - first) * u128::from(length) / u128::from((count - first).max(1));
            let share = share as u64;
            // Like a writer, this limits the share of checkpoints in the file.
            if done >= next && share - end >= summarizer.live_blocks() * MIN_BYTES_A_BLOCK {
                (next, end) = (done + CHECKPOINT_EVENTS, share);
                let (rows, deaths) = summarizer.end_part();
                summaries.extend(rows);
                if let Err(why) = checkpoints.add(&summarizer, &deaths, packer) {
                    failed = Some(why);
                    return ControlFlow::Break(());
                }
            }
            let progress =
                Progress { bytes_read: share, bytes: length, events: done, events_in_all: Some(count), levels: None };
            let flow = watch(progress);
            if flow.is_break() {
                failed = Some(Error::Cancelled);
            }
            flow
        };
        self.files.read(first..count, &mut take)?;
        if let Some(why) = failed {
            return Err(why);
        }
        if summarizer.events() != count {
            let what = format!("its sections contain {} events, but its index declares {count}", summarizer.events());
            return Err(Error::Damaged { offset: length, what });
        }
        if summarizer.events() > first {
            let (rows_left, deaths) = summarizer.end_part();
            rows.extend(rows_left);
            self.checkpoints.add(&summarizer, &deaths, packer)?;
        }
        self.summaries.append(&mut rows);
        Ok(summarizer)
    }

    /// Raises the counts of contradictory events in `trust` to at least the sums over the summaries.
    fn take_trust(&mut self) {
        let devices = self.summaries.iter().flat_map(|row| &row.devices);
        self.base.0.trust.count_at_least(devices.map(|device| device.contradictions));
    }
}
