//! Replays a recording up to a failed request, once for each remedy, to determine why the request failed.

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{Before, BlockOverride, DeviceModel, Plan, Replay, Target, recorded_config, replay};
use highwater_analysis::{FailedRequest, LiveGroups, Metric, Series, Source};
use highwater_snapshots::trace::Allocator;
use highwater_snapshots::{BlockId, DeviceId, EventId, StreamId, Subject, Trace};
use rayon::prelude::*;

use super::{Base, follow, recorded_total, worth_trying};
use crate::answers::oom_analysis::{Outcome, Remedy, Trial, Trials};

/// Setting that is tried only if per_process_memory_fraction is below 1, because otherwise the allocator never
/// garbage-collects segments.
const COLLECTING: &str = "garbage_collection_threshold:0.8";
/// Recorded settings that may be the cause of a failure.
const KEYS: [&str; 5] = [
    "expandable_segments",
    "max_split_size_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "per_process_memory_fraction",
];
/// Maximum number of other pools and streams that are tried.
const MAX_HOMES: usize = 4;
/// Resolution of the search for a capacity, in bytes, unless the search would take more than [`MAX_SIZES`] replays.
const CAPACITY_STEP: u64 = 2 << 20;
/// Maximum number of steps of the bisection for a capacity.
const MAX_SIZES: u32 = 8;

/// Replays every remedy for `request`, which failed on `device`.
///
/// # Errors
/// Returns the reason the replays are impossible.
pub(super) fn test(
    trace: &Trace,
    device: DeviceId,
    request: &FailedRequest,
    holders: &LiveGroups,
) -> Result<Trials, String> {
    let has_segments = trace.events.ids().any(|event| {
        trace.events.device[event.0 as usize] == device && matches!(trace.subject(event), Subject::Segment(_))
    });
    if request.allocator == Allocator::Driver {
        return Err("the driver itself served each block, and its placement of blocks is unknown".to_owned());
    }
    if !has_segments && request.homes.is_empty() {
        return Err("the recording has no segments".to_owned());
    }
    let (config, _) = recorded_config(trace.device_facts(device));
    let target = Target {
        event: request.event,
        stream: request.stream.unwrap_or_default(),
        private: None,
        before: Before::Nothing,
    };
    let (unchanged, tie_break) = follow(trace, device, &config, Some(target));
    let capacity = request.reserved.saturating_add(request.device_free);
    let base = Base {
        trace,
        device,
        recorded: &config,
        tie_break,
        cache_flushes: &unchanged.outcome.cache_flushes,
        recorded_capacity: Some(capacity),
    };
    let mut bench = Bench { base, request, target, bound: capacity };
    // At the request itself, the difference can only be its stream, which is not recorded and searched for below.
    let divergence = unchanged.outcome.divergence.map(|divergence| EventId::from_index(divergence.event as usize));
    let divergence = divergence.filter(|event| *event < request.event);
    if let Some(event) = divergence
        && bench.run(&Try::default()) != Outcome::Fails
    {
        return Err(format!(
            "the replay differs from the recording from event {} on, and does not fail there",
            event.0
        ));
    }
    let mut results = bench.find_failure()?;
    let has_limit = !results.is_empty();
    if !has_limit || bench.run(&Try::default()) == Outcome::Fails {
        let tried = bench.remedies(holders).into_par_iter();
        results.par_extend(tried.map(|(remedy, one)| Trial { outcome: bench.run(&one), remedy }));
        results.extend((!has_limit).then(|| bench.more_memory()).flatten());
    }
    Ok(Trials { results, divergence })
}

struct Bench<'a> {
    base: Base<'a>,
    request: &'a FailedRequest,
    target: Target,
    /// Bytes that the allocator may reserve.
    bound: u64,
}

#[derive(Default)]
struct Try {
    config: Option<AllocConfig>,
    /// Additional bytes that the allocator may reserve.
    more: u64,
    before: Before,
    home: Option<(StreamId, Option<(u64, u64)>)>,
    /// Blocks freed immediately before the request.
    freed: Vec<BlockId>,
    is_boundless: bool,
}

impl Bench<'_> {
    /// Searches for conditions under which the replay fails like the recording: another stream, or a lower limit.
    /// Returns the trials that show the failure.
    fn find_failure(&mut self) -> Result<Vec<Trial>, String> {
        match self.run(&Try::default()) {
            Outcome::Fails => return Ok(Vec::new()),
            Outcome::FailsEarlier(event) => {
                return Err(format!("a replay runs out of memory before it, at event {}", event.0));
            }
            Outcome::Met => {}
        }
        let met = |remedy| vec![Trial { remedy, outcome: Outcome::Met }];
        if self.request.from_driver <= self.request.device_free {
            // The limit is between the reserved bytes and the requested total: the lowest possible one is tested.
            self.bound = self.most_reserved();
            return Ok(met(Remedy::NoLimit));
        }
        if !self.request.stream_is_guessed {
            return Ok(met(Remedy::Retry));
        }
        // With a stream on which the request fails, the replay matches the recording.
        let mut streams: Vec<StreamId> = self.request.homes.iter().map(|home| home.stream).collect();
        streams.insert(0, StreamId(0));
        let asked_from = self.target.stream;
        for stream in streams.into_iter().take(MAX_HOMES + 1).filter(|stream| *stream != asked_from) {
            self.target.stream = stream;
            if self.run(&Try::default()) == Outcome::Fails {
                return Ok(Vec::new());
            }
        }
        self.target.stream = asked_from;
        Ok(met(Remedy::Retry))
    }

    /// Returns the maximum of reserved bytes up to the request, in the recording.
    fn most_reserved(&self) -> u64 {
        let series = Series::build(self.base.trace, self.base.device);
        let most = series.largest(self.base.trace, Metric::Reserved, 0..self.target.event.0 as usize);
        most.map_or(0, |(bytes, _)| bytes).max(self.request.reserved)
    }

    /// Returns all remedies except more memory, each with its changes.
    fn remedies(&self, holders: &LiveGroups) -> Vec<(Remedy, Try)> {
        let recorded = self.base.recorded;
        let mut list: Vec<(Remedy, Try)> = Vec::new();
        for key in KEYS {
            let config = recorded.without(key);
            if config != *recorded {
                list.push((Remedy::WithoutSetting(key), Try { config: Some(config), ..Try::default() }));
            }
        }
        let collecting = (recorded.memory_fraction() < 1.0).then(|| COLLECTING.to_owned());
        let source = Source::in_memory(self.base.trace);
        // Reading a recording in memory cannot fail.
        let worth_trying = worth_trying(&source, self.base.device).unwrap_or_default();
        for text in worth_trying.into_iter().chain(collecting) {
            // Recorded settings are tested by leaving them out.
            let is_default = text.split_once(':').is_some_and(|(key, _)| recorded.without(key) == *recorded);
            let config = recorded.with(&text).ok().filter(|config| is_default && config != recorded);
            list.extend(config.map(|config| (Remedy::Settings(text), Try { config: Some(config), ..Try::default() })));
        }
        list.push((Remedy::EmptyCache, Try { before: Before::EmptyCache, ..Try::default() }));
        if self.request.waiting > 0 {
            list.push((Remedy::Synchronize, Try { before: Before::Synchronize, ..Try::default() }));
        }
        let asked_from = (self.target.stream, None);
        let others = self.request.homes.iter().filter(|home| home.pool == self.request.pool);
        for home in others.filter(|home| (home.stream, home.private) != asked_from).take(MAX_HOMES) {
            let of_home = Try { home: Some((home.stream, home.private)), ..Try::default() };
            list.push((Remedy::AskFrom(*home), of_home));
        }
        if let Some(smallest_eviction) = self.request.smallest_eviction() {
            list.push((Remedy::FreeSmallestSet, Try { freed: smallest_eviction.blocks.clone(), ..Try::default() }));
        }
        for (row, holder) in holders.groups.iter().enumerate() {
            list.push((Remedy::FreeHolder(row), Try { freed: holder.blocks.clone(), ..Try::default() }));
        }
        list
    }

    /// Finds a larger device on which the request succeeds; `None` if no size suffices.
    fn more_memory(&self) -> Option<Trial> {
        let is_met = |more: u64| self.run(&Try { more, ..Try::default() }) == Outcome::Met;
        let trial = |more: u64| Trial { remedy: Remedy::MoreMemory(more), outcome: Outcome::Met };
        let up = |bytes: u64| bytes.checked_next_multiple_of(CAPACITY_STEP);
        // The memory that the driver lacked is the minimum that could suffice.
        let in_use = self.request.reserved.saturating_add(self.request.from_driver);
        let mut fails = up(in_use.saturating_sub(self.bound))?;
        if is_met(fails) {
            return Some(trial(fails));
        }
        let boundless = self.replay(&Try { is_boundless: true, ..Try::default() });
        if self.outcome(&boundless) != Outcome::Met {
            return None;
        }
        let series = Series::build(&boundless.trace, self.base.device);
        let (peak, _) = series.peak(&boundless.trace, Metric::Reserved);
        let mut met = up(peak.saturating_sub(self.bound))?;
        if !is_met(met) {
            return None;
        }
        for _ in 0..MAX_SIZES {
            let middle = up(fails + met.saturating_sub(fails) / 2)?;
            if middle <= fails || middle >= met {
                break;
            }
            if is_met(middle) { met = middle } else { fails = middle }
        }
        Some(trial(met))
    }

    fn run(&self, one: &Try) -> Outcome {
        self.outcome(&self.replay(one))
    }

    fn outcome(&self, replay: &Replay) -> Outcome {
        let target = u64::from(self.target.event.0);
        match &replay.outcome.death {
            Some(death) if death.event < target => Outcome::FailsEarlier(EventId::from_index(death.event as usize)),
            None if replay.outcome.rescued.last() == Some(&target) => Outcome::Met,
            _ => Outcome::Fails,
        }
    }

    fn replay(&self, one: &Try) -> Replay {
        let (stream, private) = one.home.unwrap_or((self.target.stream, self.target.private));
        let target = Target { stream, private, before: one.before, ..self.target };
        let overrides = (!one.freed.is_empty()).then(|| self.freed_before(&one.freed));
        let bound = (!one.is_boundless).then(|| self.bound.saturating_add(one.more));
        let config = one.config.as_ref().unwrap_or(self.base.recorded);
        let total = recorded_total(self.base.trace, self.base.device).map(|total| total.saturating_add(one.more));
        let plan =
            Plan { target: Some(target), device_total: total, ..self.base.plan(config, bound, overrides.as_deref()) };
        debug_assert!(matches!(plan.answers, DeviceModel::Modelled(_)), "the replay does not model the device");
        replay(self.base.trace, &plan)
    }

    fn freed_before(&self, blocks: &[BlockId]) -> Vec<BlockOverride> {
        let mut overrides = vec![BlockOverride::default(); self.base.trace.blocks.len()];
        let before = EventId(self.target.event.0.saturating_sub(1));
        for block in blocks {
            overrides[block.0 as usize].ends_after = before;
        }
        overrides
    }
}
