//! A training step whose memory use with changes can be measured, by running it again or by replaying its recording.

use std::sync::Arc;

use highwater_analysis::Evidence;
use highwater_analysis::plan::Program;
use highwater_snapshots::{DeviceId, EventId, Trace};

use super::change::{Allowance, Change, Forbidden, Setup};
use super::code::Code;

/// Returns the step of a recording if it can be run again. A rerun is preferred to a replay.
pub type RerunOf = fn(&Arc<Trace>) -> Option<Result<Box<dyn TrainingStep + Send>, String>>;

/// The method by which a plan was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The step was run for this number of steps on a device of the budget's size.
    Rerun(u32),
    /// The changed recording was replayed through the allocator of a device with the budget's size.
    Replayed,
}

/// The part of the run that trials cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The whole run.
    #[default]
    End,
    /// The run up to a request that failed in the recording; later behaviour is unknown.
    FailedRequest,
    /// The recorded part of the run. The text is the reason that the whole run may need more.
    Recorded(String),
}

impl Reach {
    /// Returns the name used in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::End => "end",
            Self::FailedRequest => "failed_request",
            Self::Recorded(_) => "recorded",
        }
    }

    /// Returns the reason that the whole run may need more than the trials show; `None` if the trials cover it, or if a
    /// request failed.
    pub fn doubt(&self) -> Option<&str> {
        match self {
            Self::End | Self::FailedRequest => None,
            Self::Recorded(why) => Some(why),
        }
    }
}

/// A changed recording, with its events mapped to those of the original.
#[derive(Debug)]
pub struct Changed {
    /// The changed recording, up to its end.
    pub trace: Trace,
    /// The recorded event that corresponds to each event of `trace`; non-decreasing.
    pub source: Vec<EventId>,
    /// The recorded event of the failed request at which `trace` ends; `None` if all requests succeed.
    pub failure: Option<EventId>,
}

/// A training step whose memory use with changes can be measured, by running it again or from a recording.
pub trait TrainingStep {
    /// Returns the combinations of changes to try, in any order except that the first has no changes.
    fn combinations(&self, allowed: &[Allowance], forbidden: &[Forbidden]) -> Vec<Vec<Change>>;

    /// Returns the memory use for all sets of recomputed modules, with `changes`.
    ///
    /// # Errors
    /// Returns the reason the memory use is unknown.
    fn model(&self, changes: &[Change]) -> Result<Model, String>;

    /// Runs the step with `setup` on a device of `capacity` bytes; without `capacity`, on a large enough device.
    ///
    /// # Errors
    /// Returns the reason the step cannot be run. Running out of memory is not an error.
    fn trial(&self, setup: &Setup, capacity: Option<u64>) -> Result<Trial, String>;

    /// Returns the recording of the step with `setup`, on a device that is large enough.
    ///
    /// # Errors
    /// Returns the reason no recording can be made.
    fn recording(&self, setup: &Setup) -> Result<Trace, String>;

    /// Returns the changed recording with `setup` on a device of `capacity` bytes, or on a large enough device.
    ///
    /// # Errors
    /// Returns the reason no recording can be made.
    fn changed(&self, setup: &Setup, capacity: Option<u64>) -> Result<Changed, String>;

    /// Returns the code that applies `setup`.
    ///
    /// # Errors
    /// Returns the reason the code is unknown.
    fn code(&self, setup: &Setup) -> Result<Code, String>;

    /// Returns the device whose memory is planned.
    fn device(&self) -> DeviceId;

    /// Returns the method by which trials verify a plan.
    fn proof(&self) -> Proof;

    /// Returns the part of the run that trials cover.
    fn reach(&self) -> Reach {
        Reach::End
    }

    /// Returns the limits of a plan, one sentence each; `as_is` is the trial of the unchanged step.
    fn warnings(&self, as_is: &Trial) -> Vec<String>;

    /// Returns the plan's assumptions about the recorded program, one clause each, without those of its changes.
    fn assumptions(&self, setup: &Setup) -> Vec<String>;

    /// Returns whether the allocator has settings to change.
    fn has_settings(&self) -> bool {
        true
    }

    /// Returns the share of the step's FLOPs that recomputing the module `path` adds; `None` if unknown.
    fn share_of(&self, _path: &str) -> Option<f64> {
        None
    }

    /// Returns whether trials are fast enough to run one for each module.
    fn is_quick(&self) -> bool {
        true
    }

    /// Returns the evidence for predictions of recomputed modules; `None` if the step is run instead.
    fn evidence(&self) -> Option<Evidence> {
        None
    }
}

/// The memory use for any set of recomputed modules.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The paths of the modules that can be recomputed.
    pub modules: Vec<String>,
    /// The linear program of the requested bytes; its choices are the modules. Costs are in units of work.
    pub program: Program,
    /// For each module, the part of its cost that is not work but a penalty, which ranks the module after others; empty
    /// if there are no penalties.
    pub penalties: Vec<u64>,
}

impl Model {
    /// Returns the sum of the penalties of the modules with these `paths`.
    pub(crate) fn penalty<'a>(&self, paths: impl IntoIterator<Item = &'a String>) -> u64 {
        let index = |path: &String| self.modules.iter().position(|module| module == path);
        let of = |path: &String| self.penalties.get(index(path)?).copied();
        paths.into_iter().filter_map(of).fold(0, u64::saturating_add)
    }
}

/// The result of a run or replay of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Whether all requests succeeded.
    pub fits: bool,
    /// The peak of requested bytes.
    pub requested: u64,
    /// The peak of allocated bytes.
    pub allocated: u64,
    /// The peak of reserved bytes.
    pub reserved: u64,
    /// Number of times that all cached memory was released to serve a request.
    pub retries: u64,
    /// The work of a step.
    pub work: Work,
    /// The estimated time of a step in nanoseconds; `None` unless requested.
    pub estimated_ns: Option<u64>,
}

impl Trial {
    /// Runs `step` with `setup` on a device of `capacity` bytes if the step fits, otherwise on a larger device. The
    /// step fits if the reserved memory does not exceed `capacity`, after releasing cached memory if necessary.
    ///
    /// # Errors
    /// Returns the reason the step cannot be run.
    pub fn within(step: &dyn TrainingStep, setup: &Setup, capacity: u64) -> Result<Self, String> {
        let within = step.trial(setup, Some(capacity))?;
        if within.fits { Ok(within) } else { step.trial(setup, None) }
    }
}

/// The work of a training step, counted or estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Number of operations, each of which launches a kernel.
    pub calls: u64,
}

/// Floating-point operations that a GPU performs in the time in which it moves one byte: an A100 performs 312 · 10¹²
/// per second in bf16 and moves 2.0 · 10¹² bytes per second.
const FLOPS_PER_BYTE: u64 = 156;
/// Floating-point operations that a GPU performs in the time of an empty kernel launch, about 4 µs.
const FLOPS_PER_CALL: u64 = 1_248_000_000;

impl Work {
    /// Returns the work as a single number of FLOPs, with bytes and kernel launches converted to FLOPs, to compare the
    /// costs of plans.
    pub fn units(self) -> u64 {
        let moved = self.bytes.saturating_mul(FLOPS_PER_BYTE);
        self.flops.saturating_add(moved).saturating_add(self.calls.saturating_mul(FLOPS_PER_CALL))
    }

    /// Returns the amounts by which this work exceeds `other`; 0 for each that does not.
    pub fn beyond(self, other: Self) -> Self {
        Self {
            flops: self.flops.saturating_sub(other.flops),
            bytes: self.bytes.saturating_sub(other.bytes),
            calls: self.calls.saturating_sub(other.calls),
        }
    }

    /// Returns the FLOPs and bytes of this work as fractions of those of `whole`; `None` where `whole` has none.
    pub fn shares(self, whole: Self) -> [Option<f64>; 2] {
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        [share(self.flops, whole.flops), share(self.bytes, whole.bytes)]
    }
}
