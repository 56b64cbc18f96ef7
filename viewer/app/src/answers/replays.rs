//! Predictions and out-of-memory analyses, made by replaying a recording through the allocator with a change.

mod capacity;
mod settings;
mod trials;
mod replayer;

pub use capacity::used_outside;
pub use highwater_allocator::replay::Replay;
pub use replayer::{Edited, Replayer};

use std::sync::Arc;

use highwater_allocator::AccountingDriver;
use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{Answers, BlockOverride, Plan, Share, Target, TieBreak, recorded_config, replay};
use highwater_analysis::addresses::FailedRequest;
use highwater_analysis::final_oom::final_oom;
use highwater_analysis::{LastUses, LiveIndex, Metric, Moment, Series};
use highwater_snapshots::trace::PINNED_DRIVER;
use highwater_snapshots::{DeviceId, EventId, Trace};
use rayon::prelude::*;

use self::capacity::{Bound, recorded_total, smallest_that_fits};
use self::settings::worth_trying;
use crate::answers::oom_analysis::OomAnalysis;
use crate::answers::prediction::{
    Change, Changed, Concerned, Deviation, Failed, Figures, Prediction, Tried, Unchanged,
};
use crate::answers::recomputation::recompute;

/// Checks whether `settings` can be applied to the settings recorded for `device`.
///
/// # Errors
///
/// Returns the problem.
pub fn check_settings(trace: &Trace, device: DeviceId, settings: &str) -> Result<(), String> {
    changed_config(&recorded_config(trace.device_facts(device)).0, settings).map(|_| ())
}

/// Applies `settings` to `recorded` ones, or to the defaults if they begin with `default`.
fn changed_config(recorded: &AllocConfig, settings: &str) -> Result<AllocConfig, String> {
    let (first, rest) = settings.split_once(',').unwrap_or((settings, ""));
    let config = match (first.trim(), rest.trim()) {
        ("default", "") => AllocConfig::default(),
        ("default", rest) => AllocConfig::default().with(rest).map_err(|why| why.to_string())?,
        _ => recorded.with(settings.trim()).map_err(|why| why.to_string())?,
    };
    check_pages(&config)?;
    Ok(config)
}

/// Returns an error if no CUDA device supports `config`.
fn check_pages(config: &AllocConfig) -> Result<(), String> {
    // Only the page size of the device matters, and it is the same for all CUDA devices.
    config.check_driver(&AccountingDriver::new(0)).map_err(|why| why.to_string())
}

/// Analyses `request` with all replays; `None` if its event is not in `trace`. `live` belongs to its device.
pub fn analyse(trace: &Trace, request: FailedRequest, live: &LiveIndex) -> Option<OomAnalysis> {
    let device = *trace.events.device.get(request.event.0 as usize)?;
    let test = |request: &FailedRequest, holders: &_| trials::test(trace, device, request, holders);
    Some(OomAnalysis::of(trace, (device, live), request, test))
}

/// Replays `trace` unchanged, and with `change`.
///
/// # Errors
///
/// Returns a sentence for the user.
pub fn predict(trace: &Trace, change: &Change) -> Result<Prediction, String> {
    let device = change.device;
    let facts = trace.device_facts(device);
    if facts.is_some_and(|facts| facts.driver == PINNED_DRIVER) {
        let text = "is pinned host memory, which another allocator serves: choose a GPU with --device";
        return Err(format!("device {} {text}", device.0));
    }
    let (config, strange) = recorded_config(facts);
    let changed_config = match &change.alloc_conf {
        None => config.clone(),
        Some(settings) => changed_config(&config, settings)?,
    };
    let last_uses = LastUses::of(trace, device);
    if !change.until_last_use.is_empty() && last_uses.is_none() {
        let text = "the recording does not say when blocks are used: record with uses (`highwater record --uses`, or \
                    `HistoryOptions::uses`)";
        return Err(text.to_owned());
    }
    let series = Series::build(trace, device);
    let measured = Figures::of(trace, device);
    let (unchanged, tie_break, emptied) = replay_unchanged(trace, device, &config, strange);
    let recorded_capacity = Bound::of(trace, &series, &Change { device, ..Change::default() }).bytes;
    let base = Base { trace, device, recorded: &config, tie_break, emptied: &emptied, recorded_capacity };
    let (changed, tried) = if !change.checkpoint.is_empty() {
        (Some(base.replay_recomputed(change, &changed_config, &series)?), Vec::new())
    } else if change.changes_anything() {
        let bound = Bound::of(trace, &series, change);
        (Some(base.replay_changed(change, &changed_config, bound, &series, last_uses.as_ref())), Vec::new())
    } else {
        (None, base.try_settings())
    };
    Ok(Prediction { device, measured, recorded_conf: config.to_string(), unchanged, changed, tried })
}

/// Replays without changes, with the tie-break rule that follows the recording longest; with `target`, up to that
/// request.
fn follow(trace: &Trace, device: DeviceId, config: &AllocConfig, target: Option<Target>) -> (Replay, TieBreak) {
    let device_total = recorded_total(trace, device);
    let run = |tie_break: TieBreak| {
        replay(trace, &Plan { device_total, target, ..Plan::unchanged(device, config.clone(), tie_break) })
    };
    let end = |replay: &Replay| replay.divergence.map_or(EventId::NONE, |divergence| divergence.event);
    let chosen = run(TieBreak::OldestSegment);
    if chosen.divergence.is_some() {
        let other = run(TieBreak::LowestAddress);
        if end(&other) > end(&chosen) {
            return (other, TieBreak::LowestAddress);
        }
    }
    (chosen, TieBreak::OldestSegment)
}

/// Replays without changes; returns the result, its tie-break rule, and the cache releases that the program requested.
fn replay_unchanged(
    trace: &Trace,
    device: DeviceId,
    config: &AllocConfig,
    strange: Vec<String>,
) -> (Unchanged, TieBreak, Vec<EventId>) {
    let (chosen, tie_break) = follow(trace, device, config, None);
    let Replay { trace: replayed, divergence, largest_difference, placed_elsewhere, mut assumptions, emptied, .. } =
        chosen;
    assumptions.extend(trace.allocator(device).assumption().map(str::to_owned));
    let divergence = divergence.map(|divergence| Deviation {
        event: divergence.event,
        text: divergence.difference.to_string(),
        largest_bytes: largest_difference,
        placed_elsewhere,
    });
    let causes = if divergence.is_some() { causes(trace, strange) } else { strange };
    let figures = Figures::of(&replayed, device);
    let takes_lowest_address = tie_break == TieBreak::LowestAddress;
    (Unchanged { figures, divergence, takes_lowest_address, assumptions, causes }, tie_break, emptied)
}

/// Returns the known reasons why a replay may differ from `trace`.
fn causes(trace: &Trace, strange: Vec<String>) -> Vec<String> {
    let mut causes = strange;
    causes.extend(trace.trust_sentences());
    causes.extend(trace.problems.iter().map(ToString::to_string));
    causes
}

/// The inputs that all replays of one recording share.
struct Base<'a> {
    trace: &'a Trace,
    device: DeviceId,
    recorded: &'a AllocConfig,
    tie_break: TieBreak,
    emptied: &'a [EventId],
    recorded_capacity: Option<u64>,
}

impl Base<'_> {
    fn plan<'p>(
        &'p self,
        config: &AllocConfig,
        capacity: Option<u64>,
        overrides: Option<&'p [BlockOverride]>,
    ) -> Plan<'p> {
        Plan {
            device: self.device,
            config: config.clone(),
            recorded: self.recorded.clone(),
            answers: Answers::Modelled(capacity),
            tie_break: self.tie_break,
            overrides,
            emptied: self.emptied,
            recorded_capacity: self.recorded_capacity,
            device_total: recorded_total(self.trace, self.device),
            addresses: None,
            target: None,
            // With other settings or other blocks, the initial state would have another layout.
            starts_anew: config != self.recorded || overrides.is_some_and(|overrides| self.changes_start(overrides)),
        }
    }

    /// Whether blocks from before the recording are left out or have another size.
    fn changes_start(&self, overrides: &[BlockOverride]) -> bool {
        let start = overrides.iter().zip(&self.trace.blocks.alloc).take_while(|(_, alloc)| !alloc.is_some());
        start.into_iter().any(|(block_override, _)| block_override.is_removed || block_override.share != Share::WHOLE)
    }

    /// Replays with modules recomputed, and the other changes applied to the result.
    fn replay_recomputed(&self, change: &Change, config: &AllocConfig, series: &Series) -> Result<Changed, String> {
        let (recomputed, recomputation) = recompute(self.trace, self.device, &change.checkpoint)?;
        let trace = &recomputed.trace;
        let emptied: Vec<EventId> = self.emptied.iter().map(|event| recomputed.place(*event)).collect();
        let base = Base { trace, emptied: &emptied, ..*self };
        let bound = Bound::of(self.trace, series, change);
        let last_uses = LastUses::of(trace, self.device);
        let changed_series = Series::build(trace, self.device);
        let changed = base.replay_changed(change, config, bound, &changed_series, last_uses.as_ref());
        let recorded =
            |event: EventId| event.index().and_then(|row| recomputed.source.get(row)).copied().unwrap_or(event);
        let mut assumptions = changed.assumptions;
        assumptions.push(recomputation.evidence.assumption().to_owned());
        Ok(Changed {
            source: changed.source.into_iter().map(recorded).collect(),
            oom: changed.oom.map(|oom| Failed { event: recorded(oom.event), ..oom }),
            rescued: changed.rescued.into_iter().map(recorded).collect(),
            ends_in_oom: changed.ends_in_oom.map(recorded),
            recomputation: Some(recomputation),
            assumptions,
            ..changed
        })
    }

    fn replay_changed(
        &self,
        change: &Change,
        config: &AllocConfig,
        bound: Bound,
        series: &Series,
        last_uses: Option<&LastUses<'_>>,
    ) -> Changed {
        let (overrides, concerned) = overrides(self.trace, change, last_uses);
        let changes_blocks = concerned.iter().any(|one| one.blocks > 0);
        let overrides = changes_blocks.then_some(overrides.as_slice());
        let within = |bytes: Option<u64>| {
            let plan = self.plan(config, bytes, overrides);
            // A device smaller than the initial segments could not have had them.
            let overflows = bytes.is_some_and(|bytes| series.baseline().reserved > bytes);
            let given = change.capacity.and(bytes).map(|bytes| bytes.saturating_add(bound.outside));
            let device_total = given.or_else(|| recorded_total(self.trace, self.device));
            replay(self.trace, &Plan { device_total, starts_anew: plan.starts_anew || overflows, ..plan })
        };
        let Replay { trace, source, death, rescued, mut assumptions, .. } = within(bound.bytes);
        assumptions.extend(self.trace.allocator(self.device).assumption().map(str::to_owned));
        let figures = Figures::of(&trace, self.device);
        let ends_in_oom = final_oom(self.trace);
        let unbounded = death.as_ref().map(|_| within(None)).filter(|unbounded| unbounded.death.is_none());
        let whole = unbounded.map(|unbounded| Figures::of(&unbounded.trace, self.device));
        let live_bytes = whole.as_ref().unwrap_or(&figures).peak_bytes(Metric::Allocated);
        let smallest = || {
            let (too_small, fitting) = match &whole {
                Some(whole) => (bound.bytes, whole),
                None if death.is_none() && !rescued.is_empty() => {
                    let recorded = Bound::of(self.trace, series, &Change { device: self.device, ..Change::default() });
                    // Only for a larger device and no other change: the recorded one is known to be too small.
                    let is_larger = config == self.recorded && overrides.is_none() && bound.bytes > recorded.bytes;
                    (recorded.bytes.filter(|_| is_larger), &figures)
                }
                None => return None,
            };
            let too_small = too_small.unwrap_or(0).max(live_bytes.saturating_sub(1));
            let enough = fitting.peak_bytes(Metric::Reserved);
            smallest_that_fits(too_small, enough, |bytes| within(Some(bytes)).death.is_none())
        };
        let suffices = smallest().map(|bytes| bytes.saturating_add(bound.outside));
        let oom = death.map(|death| {
            let event = Some(death.event).filter(|event| event.0 < self.trace.events.len() as u32);
            let moment = Moment::at(self.trace, series, Metric::Reserved, event);
            Failed {
                event: death.event,
                step: moment.step,
                phase: moment.known_phase(),
                requested: death.requested,
                reserved: death.reserved,
                allocated: death.allocated,
                report: death.report,
            }
        });
        Changed {
            trace: Arc::new(trace),
            source,
            figures,
            alloc_conf: config.to_string(),
            capacity: bound.bytes,
            capacity_from: bound.from,
            oom,
            rescued,
            ends_in_oom,
            suffices,
            live_bytes: live_bytes.saturating_add(bound.outside),
            concerned,
            recomputation: None,
            assumptions,
        }
    }

    /// Replays with each of the settings that are worth a trial.
    fn try_settings(&self) -> Vec<Tried> {
        let worth_trying = worth_trying(self.trace, self.device).into_iter();
        let configs = worth_trying.filter_map(|text| Some((self.recorded.with(&text).ok()?, text)));
        let others: Vec<(AllocConfig, String)> = configs.filter(|(config, _)| config != self.recorded).collect();
        let ends_in_oom = final_oom(self.trace);
        let tried = |(config, asked): &(AllocConfig, String)| {
            let plan = self.plan(config, self.recorded_capacity, None);
            let Replay { trace, death, rescued, .. } = replay(self.trace, &plan);
            let oom = death.map(|death| death.event);
            let figures = Figures::of(&trace, self.device);
            let gets_past_failure = oom.is_none() && ends_in_oom.is_some_and(|event| rescued.contains(&event));
            Tried { asked: asked.clone(), alloc_conf: config.to_string(), figures, oom, gets_past_failure }
        };
        others.par_iter().map(tried).collect()
    }
}

/// Computes the override of each block, and how many blocks are changed.
fn overrides(trace: &Trace, change: &Change, last_uses: Option<&LastUses<'_>>) -> (Vec<BlockOverride>, [Concerned; 3]) {
    let mut overrides = vec![BlockOverride::default(); trace.blocks.len()];
    let mut concerned = [Concerned::default(); 3];
    let mut without: Vec<_> = change.without.iter().map(|filter| filter.on(trace)).collect();
    let mut until_last_use: Vec<_> = change.until_last_use.iter().map(|filter| filter.on(trace)).collect();
    let mut scale: Vec<_> = change
        .scale
        .iter()
        .filter_map(|(part, filter)| Some((Share::new(part.numerator, part.denominator)?, filter.on(trace))))
        .collect();
    for id in trace.blocks.ids() {
        let row = id.0 as usize;
        if trace.blocks.device[row] != change.device {
            continue;
        }
        let block_override = &mut overrides[row];
        let mut is_unused = false;
        block_override.is_removed = without.iter_mut().any(|filter| filter.matches(id));
        if !block_override.is_removed {
            let is_shortened = until_last_use.iter_mut().any(|filter| filter.matches(id));
            let end = last_uses.filter(|_| is_shortened).and_then(|uses| uses.end(row));
            // A block that is never used would not be allocated.
            is_unused = end.is_some_and(|end| end == trace.blocks.alloc[row]);
            block_override.ends_after = end.filter(|_| !is_unused).unwrap_or_default();
            let share = scale.iter_mut().find_map(|(share, filter)| filter.matches(id).then_some(*share));
            block_override.share = share.unwrap_or_default();
        }
        let is_shortened = is_unused || block_override.ends_after.is_some();
        let is_concerned = [block_override.is_removed, is_shortened, block_override.share != Share::WHOLE];
        block_override.is_removed |= is_unused;
        for (one, is_so) in concerned.iter_mut().zip(is_concerned) {
            if is_so {
                one.blocks += 1;
                one.bytes += trace.blocks.requested[row];
            }
        }
    }
    (overrides, concerned)
}
