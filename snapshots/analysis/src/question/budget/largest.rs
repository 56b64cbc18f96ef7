//! The largest total of each category, for a recording in memory or for one whose windows are merged in order.

use highwater_snapshots::Category;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::Extreme;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use crate::index::device_spans::{ActiveSpan, StepActivity};
use crate::metric::Metric;
use crate::question::phases::CategoryTotals;

type ByCategory<T> = [T; Category::ALL.len()];

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Largest {
    /// The total, and the first event that reaches it; `None` for the state before all events.
    pub(super) most: Extreme<Option<u64>>,
    /// The first event after the first step that reaches the same value.
    pub(super) again: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LargestByCategory {
    categories: ByCategory<Largest>,
    /// Whether any part has been added.
    is_begun: bool,
}

impl LargestByCategory {
    /// Returns the largest totals of `device` in `trace`, which is a recording or a window of one. The first step of
    /// the recording ends at event `after_first_step`.
    pub(super) fn of(trace: &Trace, device: DeviceId, metric: Metric, after_first_step: u64) -> Self {
        let mut live = CategoryTotals::new(trace, device, metric);
        let at_start = |code: usize| Extreme { bytes: live.of(Category::ALL[code]), after: None };
        let at_start = |code: usize| Largest { most: at_start(code), again: None };
        let mut categories: ByCategory<Largest> = std::array::from_fn(at_start);
        while let Some((event, _)) = live.step() {
            let row = event.0 as usize;
            if trace.events.kind[row] != EventKind::Alloc || trace.events.device[row] != device {
                continue;
            }
            let category = trace.blocks.category[trace.events.subject[row] as usize];
            let (bytes, number) = (live.of(category), trace.number(event));
            let largest = &mut categories[category as usize];
            if largest.most.raise(bytes, Some(number)) {
                largest.again = None;
            } else if bytes == largest.most.bytes && largest.again.is_none() && number >= after_first_step {
                largest.again = Some(number);
            }
        }
        Self { categories, is_begun: true }
    }

    /// Adds the next window of the recording. The first step of the recording ends at event `after_first_step`.
    pub(super) fn append(&mut self, part: &Self, after_first_step: u64) {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.categories = part.categories;
            return;
        }
        for (all, part) in self.categories.iter_mut().zip(&part.categories) {
            if all.most.raise(part.most.bytes, part.most.after) {
                all.again = part.again;
            } else if part.most.bytes == all.most.bytes && all.again.is_none() {
                all.again = part.most.after.filter(|event| *event >= after_first_step).or(part.again);
            }
        }
    }

    pub(super) fn get(&self, category: Category) -> Largest {
        self.categories[category as usize]
    }
}

/// Returns the first step of a device, and the index of the event after this step; `u64::MAX` without steps. `spans`
/// must be all spans of the recording.
pub(super) fn first_step(spans: &[ActiveSpan]) -> (Option<u32>, u64) {
    let steps = StepActivity::of(spans.iter().map(|span| (span.step, span.activity)));
    let first = spans.iter().filter_map(|span| span.step).find(|step| steps.is_of_device(Some(*step)));
    let last = first.and_then(|step| spans.iter().rev().find(|span| span.step == Some(step)));
    (first, last.map_or(u64::MAX, |span| span.events.end))
}
