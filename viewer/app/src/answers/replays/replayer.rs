//! Replays of a changed recording on a device of any size.

use std::sync::Arc;

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{BlockOverride, DeviceModel, Plan, Replay, TieBreak, recorded_config, replay};
use highwater_analysis::Source;
use highwater_analysis::recompute::{Addition, Effect, Recomputed, apply, with_additions};
use highwater_snapshots::alloc_rules::AddressOrder;
use highwater_snapshots::trace::PINNED_DRIVER;
use highwater_snapshots::{DeviceId, EventId, Trace};

use super::{Bound, changed_config, check_events, follow};

/// Replays a recording, changed or not, through the allocator of one of its devices, with the settings and the
/// tie-break rule determined from the recording.
#[derive(Clone, Debug)]
pub struct Replayer {
    device: DeviceId,
    config: AllocConfig,
    tie_break: TieBreak,
    /// The events at which the program released cached memory.
    cache_flushes: Vec<u64>,
    recorded_capacity: Option<u64>,
    /// Bytes reserved before the first event.
    baseline_bytes: u64,
}

/// A changed recording. Its segments and addresses are those of the original recording.
#[derive(Clone, Debug)]
pub struct Edited {
    /// The changed recording.
    pub trace: Arc<Trace>,
    /// The recorded event that corresponds to each event of `trace`; `None` if the events are the recorded ones.
    source: Option<Arc<Vec<EventId>>>,
    /// The indices of the events of `trace` at which the program releases cached memory.
    cache_flushes: Vec<u64>,
}

impl Edited {
    pub(crate) fn recorded(&self, event: EventId) -> EventId {
        let known = self.source.as_ref().and_then(|source| source.get(event.index()?).copied());
        known.unwrap_or(event)
    }

    /// Adds a further change, which resulted in `trace`. `source` maps the events of `trace` to the recording's.
    fn then(&self, trace: Trace, source: &[EventId]) -> Self {
        let place = |event: &u64| source.partition_point(|other| u64::from(other.0) < *event) as u64;
        let cache_flushes = self.cache_flushes.iter().map(place).collect();
        let source = source.iter().map(|event| self.recorded(*event)).collect();
        Self { trace: Arc::new(trace), source: Some(Arc::new(source)), cache_flushes }
    }
}

impl Replayer {
    /// Determines the settings of the allocator of `device`, and its tie-break rule.
    ///
    /// # Errors
    /// Returns the reason the device cannot be replayed.
    pub fn of(trace: &Trace, device: DeviceId) -> Result<Self, String> {
        let facts = trace.device_facts(device);
        if facts.is_some_and(|facts| facts.driver == PINNED_DRIVER) {
            return Err(format!("device {} is pinned host memory, whose allocator cannot be replayed", device.0));
        }
        check_events(trace)?;
        let (config, _) = recorded_config(facts);
        let (followed, tie_break) = follow(trace, device, &config, None);
        let source = Source::in_memory(trace);
        // Reading a recording in memory cannot fail.
        let recorded_capacity = Bound::recorded(&source, device).ok().and_then(|bound| bound.bytes);
        let baseline_bytes = source.index(device).series.baseline().reserved;
        let cache_flushes = followed.outcome.cache_flushes;
        Ok(Self { device, config, tie_break, cache_flushes, recorded_capacity, baseline_bytes })
    }

    /// Returns the recorded settings; empty for the defaults.
    pub fn settings(&self) -> String {
        self.config.to_string()
    }

    /// Returns `trace`, the recording that this replayer was made for, as a recording without changes.
    pub fn unchanged(&self, trace: Arc<Trace>) -> Edited {
        Edited { trace, source: None, cache_flushes: self.cache_flushes.clone() }
    }

    /// Returns `recording` with modules recomputed according to `effects`.
    pub fn recomputed(&self, recording: &Edited, effects: &[Effect]) -> Edited {
        self.rebuilt(recording, apply(&recording.trace, self.device, effects))
    }

    /// Returns `recording` with additional blocks.
    pub fn with_additions(&self, recording: &Edited, additions: &[Addition]) -> Edited {
        self.rebuilt(recording, with_additions(&recording.trace, self.device, additions))
    }

    fn rebuilt(&self, recording: &Edited, rebuilt: Recomputed) -> Edited {
        let Recomputed { trace, source, places } = rebuilt;
        let place = |event: &u64| places.get(*event as usize).map_or(u64::MAX, |event| u64::from(event.0));
        Edited { cache_flushes: recording.cache_flushes.iter().map(place).collect(), ..recording.then(trace, &source) }
    }

    /// Returns `recording` without the blocks for which `is_removed` is true.
    pub fn without(&self, recording: &Edited, is_removed: &[bool]) -> Edited {
        let overrides: Vec<BlockOverride> = is_removed
            .iter()
            .map(|is_removed| BlockOverride { is_removed: *is_removed, ..BlockOverride::default() })
            .collect();
        let plan = Plan { overrides: Some(&overrides), ..self.plan(self.config.clone(), None, recording) };
        let Replay { trace, source, .. } = replay(&recording.trace, &plan);
        recording.then(trace, &source)
    }

    fn plan<'p>(&self, config: AllocConfig, capacity: Option<u64>, recording: &'p Edited) -> Plan<'p> {
        // With other settings, or on a device that cannot have them, the initial segments would have another layout.
        let reallocates_start =
            config != self.config || capacity.is_some_and(|capacity| self.baseline_bytes > capacity);
        Plan {
            config,
            answers: DeviceModel::Modelled(capacity),
            cache_flushes: &recording.cache_flushes,
            recorded_capacity: self.recorded_capacity,
            device_total: capacity,
            reallocates_start,
            ..Plan::unchanged(self.device, self.config.clone(), self.tie_break)
        }
    }

    /// Replays `recording` on a device of `capacity` bytes whose driver returns addresses in this `order`.
    pub fn replay_in(&self, recording: &Edited, order: AddressOrder, capacity: u64) -> Replay {
        let plan = self.plan(self.config.clone(), Some(capacity), recording);
        replay(&recording.trace, &Plan { addresses: Some(order), reallocates_start: true, ..plan })
    }

    /// Replays `recording` with additional `settings` on a device of `capacity` bytes; without `capacity`, on a device
    /// that is large enough.
    ///
    /// # Errors
    /// Returns the problem with the settings.
    pub fn replay(&self, recording: &Edited, settings: Option<&str>, capacity: Option<u64>) -> Result<Replay, String> {
        let config = match settings {
            Some(settings) => changed_config(&self.config, settings)?,
            None => self.config.clone(),
        };
        Ok(replay(&recording.trace, &self.plan(config, capacity, recording)))
    }
}
