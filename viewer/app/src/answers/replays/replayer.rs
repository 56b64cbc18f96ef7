//! Replays of a changed recording on a device of any size.

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{Answers, BlockOverride, Plan, Replay, TieBreak, recorded_config, replay};
use highwater_snapshots::trace::PINNED_DRIVER;
use highwater_snapshots::{DeviceId, Trace};

use super::{changed_config, follow};

/// The allocator of a recording's device.
#[derive(Clone, Debug)]
pub struct Replayer {
    device: DeviceId,
    config: AllocConfig,
    tie_break: TieBreak,
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
        let (_, tie_break) = follow(trace, device, &config, None);
        Ok(Self { device, config, tie_break })
    }

    /// Returns the recorded settings; nothing for the defaults.
    pub fn settings(&self) -> String {
        self.config.to_string()
    }

    fn plan<'p>(&self, config: AllocConfig, capacity: Option<u64>, overrides: Option<&'p [BlockOverride]>) -> Plan<'p> {
        Plan {
            config,
            answers: Answers::Modelled(capacity),
            overrides,
            device_total: capacity,
            starts_anew: true,
            ..Plan::unchanged(self.device, self.config.clone(), self.tie_break)
        }
    }

    /// Replays `trace` without the blocks for which `is_removed` is true.
    pub fn without(&self, trace: &Trace, is_removed: &[bool]) -> Replay {
        let overrides: Vec<BlockOverride> = is_removed
            .iter()
            .map(|is_removed| BlockOverride { is_removed: *is_removed, ..BlockOverride::default() })
            .collect();
        replay(trace, &self.plan(self.config.clone(), None, Some(&overrides)))
    }

    /// Replays `trace`, which was made of the recording, with further `settings` on a device of `capacity` bytes.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the settings.
    pub fn replay(&self, trace: &Trace, settings: Option<&str>, capacity: Option<u64>) -> Result<Replay, String> {
        let config = match settings {
            Some(settings) => changed_config(&self.config, settings)?,
            None => self.config.clone(),
        };
        Ok(replay(trace, &self.plan(config, capacity, None)))
    }
}
