//! Predictions and out-of-memory analyses, made by replaying a recording through the allocator with a change.

mod capacity;
mod settings;
mod block_changes;
mod replayed;
mod trials;
mod replayer;

pub use capacity::used_outside;
pub use highwater_allocator::replay::Replay;
pub use replayer::{Edited, Replayer};

use std::convert::Infallible;

use highwater_allocator::AccountingDriver;
use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{
    BlockOverride, DeviceModel, FailedReplayRequest, Plan, ReplayOutcome, Share, Target, TieBreak, recorded_config,
    replay,
};
use highwater_analysis::{Doubt, FailedRequest, LastUses, LiveIndex, Metric, Source};
use highwater_snapshots::trace::PINNED_DRIVER;
use highwater_snapshots::{DeviceId, Error, EventId, Trace};
use rayon::prelude::*;

use self::block_changes::BlockChanges;
use self::capacity::{Bound, recorded_total, smallest_that_fits};
use self::replayed::{Replayed, Replays};
use self::settings::worth_trying;
use crate::answers::oom_analysis::OomAnalysis;
use crate::answers::prediction::{Change, Changed, Deviation, Failed, Figures, Prediction, Tried, Unchanged};
use crate::answers::recomputation::recompute;

/// Checks whether `settings` can be applied to the settings recorded for `device`.
///
/// # Errors
/// Returns the problem with the settings.
pub(crate) fn check_settings(trace: &Trace, device: DeviceId, settings: &str) -> Result<(), String> {
    changed_config(&recorded_config(trace.device_facts(device)).0, settings).map(|_| ())
}

/// Adds `settings` to the `recorded` ones, or to the defaults if they start with `default`.
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

/// Analyses `request` with all replays; `None` if its event is not in `trace`. `live` must be the live blocks of the
/// same device.
pub fn analyse(trace: &Trace, request: FailedRequest, live: &LiveIndex) -> Option<OomAnalysis> {
    let device = *trace.events.device.get(request.event.0 as usize)?;
    let test = |request: &FailedRequest, holders: &_| trials::test(trace, device, request, holders);
    Some(OomAnalysis::of(trace, (device, live), request, test))
}

/// The reason why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum NoPrediction {
    /// The question cannot be answered. Contains a sentence for the user.
    #[error("{0}")]
    Refused(String),
    /// The recording cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Error),
}

impl From<String> for NoPrediction {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

/// Replays a recording without changes and with `change`. A change that [follows blocks](Change::follows_blocks) needs
/// all events at once.
///
/// # Errors
/// Fails if the change is impossible, or the recording is too long for it or cannot be read.
pub fn predict(source: &Source<'_>, change: &Change) -> Result<Prediction, NoPrediction> {
    if !change.follows_blocks() {
        return predict_streamed(source, change);
    }
    match source.resident() {
        Err(why @ Error::TooLong { .. }) => {
            Err(format!("last uses, lifetimes and recomputed modules are not available: {why}").into())
        }
        source => predict_streamed(&source?, change),
    }
}

/// A `change` that [follows blocks](Change::follows_blocks) needs a recording in memory.
fn predict_streamed(source: &Source<'_>, change: &Change) -> Result<Prediction, NoPrediction> {
    let (trace, device) = (source.facts(), change.device);
    let facts = trace.device_facts(device);
    if facts.is_some_and(|facts| facts.driver == PINNED_DRIVER) {
        let text = "is pinned host memory, whose allocator cannot be replayed: choose a GPU with --device";
        return Err(format!("device {} {text}", device.0).into());
    }
    if change.changes_anything() {
        check_events(trace)?;
    }
    let (config, problems) = recorded_config(facts);
    let changed_config = match &change.alloc_conf {
        None => config.clone(),
        Some(settings) => changed_config(&config, settings)?,
    };
    let last_uses = if change.until_last_use.is_empty() { None } else { LastUses::of(trace, device) };
    if !change.until_last_use.is_empty() && last_uses.is_none() {
        let text = "the recording does not contain uses of blocks: record them with `highwater record --uses` or \
                    `HistoryOptions::uses`";
        return Err(text.to_owned().into());
    }
    let measured = Figures::of(source, device)?;
    let ends_in_oom = source.final_oom()?.map(|(event, _)| event);
    let doubt = Doubt::of_replay(source, device)?;
    let replays = Replays::new(source)?;
    let (unchanged, tie_break, cache_flushes) = replay_unchanged(&replays, device, &config, problems)?;
    let recorded_capacity = Bound::recorded(source, device)?.bytes;
    let base = Base { trace, device, recorded: &config, tie_break, cache_flushes: &cache_flushes, recorded_capacity };
    let whole = Predicting { base, replays, ends_in_oom, doubt };
    let (changed, tried) = if !change.checkpoint.is_empty() {
        (Some(whole.replay_recomputed(change, &changed_config)?), Vec::new())
    } else if change.changes_anything() {
        let bound = Bound::of(source, change)?;
        (Some(whole.replay_changed(change, &changed_config, bound, last_uses.as_ref())?), Vec::new())
    } else {
        (None, whole.try_settings()?)
    };
    Ok(Prediction { device, measured, recorded_conf: config.to_string(), ends_in_oom, unchanged, changed, tried })
}

fn check_events(trace: &Trace) -> Result<(), String> {
    if !trace.is_state() {
        return Ok(());
    }
    Err(format!("{}: there is nothing to replay, so record the program's events", Doubt::NoEvents.text(trace)))
}

/// Replays without changes, with each tie-break rule, and chooses the rule whose replay agrees with the recording
/// longest. `run` makes a replay, and `end` returns the point of the first difference.
fn follow_longest<R, E>(
    run: impl Fn(TieBreak) -> Result<R, E>,
    end: impl Fn(&R) -> Option<u64>,
) -> Result<(R, TieBreak), E> {
    let chosen = run(TieBreak::OldestSegment)?;
    if let Some(first) = end(&chosen) {
        let other = run(TieBreak::LowestAddress)?;
        if end(&other).is_none_or(|end| end > first) {
            return Ok((other, TieBreak::LowestAddress));
        }
    }
    Ok((chosen, TieBreak::OldestSegment))
}

/// Replays without changes, with the tie-break rule whose replay agrees with the recording longest. With `target`,
/// replays only up to that request.
fn follow(trace: &Trace, device: DeviceId, config: &AllocConfig, target: Option<Target>) -> (Replay, TieBreak) {
    let device_total = recorded_total(trace, device);
    let run = |tie_break: TieBreak| {
        Ok(replay(trace, &Plan { device_total, target, ..Plan::unchanged(device, config.clone(), tie_break) }))
    };
    let end = |replay: &Replay| replay.outcome.divergence.map(|divergence| divergence.event);
    let Ok(followed) = follow_longest::<_, Infallible>(run, end);
    followed
}

/// Replays without changes; returns the result, its tie-break rule, and the cache releases that the program requested.
fn replay_unchanged(
    replays: &Replays<'_>,
    device: DeviceId,
    config: &AllocConfig,
    problems: Vec<String>,
) -> Result<(Unchanged, TieBreak, Vec<u64>), Error> {
    let (source, trace) = (replays.source, replays.source.facts());
    let device_total = recorded_total(trace, device);
    let run = |tie_break: TieBreak| {
        replays.by(&Plan { device_total, ..Plan::unchanged(device, config.clone(), tie_break) }, None, None)
    };
    let end = |replayed: &Replayed| replayed.outcome.divergence.map(|divergence| divergence.event);
    let (Replayed { figures, outcome, .. }, tie_break) = follow_longest(run, end)?;
    let mut assumptions = outcome.assumptions;
    assumptions.extend(source.allocator(device).assumption().map(str::to_owned));
    let divergence = outcome.divergence.map(|divergence| Deviation {
        event: divergence.event,
        text: divergence.difference.to_string(),
        largest_bytes: outcome.largest_difference,
        placed_elsewhere: outcome.placed_elsewhere,
    });
    let causes = if divergence.is_some() { causes(trace, problems) } else { problems };
    let takes_lowest_address = tie_break == TieBreak::LowestAddress;
    let unchanged = Unchanged { figures, divergence, takes_lowest_address, assumptions, causes };
    Ok((unchanged, tie_break, outcome.cache_flushes))
}

fn causes(trace: &Trace, problems: Vec<String>) -> Vec<String> {
    let mut causes = problems;
    causes.extend(trace.trust_sentences());
    causes.extend(trace.problems.iter().map(ToString::to_string));
    causes
}

struct Base<'a> {
    /// The recording; for a recording that is too long for memory, a window before its first event.
    trace: &'a Trace,
    device: DeviceId,
    recorded: &'a AllocConfig,
    tie_break: TieBreak,
    cache_flushes: &'a [u64],
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
            config: config.clone(),
            answers: DeviceModel::Modelled(capacity),
            overrides,
            cache_flushes: self.cache_flushes,
            recorded_capacity: self.recorded_capacity,
            device_total: recorded_total(self.trace, self.device),
            // With other settings or other blocks, the initial state would have another layout.
            reallocates_start: config != self.recorded
                || overrides.is_some_and(|overrides| self.changes_start(overrides)),
            ..Plan::unchanged(self.device, self.recorded.clone(), self.tie_break)
        }
    }

    /// Returns whether blocks from before the recording are omitted or resized.
    fn changes_start(&self, overrides: &[BlockOverride]) -> bool {
        let start = overrides.iter().zip(&self.trace.blocks.alloc).take_while(|(_, alloc)| !alloc.is_some());
        start.into_iter().any(|(block_override, _)| block_override.is_removed || block_override.share != Share::WHOLE)
    }
}

struct Predicting<'a> {
    base: Base<'a>,
    replays: Replays<'a>,
    ends_in_oom: Option<u64>,
    doubt: Option<Doubt>,
}

impl Predicting<'_> {
    /// Replays the recording with modules recomputed and the other changes applied to the result.
    fn replay_recomputed(&self, change: &Change, config: &AllocConfig) -> Result<Changed, NoPrediction> {
        let Base { trace, device, .. } = self.base;
        let (recomputed, recomputation) = recompute(trace, device, &change.checkpoint)?;
        let recorded = |event: u64| recomputed.source.get(event as usize).map_or(event, |event| trace.number(*event));
        let place = |event: &u64| u64::from(recomputed.event_of(EventId::from_index(*event as usize)).0);
        let cache_flushes: Vec<u64> = self.base.cache_flushes.iter().map(place).collect();
        let source = Source::in_memory(&recomputed.trace);
        let base = Base { trace: &recomputed.trace, cache_flushes: &cache_flushes, ..self.base };
        let ends_in_oom = source.final_oom()?.map(|(event, _)| event);
        let last_uses = LastUses::of(&recomputed.trace, device);
        let bound = Bound::of(self.replays.source, change)?;
        let whole = Predicting { base, replays: Replays::new(&source)?, ends_in_oom, doubt: self.doubt };
        let changed = whole.replay_changed(change, config, bound, last_uses.as_ref())?;
        let mut assumptions = changed.assumptions;
        assumptions.push(recomputation.evidence.assumption().to_owned());
        let in_recorded = |event: EventId| recomputed.source.get(event.0 as usize).copied().unwrap_or(event);
        Ok(Changed {
            source: changed.source.into_iter().map(in_recorded).collect(),
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
        last_uses: Option<&LastUses<'_>>,
    ) -> Result<Changed, Error> {
        let Self { base, replays, ends_in_oom, doubt } = self;
        let (source, device, ends_in_oom) = (replays.source, base.device, *ends_in_oom);
        let BlockChanges { overrides, concerned } = BlockChanges::of(source, change, last_uses)?;
        let changed = concerned.iter().any(|one| one.blocks > 0).then_some(change);
        let overrides = changed.map(|_| overrides.as_slice());
        let reserved_before = source.window_at(None)?.totals(device).reserved;
        let within = |bytes: Option<u64>| {
            let plan = base.plan(config, bytes, overrides);
            // A device smaller than the initial segments could not have had them.
            let overflows = bytes.is_some_and(|bytes| reserved_before > bytes);
            let given = change.capacity.and(bytes).map(|bytes| bytes.saturating_add(bound.outside));
            let device_total = given.or_else(|| recorded_total(base.trace, device));
            let plan = Plan { device_total, reallocates_start: plan.reallocates_start || overflows, ..plan };
            replays.by(&plan, changed, change.note.as_deref())
        };
        let Replayed { recording, source: origins, figures, outcome } = within(bound.bytes)?;
        let ReplayOutcome { death, rescued, mut assumptions, .. } = outcome;
        assumptions.extend(source.allocator(device).assumption().map(str::to_owned));
        let unbounded = death.as_ref().map(|_| within(None)).transpose()?;
        let whole = unbounded.filter(|unbounded| unbounded.outcome.death.is_none()).map(|unbounded| unbounded.figures);
        let live_bytes = whole.as_ref().unwrap_or(&figures).peak_bytes(Metric::Allocated);
        let smallest = || -> Result<Option<u64>, Error> {
            let (too_small, fitting) = match &whole {
                Some(whole) => (bound.bytes, whole),
                None if death.is_none() && !rescued.is_empty() => {
                    let recorded = Bound::recorded(source, device)?;
                    // Only for a larger device and no other change: the recorded one is known to be too small.
                    let is_larger = config == base.recorded && overrides.is_none() && bound.bytes > recorded.bytes;
                    (recorded.bytes.filter(|_| is_larger), &figures)
                }
                None => return Ok(None),
            };
            let too_small = too_small.unwrap_or(0).max(live_bytes.saturating_sub(1));
            let enough = fitting.peak_bytes(Metric::Reserved);
            smallest_that_fits(too_small, enough, |bytes| Ok(within(Some(bytes))?.outcome.death.is_none()))
        };
        let suffices = smallest()?.map(|bytes| bytes.saturating_add(bound.outside));
        let failed = |death: FailedReplayRequest| {
            let event = Some(death.event).filter(|event| source.events().contains(event));
            let moment = source.moment(device, Metric::Reserved, event)?;
            Ok(Failed {
                event: death.event,
                step: moment.step,
                phase: moment.known_phase(),
                requested: death.requested,
                reserved: death.reserved,
                allocated: death.allocated,
                report: death.report,
            })
        };
        Ok(Changed {
            recording,
            source: origins,
            figures,
            alloc_conf: config.to_string(),
            capacity: bound.bytes,
            capacity_from: bound.from,
            oom: death.map(failed).transpose()?,
            rescued,
            ends_in_oom,
            doubt: *doubt,
            suffices,
            live_bytes: live_bytes.saturating_add(bound.outside),
            concerned,
            recomputation: None,
            assumptions,
        })
    }

    fn try_settings(&self) -> Result<Vec<Tried>, Error> {
        let Self { base, replays, ends_in_oom, .. } = self;
        if base.trace.is_state() {
            return Ok(Vec::new());
        }
        let worth_trying = worth_trying(replays.source, base.device)?.into_iter();
        let configs = worth_trying.filter_map(|text| Some((base.recorded.with(&text).ok()?, text)));
        let others: Vec<(AllocConfig, String)> = configs.filter(|(config, _)| config != base.recorded).collect();
        let tried = |(config, asked): &(AllocConfig, String)| {
            let plan = base.plan(config, base.recorded_capacity, None);
            let Replayed { figures, outcome, .. } = replays.by(&plan, None, None)?;
            let oom = outcome.death.map(|death| death.event);
            let gets_past_failure = oom.is_none() && ends_in_oom.is_some_and(|event| outcome.rescued.contains(&event));
            Ok(Tried { asked: asked.clone(), alloc_conf: config.to_string(), figures, oom, gets_past_failure })
        };
        // The replays of a long recording are files of about its size.
        if replays.source.passes().len() > 1 {
            return others.iter().map(tried).collect();
        }
        others.par_iter().map(tried).collect()
    }
}
