//! Finds the local peaks of a total on a background thread, and steps from one to the next.

use std::sync::Arc;

use eframe::egui::Context;
use highwater_analysis::Metric;
use highwater_analysis::extremes::peaks;

use super::worker::Worker;
use crate::session::Recording;

/// A peak stands out by this part of the highest.
const LEAST_FALL: u64 = 50;

/// Of which total.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) recording: Arc<Recording>,
    pub(super) device: usize,
    pub(super) metric: Metric,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recording, &other.recording) && (self.device, self.metric) == (other.device, other.metric)
    }
}

/// The moments of one total's peaks, once they are known, and what is to be done then.
#[derive(Debug)]
pub(super) struct Peaks {
    worker: Worker<Key, (Key, Arc<[usize]>)>,
    known: Option<(Key, Arc<[usize]>)>,
    /// Whether the next peak is wanted, or the one before.
    wanted: Option<bool>,
}

impl Default for Peaks {
    fn default() -> Self {
        let worker = Worker::new("highwater-peaks", |key: Key, _| {
            let index = &key.recording.devices[key.device];
            let highest = index.peak(&key.recording.trace, key.metric).bytes;
            let found = peaks(&key.recording.trace, &index.series, key.metric, highest / LEAST_FALL);
            Some((key, found.iter().map(|peak| peak.moment).collect()))
        });
        Self { worker, known: None, wanted: None }
    }
}

impl Peaks {
    /// Wants the next peak, or the one before: it is there when [`Self::awaited`] gives the moments.
    pub(super) fn go(&mut self, ctx: &Context, key: Key, is_forward: bool) {
        self.wanted = Some(is_forward);
        if self.known.as_ref().is_none_or(|(known, _)| *known != key) {
            self.worker.ask(ctx, key);
        }
    }

    /// The moments of the peaks of `key`, and whether the next is wanted; once, when they are known.
    pub(super) fn awaited(&mut self, key: &Key) -> Option<(Arc<[usize]>, bool)> {
        if let Some(found) = self.worker.take() {
            self.known = Some(found);
        }
        let (_, moments) = self.known.as_ref().filter(|(known, _)| known == key)?;
        Some((Arc::clone(moments), self.wanted.take()?))
    }

    /// Whether they are being looked for.
    pub(super) fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// Waits until they are known. For tests.
    pub(super) fn wait(&mut self) {
        if let Some(found) = self.worker.wait() {
            self.known = Some(found);
        }
    }
}
