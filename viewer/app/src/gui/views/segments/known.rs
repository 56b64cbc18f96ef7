//! Computes the address axis of a device once, and the memory map of a moment on request.

use std::sync::{Arc, OnceLock};

use highwater_analysis::addresses::fit::driver_free;
use highwater_analysis::addresses::{LaneAxis, PoolFit, rooms};
use highwater_analysis::{AddressIndex, AddressMap, FailedRequest};
use highwater_snapshots::EventId;
use highwater_snapshots::alloc_rules::AllocRules;

use crate::Recording;
use crate::answers::oom_analysis::OomAnalysis;
use crate::answers::replays::analyse;
use crate::gui::identity::Identity;

/// The address axis of one device, computed by the first thread that needs it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) recording: Arc<Recording>,
    /// Index of the device.
    pub(super) device: usize,
    axis: OnceLock<LaneAxis>,
}

impl Known {
    pub(super) fn new(recording: &Arc<Recording>, device: usize) -> Arc<Self> {
        Arc::new(Self { recording: Arc::clone(recording), device, axis: OnceLock::new() })
    }

    pub(super) fn index(&self) -> &AddressIndex {
        self.recording.devices[self.device].addresses(&self.recording.trace)
    }

    pub(super) fn axis(&self) -> &LaneAxis {
        self.axis.get_or_init(|| LaneAxis::build(&self.recording.trace, self.index()))
    }
}

/// The moment, and optionally the failed request, for which [`State`] is computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    pub(super) known: Identity<Known>,
    pub(super) moment: usize,
    /// The failed request to analyse; `None` for one directly before or after the moment, if there is any.
    pub(super) oom: Option<EventId>,
}

/// The answer to a [`Question`]: the content of the device's addresses at a moment.
#[derive(Debug)]
pub(super) struct State {
    pub(super) map: AddressMap,
    /// The free memory of each pool and stream.
    pub(super) rooms: Vec<PoolFit>,
    /// The segments in display order: by pool and stream, then by address.
    pub(super) order: Vec<usize>,
    pub(super) ooms: Vec<EventId>,
    pub(super) failed: Option<FailedRequest>,
}

impl State {
    pub(super) fn of(question: &Question) -> Option<Arc<Self>> {
        let Question { known, moment, oom } = question;
        let known = known.get()?;
        let trace = &known.recording.trace;
        let device = &known.recording.devices[known.device];
        let index = known.index();
        let map = AddressMap::at(trace, index, &device.live, &device.series, *moment);
        let facts = trace.device_facts(device.device);
        let rules = AllocRules::of(facts);
        let free = driver_free(facts.map_or(0, |facts| facts.capacity_bytes), &map.totals);
        let rooms = rooms(&map, &rules, free);
        let mut order: Vec<usize> = (0..map.segments.len()).collect();
        order.sort_by_key(|row| (map.segments[*row].home, *row));
        let ooms = index.ooms().to_vec();
        // The states before and after a failed request are the same.
        let beside = ooms.iter().find(|event| (event.0 as usize..=event.0 as usize + 1).contains(moment));
        let event = oom.or(beside.copied());
        let failed = event.and_then(|event| FailedRequest::of(trace, index, &device.live, &device.series, event));
        Some(Arc::new(Self { map, rooms, order, ooms, failed }))
    }
}

/// Analyses the failed request at an event by replaying the recording up to it.
pub(super) fn analyse_request((known, event): &(Identity<Known>, EventId)) -> Option<Arc<OomAnalysis>> {
    let known = known.get()?;
    let trace = &known.recording.trace;
    let device = known.recording.devices.get(known.device)?;
    let failed = FailedRequest::of(trace, known.index(), &device.live, &device.series, *event)?;
    Some(Arc::new(analyse(trace, failed, &device.live)?))
}
