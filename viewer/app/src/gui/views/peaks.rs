//! Finds the local peaks of a total on a background thread, so that the user can move between them.

use std::sync::Arc;

use eframe::egui::Context;
use highwater_analysis::Metric;
use highwater_analysis::extremes::peaks;

use crate::gui::views::view::OfDevice;
use crate::gui::widgets::{Query, computed};

/// The minimum prominence of a local peak is the highest peak divided by this.
const MIN_FALL: u64 = 50;

/// A device, and a total of it.
pub(crate) type Key = (OfDevice, Metric);

/// The peaks of a total, computed in the background, and the requested move to the next or the previous peak.
#[derive(Debug)]
pub(crate) struct Peaks {
    /// The moments of the peaks.
    query: Query<Key, Arc<[usize]>>,
    /// The requested move: `true` to the next peak, `false` to the previous one; `None` if none is requested.
    wanted: Option<bool>,
}

computed!(Peaks: query);

impl Default for Peaks {
    fn default() -> Self {
        let query = Query::new("highwater-peaks", |(of, metric): &Key, _| {
            let recording = of.recording.get()?;
            let index = &recording.devices[of.device];
            let highest = index.peak(&recording.trace, *metric).bytes;
            let found = peaks(&recording.trace, &index.series, *metric, highest / MIN_FALL);
            Some(found.iter().map(|peak| peak.after).collect())
        });
        Self { query, wanted: None }
    }
}

impl Peaks {
    /// Requests a move to the next or the previous peak. [`Self::awaited`] returns the peaks once they are computed.
    pub(crate) fn go(&mut self, ctx: &Context, key: &Key, is_forward: bool) {
        self.wanted = Some(is_forward);
        self.query.ask(ctx, key);
    }

    /// Takes the requested move once the peaks of `key` are computed: the moments of the peaks, and whether to go
    /// forward. Returns `None` before that, and without a requested move.
    pub(crate) fn awaited(&mut self, key: &Key) -> Option<(Arc<[usize]>, bool)> {
        self.query.receive();
        let moments = self.query.answer().filter(|_| self.query.answered() == Some(key))?;
        Some((Arc::clone(moments), self.wanted.take()?))
    }
}
