//! What-if questions and their results: a change to a recording, and the replay with it.

use std::ops::ControlFlow;
use std::str::FromStr;

use highwater_analysis::{DeviceSummary, Doubt, Filter, Metric, Source};
use highwater_snapshots::{DeviceId, EventId, Phase, Result, ScopePattern, format_bytes, parse_bytes};

use crate::answers::recomputation::Recomputation;
use crate::answers::request_failure::RequestFailure;

/// Memory sizes of common devices, ascending, and devices that have them.
pub const DEVICE_SIZES: [(&str, &str); 9] = [
    ("8GiB", "Such as an RTX 3070 or 4060."),
    ("12GiB", "Such as an RTX 3060 or 4070."),
    ("16GiB", "Such as a T4, a V100 or an RTX 4080."),
    ("24GiB", "Such as an RTX 3090 or 4090, an A10 or an L4."),
    ("32GiB", "Such as an RTX 5090 or a V100."),
    ("40GiB", "Such as an A100."),
    ("48GiB", "Such as an A6000 or an L40S."),
    ("80GiB", "Such as an A100 or an H100."),
    ("141GiB", "Such as an H200."),
];

/// Returns a device size to suggest for a what-if replay: the largest common size between the peaks of allocated and of
/// reserved memory; for a recording that ends in an out-of-memory error, the smallest one above its device's size, or
/// above the peak of reserved memory if that size is unknown. `None` if no common size qualifies.
pub fn suggested_capacity(prediction: &Prediction) -> Option<&'static str> {
    let [allocated, reserved] = [Metric::Allocated, Metric::Reserved].map(|one| prediction.measured.peak_bytes(one));
    let mut sizes = DEVICE_SIZES.iter().filter_map(|(size, _)| Some((*size, parse_bytes(size).ok()?)));
    if prediction.ends_in_oom.is_none() {
        return sizes.rfind(|(_, bytes)| (allocated..reserved).contains(bytes)).map(|(size, _)| size);
    }
    let device = prediction.measured.summary.capacity_bytes;
    // A device sold as 40 GiB reports a little less.
    let is_larger = |bytes: u64| bytes - bytes / 16 > device.max(reserved);
    sizes.find(|(_, bytes)| is_larger(*bytes)).map(|(size, _)| size)
}

/// A share of a block's size, such as one half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePart {
    /// The numerator of the fraction.
    pub numerator: u32,
    /// The denominator; not 0.
    pub denominator: u32,
}

impl FromStr for SizePart {
    type Err = String;

    /// Parses `1/2`, `0.25` or `50%`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mistake = || format!("invalid part of a size '{text}': write 1/2, 0.5 or 50%");
        let text = text.trim();
        if let Some((over, under)) = text.split_once('/') {
            let numbers = (over.trim().parse(), under.trim().parse());
            return match numbers {
                (Ok(numerator), Ok(denominator)) if denominator > 0 => Ok(Self { numerator, denominator }),
                _ => Err(mistake()),
            };
        }
        let (digits, scale) = text.strip_suffix('%').map_or((text, 1), |digits| (digits.trim(), 100));
        let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
        let denominator = u32::try_from(rest.len()).ok().and_then(|places| 10_u32.checked_pow(places));
        let denominator = denominator.and_then(|tens| tens.checked_mul(scale)).ok_or_else(mistake)?;
        let is_plain = !digits.is_empty() && (whole.to_owned() + rest).chars().all(|c| c.is_ascii_digit());
        let numerator = (whole.to_owned() + rest).parse().ok().filter(|_| is_plain).ok_or_else(mistake)?;
        Ok(Self { numerator, denominator })
    }
}

impl SizePart {
    /// Formats the share in lowest terms, such as `1/2`.
    fn text(self) -> String {
        let (mut divisor, mut rest) = (self.numerator, self.denominator);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let divisor = divisor.max(1);
        match (self.numerator / divisor, self.denominator / divisor) {
            (whole, 1) => whole.to_string(),
            (numerator, denominator) => format!("{numerator}/{denominator}"),
        }
    }
}

/// A change to apply to a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The device to replay.
    pub device: DeviceId,
    /// Allocator settings. They are added to the recorded settings, or to the defaults if they start with `default`.
    /// `None` for the recorded settings alone.
    pub alloc_conf: Option<String>,
    /// The size of the device in bytes; `None` for the recorded one.
    pub capacity: Option<u64>,
    /// Blocks that match any of these filters are never allocated.
    pub without: Vec<Filter>,
    /// Blocks that match any of these filters are freed right after their last use.
    pub until_last_use: Vec<Filter>,
    /// Blocks whose sizes are scaled; the first matching filter applies.
    pub scale: Vec<(SizePart, Filter)>,
    /// Modules whose paths match any of these patterns are recomputed in backward.
    pub checkpoint: Vec<ScopePattern>,
    /// A note to add to the changed recording.
    pub note: Option<String>,
}

impl Change {
    pub(crate) fn changes_anything(&self) -> bool {
        self.alloc_conf.is_some() || self.capacity.is_some() || self.changes_blocks()
    }

    pub(crate) fn changes_blocks(&self) -> bool {
        !self.without.is_empty()
            || !self.until_last_use.is_empty()
            || !self.scale.is_empty()
            || !self.checkpoint.is_empty()
    }

    /// Returns whether the change depends on the whole lifetime of blocks, so that the recording must be in memory.
    pub fn follows_blocks(&self) -> bool {
        let mut filters = self.without.iter().chain(self.scale.iter().map(|(_, filter)| filter));
        let asks_for_lifetimes = filters.any(Filter::asks_for_lifetimes);
        asks_for_lifetimes || !self.until_last_use.is_empty() || !self.checkpoint.is_empty()
    }
}

/// Describes a change by the values of its options: settings, bytes of memory, modules to recompute, and conditions for
/// blocks to omit, to free after their last use, and to scale.
pub fn in_words(
    alloc_conf: Option<&str>,
    capacity: Option<u64>,
    checkpoint: &[ScopePattern],
    [without, until_last_use]: [&[&str]; 2],
    scale: &[(SizePart, &str)],
) -> String {
    let mut parts: Vec<String> = alloc_conf.map(|conf| conf.trim().to_owned()).into_iter().collect();
    parts.extend(capacity.map(|bytes| format!("{} of memory", format_bytes(bytes))));
    if !checkpoint.is_empty() {
        let patterns: Vec<String> = checkpoint.iter().map(ToString::to_string).collect();
        parts.push(format!("{} recomputed", patterns.join(" and ")));
    }
    let listed = |all: &[&str]| all.iter().map(|one| one.trim()).collect::<Vec<_>>().join(" or ");
    if !without.is_empty() {
        parts.push(format!("without {}", listed(without)));
    }
    if !until_last_use.is_empty() {
        parts.push(format!("{} freed after the last use", listed(until_last_use)));
    }
    let scaled = |(part, filter): &(SizePart, &str)| format!("{} scaled to {}", filter.trim(), part.text());
    parts.extend(scale.iter().map(scaled));
    parts.join(", ")
}

/// Totals and peaks of a recording, measured or replayed.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The device's peaks, its totals at the end, and its event counts.
    pub summary: DeviceSummary,
    /// The index of the event of the first failed request; `None` if none fails.
    pub failure: Option<u64>,
}

impl Figures {
    /// Returns the figures of `device`.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn of(source: &Source<'_>, device: DeviceId) -> Result<Self> {
        let failure = RequestFailure::first(source, device, 1)?.first().map(|failure| failure.number);
        let summary = DeviceSummary::of(source, device, &mut |_| ControlFlow::Continue(()))?;
        Ok(Self { summary, failure })
    }

    /// Returns the bytes of the peak of `metric`; 0 if it was not sampled.
    pub fn peak_bytes(&self, metric: Metric) -> u64 {
        self.summary.peak(metric).map_or(0, |peak| peak.bytes)
    }

    /// Returns the peak of reserved bytes minus the peak of active bytes: the cost of rounding to segments,
    /// fragmentation and caching.
    pub fn reserved_beyond_active(&self) -> u64 {
        self.peak_bytes(Metric::Reserved).saturating_sub(self.peak_bytes(Metric::Active))
    }
}

/// Totals and peaks of the replay without changes.
#[derive(Clone, Debug)]
pub struct Unchanged {
    /// The totals and peaks.
    pub figures: Figures,
    /// The first difference from the recording; `None` if there is none.
    pub divergence: Option<Deviation>,
    /// Whether ties between free ranges of equal size were broken by the lowest address, as in PyTorch until about
    /// version 2.6, rather than by the oldest segment.
    pub takes_lowest_address: bool,
    /// Assumptions about facts that are not recorded.
    pub assumptions: Vec<String>,
    /// Known reasons for possible differences.
    pub causes: Vec<String>,
}

/// A difference of a replay from its recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The index of the first event that differs.
    pub event: u64,
    /// The difference, as a sentence.
    pub text: String,
    /// The maximum difference of reserved bytes after any event.
    pub largest_bytes: u64,
    /// Number of blocks that have another address in the replay.
    pub placed_elsewhere: u64,
}

/// The blocks affected by a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Number of blocks affected.
    pub blocks: u64,
    /// Sum of the requested bytes of these blocks.
    pub bytes: u64,
}

/// The result of a replay with a change.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The changed recording.
    pub recording: Source<'static>,
    /// The recorded event that corresponds to each event of the changed recording; empty if that is not in memory.
    pub source: Vec<EventId>,
    /// The totals and peaks up to the end of the replay.
    pub figures: Figures,
    /// The resulting allocator settings in canonical form; empty for the defaults.
    pub alloc_conf: String,
    /// Bytes that the allocator could reserve; `None` if unlimited.
    pub capacity: Option<u64>,
    /// The source of the capacity, as text.
    pub capacity_from: String,
    /// The request that fails in the replay; `None` if all requests succeed.
    pub oom: Option<Failed>,
    /// The indices of the events whose requests fail in the recording but succeed in the replay.
    pub rescued: Vec<u64>,
    /// The event index of the failed request with which the recording ends, on any device, since later requests are
    /// unknown; `None` if the recording ends otherwise.
    pub ends_in_oom: Option<u64>,
    /// The reason that the run may need more than the recording shows, apart from failed requests; `None` if there is
    /// none.
    pub doubt: Option<Doubt>,
    /// The size of a device that suffices for every recorded request, the smallest one found by replays. `None` if no
    /// size suffices. Searched only if a request fails in this replay, or if a request that failed in the recording
    /// succeeds; otherwise also `None`.
    pub suffices: Option<u64>,
    /// Maximum bytes in live blocks and in use by other processes: a lower bound for the memory that the recorded
    /// requests need.
    pub live_bytes: u64,
    /// The blocks that are omitted, freed earlier, and scaled, in this order.
    pub concerned: [Concerned; 3],
    /// The modules that are recomputed; `None` if the change recomputes none.
    pub recomputation: Option<Recomputation>,
    /// Assumptions about facts that are not recorded.
    pub assumptions: Vec<String>,
}

impl Changed {
    /// Returns whether the program fits; `None` if the recording may not show everything that the program needs, or if
    /// a request succeeds that failed in the recording, since the program would then have continued differently.
    pub fn fits(&self) -> Option<bool> {
        let is_whole = self.ends_in_oom.is_none() && self.rescued.is_empty() && self.doubt.is_none();
        match self.oom {
            Some(_) => Some(false),
            None => is_whole.then_some(true),
        }
    }
}

/// A request that fails in a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The index of the recorded event of the request.
    pub event: u64,
    /// The training step of the request; `None` outside all steps.
    pub step: Option<u32>,
    /// The phase of the request; `None` if the recording has no phases.
    pub phase: Option<Phase>,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes reserved from the device at that time.
    pub reserved: u64,
    /// Bytes in live blocks at that time.
    pub allocated: u64,
    /// The error message that the program would get from the allocator.
    pub report: String,
}

/// Settings that are tried if no change was given, and the result of their replay.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The settings that are added to the recorded ones.
    pub asked: String,
    /// The resulting settings in canonical form; empty for the defaults.
    pub alloc_conf: String,
    /// The figures of the replay with these settings.
    pub figures: Figures,
    /// The event index of the request that fails; `None` if all succeed.
    pub oom: Option<u64>,
    /// Whether the request with which the recording ends succeeds with these settings: later requests are unknown.
    pub gets_past_failure: bool,
}

/// The report of `highwater whatif`: the recorded figures, and those of replays with and without changes.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The replayed device.
    pub device: DeviceId,
    /// The totals and peaks as recorded.
    pub measured: Figures,
    /// The recorded settings in canonical form; empty for the defaults.
    pub recorded_conf: String,
    /// The event index of the failed request with which the recording ends, on any device; `None` if it ends otherwise.
    pub ends_in_oom: Option<u64>,
    /// The replay without changes.
    pub unchanged: Unchanged,
    /// The replay with the change, if there is one.
    pub changed: Option<Changed>,
    /// The replays with settings that may lower the peak; empty if a change was given, or without such settings.
    pub tried: Vec<Tried>,
}

#[cfg(test)]
mod tests {
    use highwater_analysis::final_oom::final_oom;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::trace::DeviceFacts;

    use super::*;

    /// Returns the suggested capacity for a recording in the text notation, on a device of `capacity` GiB.
    fn suggested(text: &str, capacity: u64) -> Option<&'static str> {
        let facts = DeviceFacts { capacity_bytes: capacity << 30, ..DeviceFacts::default() };
        let trace = trace_from_text(text).expect("the text is a trace").edited(|trace| trace.devices = vec![facts]);
        let measured = Figures::of(&Source::in_memory(&trace), DeviceId(0)).unwrap();
        let unchanged = Unchanged {
            figures: measured.clone(),
            divergence: None,
            takes_lowest_address: false,
            assumptions: Vec::new(),
            causes: Vec::new(),
        };
        let prediction = Prediction {
            device: DeviceId(0),
            measured,
            recorded_conf: String::new(),
            ends_in_oom: final_oom(&trace).map(|event| trace.number(event)),
            unchanged,
            changed: None,
            tried: Vec::new(),
        };
        suggested_capacity(&prediction)
    }

    #[test]
    fn the_next_smaller_device_is_suggested_and_after_an_oom_the_next_larger() {
        let reserved = |gibibytes: u64| format!("segment_alloc 0x0 {}\n", gibibytes << 30);
        assert_eq!(suggested(&reserved(45), 80), Some("40GiB"));
        assert_eq!(suggested(&reserved(24), 80), Some("16GiB"), "24 GiB is what it was");
        assert_eq!(suggested(&reserved(7), 80), None, "no common device is smaller");
        let failed = |gibibytes: u64| format!("{}oom 1073741824 free=0\n", reserved(gibibytes));
        assert_eq!(suggested(&failed(23), 24), Some("32GiB"));
        assert_eq!(suggested(&failed(30), 0), Some("40GiB"), "by what was reserved");
        assert_eq!(suggested(&failed(139), 141), None, "no common device is larger");
    }

    #[test]
    fn parts_are_read_as_fractions_decimals_and_percents() {
        let part = |text: &str| text.parse::<SizePart>().map(|part| (part.numerator, part.denominator));
        assert_eq!(part("1/2"), Ok((1, 2)));
        assert_eq!(part("0.25"), Ok((25, 100)));
        assert_eq!(part("12.5%"), Ok((125, 1000)));
        assert_eq!(part("2"), Ok((2, 1)));
        for text in ["", "x", "1/0", "-1", ".", "0.x", "1/", "%", "1.0000000000001"] {
            assert!(part(text).is_err_and(|why| why.contains("1/2")), "{text}");
        }
    }
}
