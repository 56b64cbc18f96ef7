//! The memory of a recording if the driver returns addresses in another order: PyTorch's allocator takes the lowest of
//! equal free blocks, so allocated and reserved bytes of some programs depend on it.

use std::sync::Arc;

use highwater_analysis::Metric;
use highwater_app::answers::prediction::Figures;
use highwater_app::answers::replays::Replayer;
use highwater_snapshots::alloc_rules::AddressOrder;
use highwater_snapshots::{DeviceId, Trace};
use rayon::prelude::*;
use serde::Serialize;

/// The lowest and the highest peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Interval {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Interval {
    pub(super) fn of(bytes: u64) -> Self {
        Self { low: bytes, high: bytes }
    }

    pub(super) fn with(self, bytes: u64) -> Self {
        Self { low: self.low.min(bytes), high: self.high.max(bytes) }
    }

    /// Whether there is one value.
    pub(super) fn is_exact(self) -> bool {
        self.low == self.high
    }
}

/// The totals that have bounds, in the order of [`Metric::ALL`].
pub(super) const BOUNDED: [Metric; 4] = [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved];

/// The peaks of the recorded requests under every order of addresses, the recorded one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orders {
    /// Of the totals in [`BOUNDED`]; requested bytes are the same under all.
    pub(super) peaks: [Interval; BOUNDED.len()],
    /// Whether a request fails under another order.
    pub(super) may_fail: bool,
}

impl Orders {
    /// Whether the order of addresses makes no difference.
    pub(super) fn is_exact(&self) -> bool {
        self.peaks.into_iter().all(Interval::is_exact)
    }

    /// Replays the requests on a device of `capacity` bytes.
    ///
    /// # Errors
    ///
    /// Returns why they cannot be replayed.
    pub(super) fn of(trace: &Arc<Trace>, device: DeviceId, capacity: u64) -> Result<Self, String> {
        let replayer = Replayer::of(trace, device)?;
        let recording = replayer.unchanged(Arc::clone(trace));
        let measured = Figures::of_trace(trace, device);
        let replays: Vec<_> = AddressOrder::ALL
            .into_par_iter()
            .map(|(_, order)| {
                let replay = replayer.replay_in(&recording, order, capacity);
                (Figures::of_trace(&replay.trace, device), replay.death.is_some())
            })
            .collect();
        let peaks = |metric: Metric| {
            let others = replays.iter().filter(|_| metric != Metric::Requested);
            let others = others.map(|(figures, _)| figures.peak_bytes(metric));
            others.fold(Interval::of(measured.peak_bytes(metric)), Interval::with)
        };
        let may_fail = measured.failure.is_none() && replays.iter().any(|(_, fails)| *fails);
        Ok(Self { peaks: BOUNDED.map(peaks), may_fail })
    }
}
