//! Analysis of a failed request: the largest users of the device's memory, and which changes would have let it succeed,
//! tested by replay.

use highwater_analysis::addresses::Verdict;
use highwater_analysis::{FailedRequest, GroupKey, LiveGroups, LiveIndex, Metric, PoolAndStream};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{
    BlockId, DeviceId, EventId, Phase, count_of, format_bytes, format_count, format_required_bytes,
};

use super::request_failure::unfinished_state;

const TOP_HOLDERS: usize = 5;
const TOP_EVICTED: usize = 8;

/// Percentage of the device that live blocks must fill for the success of a single request to mean little.
const FULL_PERCENT: u64 = 97;

/// Returns the percentage of a device of `all` bytes that live blocks fill; `None` below [`FULL_PERCENT`], or if `all`
/// is 0.
pub(crate) fn full_percent(allocated: u64, all: u64) -> Option<u64> {
    allocated.saturating_mul(100).checked_div(all).filter(|percent| *percent >= FULL_PERCENT)
}

/// A change that may let a failed request succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The limit is removed, so that all memory that the driver reported as free may be used.
    NoLimit,
    /// The same request is made again, with no other change.
    Retry,
    /// The allocator first waits for the streams that use freed blocks.
    Synchronize,
    /// The request is served from free ranges of this pool and stream instead.
    AskFrom(PoolAndStream),
    /// Other allocator settings, in addition to the recorded ones.
    Settings(String),
    /// The recorded settings without this one.
    WithoutSetting(&'static str),
    /// The cache is emptied first.
    EmptyCache,
    /// The blocks in [`OomAnalysis::smallest_eviction`] are freed first.
    FreeSmallestSet,
    /// All blocks of one group of [`OomAnalysis::holders`] are freed first. Contains the index of the group.
    FreeHolder(usize),
    /// The device has this many bytes more.
    MoreMemory(u64),
}

/// The outcome of a request in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request succeeds.
    Met,
    /// The request fails.
    Fails,
    /// An earlier request, at this event, fails in the replay.
    FailsEarlier(EventId),
}

/// A remedy and its outcome in a replay up to the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The change made in the replay.
    pub remedy: Remedy,
    /// The outcome of the request in the replay.
    pub outcome: Outcome,
}

/// The results of all replays up to a failed request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// The outcome of each remedy that was tested.
    pub results: Vec<Trial>,
    /// The first event before the request at which the unchanged replay differs from the recording; `None` if there is
    /// none.
    pub divergence: Option<EventId>,
}

impl Trials {
    fn met(&self) -> impl Iterator<Item = &Remedy> {
        self.results.iter().filter(|trial| trial.outcome == Outcome::Met).map(|trial| &trial.remedy)
    }

    /// Returns a phrase for a list of results if the unchanged replay differs from the recording; otherwise empty.
    fn in_replay(&self) -> &'static str {
        if self.divergence.is_some() { " in that replay" } else { "" }
    }

    /// Returns the outcome of freeing the blocks of group `row`; `None` if that was not tested.
    pub fn of_holder(&self, row: usize) -> Option<Outcome> {
        let is_it = |trial: &&Trial| trial.remedy == Remedy::FreeHolder(row);
        self.results.iter().find(is_it).map(|trial| trial.outcome)
    }

    /// Returns the first cause, in a fixed order, that a successful remedy confirms. `None` if there is none, or if the
    /// unchanged replay differs from the recording.
    fn cause(&self) -> Option<Verdict> {
        if self.divergence.is_some() {
            return None;
        }
        let of = |remedy: &Remedy| match remedy {
            Remedy::NoLimit | Remedy::WithoutSetting("per_process_memory_fraction") => Some((0, Verdict::Limit)),
            Remedy::Retry => Some((1, Verdict::Transient)),
            Remedy::Synchronize => Some((2, Verdict::Waiting)),
            Remedy::AskFrom(_) => Some((3, Verdict::Elsewhere)),
            Remedy::WithoutSetting("roundup_power2_divisions") => Some((4, Verdict::Rounding)),
            Remedy::Settings(_) | Remedy::WithoutSetting(_) | Remedy::EmptyCache => Some((5, Verdict::Fragmentation)),
            Remedy::MoreMemory(_) => Some((6, Verdict::Capacity)),
            Remedy::FreeSmallestSet | Remedy::FreeHolder(_) => None,
        };
        self.met().filter_map(of).min_by_key(|(rank, _)| *rank).map(|(_, cause)| cause)
    }
}

/// A failed request, the largest users of the device's memory, and which changes would have let the request succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomAnalysis {
    /// The request, with the sizes involved.
    pub request: FailedRequest,
    /// The device that was out of memory.
    pub device: DeviceId,
    /// The training step of the request; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the request.
    pub phase: Phase,
    /// The groups of live blocks with the most bytes.
    pub holders: LiveGroups,
    /// The live blocks of [`FailedRequest::smallest_eviction`], grouped by the same keys.
    pub smallest_eviction: Option<LiveGroups>,
    /// The optimizer state, if the request was for more of it.
    pub state: Option<String>,
    /// The results of the replays, or the reason that no replay was possible.
    pub trials: Result<Trials, String>,
    /// Whether PyTorch made the recording, so that advice on settings names its environment variable.
    pub is_pytorch: bool,
    /// Number of events of the recording before the first event of the trace.
    pub events_before: u64,
}

impl OomAnalysis {
    /// Analyses `request` on `device`. `test` replays the remedies for the request.
    pub fn of(
        trace: &Trace,
        (device, live): (DeviceId, &LiveIndex),
        request: FailedRequest,
        test: impl FnOnce(&FailedRequest, &LiveGroups) -> Result<Trials, String>,
    ) -> Self {
        let row = request.event.0 as usize;
        let blocks = live.before_position(trace, Metric::Allocated, row);
        let keys = holder_keys(trace, &blocks);
        let holders = LiveGroups::of(trace, &blocks, &keys, TOP_HOLDERS);
        let smallest_eviction = request
            .smallest_eviction()
            .map(|smallest_eviction| LiveGroups::of(trace, &smallest_eviction.blocks, &keys, TOP_EVICTED));
        let (step, phase) = trace.spans.at(request.event).map_or((None, Phase::Setup), |span| (span.step, span.phase));
        let state = unfinished_state(trace, live, request.event);
        let trials = test(&request, &holders);
        let is_pytorch = trace.header.recorder.starts_with("PyTorch");
        let events_before = trace.start.events;
        Self { request, device, step, phase, holders, smallest_eviction, state, trials, is_pytorch, events_before }
    }

    /// Returns the index of `event` in the whole recording.
    pub fn number(&self, event: EventId) -> u64 {
        self.events_before + u64::from(event.0)
    }

    /// Returns the cause confirmed by a replay, otherwise the suspected one.
    pub fn cause(&self) -> Verdict {
        self.trials.as_ref().ok().and_then(Trials::cause).unwrap_or(self.request.suspected)
    }

    /// Returns whether a replay that matches the recording up to the request confirms the cause.
    pub fn is_tested(&self) -> bool {
        self.trials.as_ref().is_ok_and(|trials| trials.cause().is_some())
    }

    /// Formats the use of the device's memory, such as `2.96 GiB of 4 GiB allocated in live blocks`.
    pub fn fill(&self) -> String {
        let [allocated, all] = [self.request.allocated, self.request.device_memory().bytes].map(format_bytes);
        format!("{allocated} of {all} allocated in live blocks")
    }

    /// Formats the operation and module that made the request, such as ` by matmul of net.fc`; empty if unknown.
    pub fn by(&self) -> String {
        let FailedRequest { op, scope, .. } = &self.request;
        match (op.is_empty(), scope.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!(" by {op}"),
            (true, false) => format!(" in {scope}"),
            (false, false) => format!(" by {op} of {scope}"),
        }
    }

    fn full_percent(&self) -> Option<u64> {
        full_percent(self.request.allocated, self.request.device_memory().bytes)
    }

    pub(crate) fn verdict_text(&self) -> String {
        let cause = match (self.cause(), self.full_percent()) {
            (Verdict::Capacity, _) => "the device is too small".to_owned(),
            (Verdict::Fragmentation, Some(percent)) => {
                format!("the device is full ({percent}% in live blocks); fragmentation made this request fail first")
            }
            (cause, _) => cause.name().to_owned(),
        };
        let certainty = if self.is_tested() { "Cause (confirmed by replay)" } else { "Probable cause" };
        format!("{certainty}: {cause}")
    }

    /// Returns the cause and its certainty, as a sentence.
    pub fn cause_text(&self) -> String {
        let verdict = self.verdict_text();
        match &self.trials {
            Ok(_) if self.is_tested() => format!("{verdict}."),
            Ok(Trials { divergence: Some(event), .. }) => {
                let event = format_count(self.number(*event));
                format!("{verdict}. The replay differs from the recording from event {event} on.")
            }
            Ok(_) => format!("{verdict}. No remedy that was tried lets the request succeed in a replay."),
            Err(why) => format!("{verdict}. Not tested: {why}."),
        }
    }

    /// Returns why the cause is likely, as a sentence.
    pub fn reason_text(&self) -> String {
        format!("Why: {}.", self.reason())
    }

    fn reason(&self) -> String {
        let request = &self.request;
        if self.cause() == request.suspected {
            return request.reason.clone();
        }
        let free = format!(
            "{} is free in segments and {} on the device",
            format_bytes(request.free_in_pool + request.free_elsewhere),
            format_bytes(request.device_free)
        );
        let largest = format_bytes(request.holes.first().map_or(0, |hole| hole.bytes));
        let is_too_small = self.cause() == Verdict::Capacity && self.fails_with_expandable_segments();
        let even = if is_too_small { "even with expandable segments the request fails: " } else { "" };
        format!("{even}{free}, and the largest free range is {largest}")
    }

    fn fails_with_expandable_segments(&self) -> bool {
        let is_it = |remedy: &Remedy| matches!(remedy, Remedy::Settings(text) if text == "expandable_segments:True");
        let trials = self.trials.as_ref().map_or(&[][..], |trials| trials.results.as_slice());
        trials.iter().any(|trial| is_it(&trial.remedy) && trial.outcome != Outcome::Met)
    }

    /// Returns the optimizer state that the request left unfinished, as a sentence; `None` if there is none.
    pub fn state_text(&self) -> Option<String> {
        self.state.as_ref().map(|state| format!("{state}."))
    }

    /// Returns a sentence with the changes that let the request succeed, the easiest first; `None` if no change helps
    /// or none was tested. For a PyTorch recording, includes the environment variable for the first settings.
    pub fn helps(&self) -> Option<String> {
        let trials = self.trials.as_ref().ok()?;
        let mut met: Vec<&Remedy> = trials.met().filter(|remedy| is_listed(remedy)).collect();
        met.sort_by_key(|remedy| effort(remedy));
        let mut listed = self.names(&met);
        let settings = met.iter().find(|one| matches!(one, Remedy::Settings(_))).filter(|_| self.is_pytorch);
        let first = settings.and_then(|one| listed.iter_mut().find(|name| name.starts_with(&self.name(one))));
        first.into_iter().for_each(|name| name.insert_str(0, "PYTORCH_CUDA_ALLOC_CONF="));
        let next = self.full_percent().map_or_else(String::new, |percent| {
            format!(" Live blocks fill {percent}% of the device: later requests may still fail.")
        });
        (!listed.is_empty())
            .then(|| format!("Would have let the request succeed{}: {}.{next}", trials.in_replay(), listed.join("; ")))
    }

    /// Returns a sentence with the tested remedies that do not let the request succeed; `None` if there are none.
    pub fn does_not_help(&self) -> Option<String> {
        let trials = self.trials.as_ref().ok()?;
        let failed = trials.results.iter().filter(|trial| trial.outcome != Outcome::Met && is_listed(&trial.remedy));
        let listed = self.names(&failed.map(|trial| &trial.remedy).collect::<Vec<_>>());
        (!listed.is_empty()).then(|| format!("Would not have helped{}: {}.", trials.in_replay(), listed.join("; ")))
    }

    /// Returns remedies as noun phrases. Several values of one setting are combined, such as `max_split_size_mb:512 (or
    /// 128)`.
    fn names(&self, remedies: &[&Remedy]) -> Vec<String> {
        let key = |remedy: &Remedy| match remedy {
            Remedy::Settings(text) => text.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned())),
            _ => None,
        };
        let is_same = |one: &&Remedy, other: &&Remedy| match (key(one), key(other)) {
            (Some((one, _)), Some((other, _))) => one == other,
            _ => false,
        };
        let named = |alike: &[&Remedy]| {
            let others: Vec<String> = alike[1..].iter().filter_map(|one| Some(key(one)?.1)).collect();
            let or = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
            format!("{}{or}", self.name(alike[0]))
        };
        remedies.chunk_by(is_same).map(named).collect()
    }

    /// Returns a remedy as a noun phrase.
    pub fn name(&self, remedy: &Remedy) -> String {
        match remedy {
            Remedy::NoLimit => {
                format!("a higher limit ({} was free on the device)", format_bytes(self.request.device_free))
            }
            Remedy::Retry => "retrying the request".to_owned(),
            Remedy::Synchronize => "waiting for the other streams first".to_owned(),
            Remedy::AskFrom(home) => format!("the free memory of the {}", home.text()),
            Remedy::Settings(text) => text.clone(),
            Remedy::WithoutSetting(key) => format!("no {key}"),
            Remedy::EmptyCache => "emptying the cache first".to_owned(),
            Remedy::FreeSmallestSet => self.free_smallest_set(),
            Remedy::FreeHolder(row) => self
                .holders
                .groups
                .get(*row)
                .map_or_else(String::new, |group| format!("freeing {}", group.key.join(" "))),
            Remedy::MoreMemory(bytes) => {
                let all = self.request.device_memory().bytes.saturating_add(*bytes);
                let [bytes, all] = [*bytes, all].map(format_required_bytes);
                format!("{bytes} more device memory ({all} in all)")
            }
        }
    }

    fn free_smallest_set(&self) -> String {
        let Some(smallest_eviction) = self.request.smallest_eviction() else { return String::new() };
        let blocks = count_of(smallest_eviction.blocks.len() as u64, "block");
        format!("freeing {} in {blocks} first (listed below)", format_bytes(smallest_eviction.bytes))
    }

    /// Returns the sentence above the list of blocks to free; `None` if there is no list.
    pub fn eviction_text(&self) -> Option<String> {
        let smallest_eviction = self.request.smallest_eviction()?;
        let count = smallest_eviction.blocks.len() as u64;
        let what = match (smallest_eviction.is_smallest, count) {
            (_, 1) => "The smallest live block to free".to_owned(),
            (true, _) => "Smallest set of live blocks to free".to_owned(),
            (false, _) => "Live blocks to free".to_owned(),
        };
        let tested = match self.eviction_outcome() {
            Some(Outcome::Met) => ", and the request succeeds in a replay",
            Some(_) => ", but the request still fails in a replay",
            None => "",
        };
        let (blocks, them) =
            if count == 1 { (String::new(), "it") } else { (format!(" in {} blocks", format_count(count)), "them") };
        let (bytes, freed) = (format_bytes(smallest_eviction.bytes), &smallest_eviction.freed);
        Some(format!("{what}: {bytes}{blocks}. Without {them}, {freed}{tested}."))
    }

    fn eviction_outcome(&self) -> Option<Outcome> {
        let trials = self.trials.as_ref().ok()?;
        trials.results.iter().find(|trial| trial.remedy == Remedy::FreeSmallestSet).map(|trial| trial.outcome)
    }
}

/// Returns the rank of a remedy by its effort; the easiest has the lowest.
fn effort(remedy: &Remedy) -> u8 {
    match remedy {
        Remedy::NoLimit | Remedy::Settings(_) | Remedy::WithoutSetting(_) => 0,
        Remedy::MoreMemory(_) => 1,
        Remedy::Retry | Remedy::Synchronize | Remedy::AskFrom(_) | Remedy::EmptyCache => 2,
        Remedy::FreeSmallestSet | Remedy::FreeHolder(_) => 3,
    }
}

/// The outcomes of freeing groups are shown in their table instead.
fn is_listed(remedy: &Remedy) -> bool {
    !matches!(remedy, Remedy::FreeHolder(_))
}

/// Returns the keys for grouping blocks: the category, and the module if allocation tags mark the steps and phases,
/// otherwise the first that is recorded of source line, module and operation.
fn holder_keys(trace: &Trace, blocks: &[BlockId]) -> Vec<GroupKey> {
    let with_stack = blocks.iter().filter(|id| trace.blocks.stack[id.0 as usize].is_some()).count();
    let second = match () {
        () if trace.spans.are_tagged() => Some(GroupKey::Scope),
        () if with_stack > 0 => Some(GroupKey::Frame),
        () if !trace.tables.scopes.is_empty() => Some(GroupKey::Scope),
        () if !trace.tables.ops.is_empty() => Some(GroupKey::Op),
        () => None,
    };
    std::iter::once(GroupKey::Category).chain(second).collect()
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;
    use crate::Recording;
    use crate::answers::request_failure::RequestFailure;

    #[test]
    fn a_full_device_is_named_before_fragmentation() {
        let text = "segment_alloc 0x0 105906176 large\nalloc a 50331648\nalloc h 1572864\nalloc b 50331648\n\
                    alloc i 1572864\nalloc c 2097152\nfree h\nfree i\noom 2097152 free=0";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let (trace, index) = (&recording.trace, &recording.devices[0]);
        let event = RequestFailure::all(trace, DeviceId(0)).next().unwrap().event;
        let request = FailedRequest::of(trace, index.addresses(trace), &index.live, &index.series, event).unwrap();
        let test = |_: &FailedRequest, _: &LiveGroups| Err("no replay".to_owned());
        let case = OomAnalysis::of(trace, (DeviceId(0), &index.live), request, test);
        let text =
            "Probable cause: the device is full (97% in live blocks); fragmentation made this request fail first";
        assert_eq!(case.verdict_text(), text);
    }
}
