//! Finds the local peaks of a total on a background thread, and steps from one to the next.

use std::sync::Arc;

use eframe::egui::Context;
use highwater_analysis::Metric;
use highwater_analysis::extremes::peaks;

use crate::gui::widgets::worker::Worker;
use crate::session::Recording;

/// Least prominence of a local peak, as a share of the highest.
const LEAST_FALL: u64 = 50;

/// The total, device and recording of the peaks.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) recording: Arc<Recording>,
    pub(crate) device: usize,
    pub(crate) metric: Metric,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recording, &other.recording) && (self.device, self.metric) == (other.device, other.metric)
    }
}

/// The peaks of one total, once they are found, and the pending command.
#[derive(Debug)]
pub(crate) struct Peaks {
    worker: Worker<Key, (Key, Arc<[usize]>)>,
    known: Option<(Key, Arc<[usize]>)>,
    /// Whether the next or the previous peak is wanted.
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
    /// Requests the next or the previous peak; [`Self::awaited`] returns the moments when they are found.
    pub(crate) fn go(&mut self, ctx: &Context, key: Key, is_forward: bool) {
        self.wanted = Some(is_forward);
        if self.known.as_ref().is_none_or(|(known, _)| *known != key) {
            self.worker.ask(ctx, key);
        }
    }

    /// The moments of the peaks of `key`, and whether the next one is wanted; once, when they are found.
    pub(crate) fn awaited(&mut self, key: &Key) -> Option<(Arc<[usize]>, bool)> {
        if let Some(found) = self.worker.take() {
            self.known = Some(found);
        }
        let (_, moments) = self.known.as_ref().filter(|(known, _)| known == key)?;
        Some((Arc::clone(moments), self.wanted.take()?))
    }

    /// Whether peaks are being searched for.
    pub(crate) fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// Waits until they are found. For tests.
    pub(crate) fn wait(&mut self) {
        if let Some(found) = self.worker.wait() {
            self.known = Some(found);
        }
    }
}
