//! Test helpers that create recordings.

use std::ops::ControlFlow;

use highwater_notation::trace_from_text;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use crate::metric::Metric;
use crate::question::diff::Asked;
use crate::question::growth::{Growth, GrowthQuery, StepRange, growth};
use crate::question::peak::Moment;
use crate::question::source::{DeviceIndex, Source, Watch};

/// Watches nothing.
pub(crate) fn watch() -> Watch<'static> {
    Box::leak(Box::new(|_| ControlFlow::Continue(())))
}

/// The growth of `device` over the steps of a recording, or over all of it.
pub(crate) fn growth_of_device(source: &Source<'_>, device: DeviceId, query: GrowthQuery<'_>) -> Growth {
    growth(source, &[device], StepRange::default(), &[query], watch()).unwrap().remove(0).remove(0).unwrap()
}

/// A recording in memory, and the indexes of its device 0.
pub(crate) struct Fixture {
    pub(crate) source: Source<'static>,
    pub(crate) trace: Trace,
    index: DeviceIndex,
}

impl Fixture {
    pub(crate) fn of(text: &str) -> Self {
        let trace = trace_from_text(text).expect("the text is a trace");
        Self { index: DeviceIndex::build(&trace, DeviceId(0)), source: Source::in_memory(trace.clone()), trace }
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { trace: &self.trace, series: &self.index.series, live: &self.index.live }
    }

    pub(crate) fn peak(&self, metric: Metric) -> Moment {
        self.source.peak(DeviceId(0), metric).unwrap()
    }
}
