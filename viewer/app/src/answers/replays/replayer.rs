//! Replays of a changed recording on a device of any size.

use std::sync::Arc;

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{Answers, BlockOverride, Plan, Replay, TieBreak, recorded_config, replay};
use highwater_analysis::Series;
use highwater_analysis::recompute::{Effect, apply};
use highwater_snapshots::trace::PINNED_DRIVER;
use highwater_snapshots::{DeviceId, EventId, Trace};

use super::{Bound, Change, changed_config, follow};

/// The allocator of a recording's device.
#[derive(Clone, Debug)]
pub struct Replayer {
    device: DeviceId,
    config: AllocConfig,
    tie_break: TieBreak,
    /// Releases of cached memory that the program requested.
    emptied: Vec<EventId>,
    recorded_capacity: Option<u64>,
    /// Reserved before the recording.
    baseline_bytes: u64,
}

/// A recording that was changed.
#[derive(Clone, Debug)]
pub struct ChangedRecording {
    /// The recording.
    pub trace: Arc<Trace>,
    /// Its events at which the program releases cached memory.
    emptied: Vec<EventId>,
}

impl Replayer {
    /// Finds out how the allocator of `device` was set up, and how it chose between free ranges.
    ///
    /// # Errors
    ///
    /// Returns why the device has no such allocator.
    pub fn of(trace: &Trace, device: DeviceId) -> Result<Self, String> {
        let facts = trace.device_facts(device);
        if facts.is_some_and(|facts| facts.driver == PINNED_DRIVER) {
            return Err(format!("device {} is pinned host memory, which another allocator serves", device.0));
        }
        let (config, _) = recorded_config(facts);
        let (Replay { emptied, .. }, tie_break) = follow(trace, device, &config, None);
        let series = Series::build(trace, device);
        let recorded_capacity = Bound::of(trace, &series, &Change { device, ..Change::default() }).bytes;
        let baseline_bytes = series.baseline().reserved;
        Ok(Self { device, config, tie_break, emptied, recorded_capacity, baseline_bytes })
    }

    /// Returns the recorded settings; nothing for the defaults.
    pub fn settings(&self) -> String {
        self.config.to_string()
    }

    /// Returns `trace`, from which this was made, without changes.
    pub fn unchanged(&self, trace: Arc<Trace>) -> ChangedRecording {
        ChangedRecording { trace, emptied: self.emptied.clone() }
    }

    /// Returns `recording` with modules recomputed by `effects`.
    pub fn recomputed(&self, recording: &ChangedRecording, effects: &[Effect]) -> ChangedRecording {
        let changed = apply(&recording.trace, self.device, effects);
        let emptied = recording.emptied.iter().map(|event| changed.place(*event)).collect();
        ChangedRecording { trace: Arc::new(changed.trace), emptied }
    }

    /// Returns `recording` without the blocks for which `is_removed` is true.
    pub fn without(&self, recording: &ChangedRecording, is_removed: &[bool]) -> ChangedRecording {
        let overrides: Vec<BlockOverride> = is_removed
            .iter()
            .map(|is_removed| BlockOverride { is_removed: *is_removed, ..BlockOverride::default() })
            .collect();
        let plan = Plan { overrides: Some(&overrides), ..self.plan(self.config.clone(), None, recording) };
        let replayed = replay(&recording.trace, &plan);
        let place = |event: &EventId| EventId::from_index(replayed.source.partition_point(|source| source < event));
        let emptied = recording.emptied.iter().map(place).collect();
        ChangedRecording { trace: Arc::new(replayed.trace), emptied }
    }

    fn plan<'p>(&self, config: AllocConfig, capacity: Option<u64>, recording: &'p ChangedRecording) -> Plan<'p> {
        // With other settings, or on a device that cannot have them, the initial segments would have another layout.
        let starts_anew = config != self.config || capacity.is_some_and(|capacity| self.baseline_bytes > capacity);
        Plan {
            config,
            answers: Answers::Modelled(capacity),
            emptied: &recording.emptied,
            recorded_capacity: self.recorded_capacity,
            device_total: capacity,
            starts_anew,
            ..Plan::unchanged(self.device, self.config.clone(), self.tie_break)
        }
    }

    /// Replays `recording` with further `settings` on a device of `capacity` bytes. Returns whether every request
    /// succeeded, and the replayed recording.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the settings.
    pub fn replay(
        &self,
        recording: &ChangedRecording,
        settings: Option<&str>,
        capacity: Option<u64>,
    ) -> Result<(bool, Trace), String> {
        let config = match settings {
            Some(settings) => changed_config(&self.config, settings)?,
            None => self.config.clone(),
        };
        let replayed = replay(&recording.trace, &self.plan(config, capacity, recording));
        Ok((replayed.death.is_none(), replayed.trace))
    }
}
