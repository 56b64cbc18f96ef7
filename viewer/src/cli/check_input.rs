//! A recording to check against budgets, in memory or read in parts, and its devices.

use std::path::{Path, PathBuf};

use highwater_analysis::budget::{Budget, Checked};
use highwater_analysis::diff::Asked;
use highwater_analysis::final_oom::final_oom;
use highwater_analysis::long::{Parts, final_oom as final_oom_in_parts};
use highwater_analysis::{LiveIndex, Metric, Series};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::Windows;
use highwater_snapshots::{DeviceId, Error, Trace};

use super::budgets::Budgets;
use crate::cli::input::devices::covered;
use crate::cli::input::long;
use crate::cli::input::recording::check_metric;
use crate::cli::output::caveats;
use crate::cli::output::outcome::Failure;

/// A recording to check.
#[derive(Clone, Copy, Debug)]
pub enum CheckInput<'a> {
    /// In memory.
    Memory(&'a Trace),
    /// Read in parts.
    Parts {
        /// Reads the parts.
        windows: &'a Windows,
        /// A window without events.
        facts: &'a Trace,
        /// The file.
        file: &'a Path,
    },
}

impl<'a> CheckInput<'a> {
    /// The recording, or a window of it without events.
    pub(super) fn facts(self) -> &'a Trace {
        match self {
            Self::Memory(trace) => trace,
            Self::Parts { facts, .. } => facts,
        }
    }

    fn check_metric(self, device: DeviceId, metric: Metric) -> Result<(), Failure> {
        match self {
            Self::Memory(trace) => check_metric(trace, device, metric),
            Self::Parts { windows, .. } => long::check_metric(windows, device, metric),
        }
    }

    /// The device on which the recording ends in an out-of-memory error.
    pub(super) fn ran_out(self) -> Result<Option<DeviceId>, Failure> {
        match self {
            Self::Memory(trace) => Ok(final_oom(trace).map(|event| trace.events.device[event.0 as usize])),
            Self::Parts { windows, .. } => {
                let found = final_oom_in_parts(windows).map_err(|why| self.unreadable(why))?;
                Ok(found.map(|(_, device)| device))
            }
        }
    }

    pub(super) fn failed_requests(self, devices: &[DeviceId]) -> u64 {
        match self {
            Self::Memory(trace) => caveats::failed_requests(trace, devices),
            Self::Parts { windows, .. } => {
                let rows = windows.summaries().iter().flat_map(|row| &row.devices);
                let of_devices = rows.filter(|row| devices.contains(&row.device));
                of_devices.map(|row| u64::from(row.counts[EventKind::Oom as usize])).sum()
            }
        }
    }

    /// Prepares to measure `device`.
    pub(super) fn indexed(self, device: DeviceId) -> Indexed<'a> {
        match self {
            Self::Memory(trace) => {
                let (series, live) = rayon::join(|| Series::build(trace, device), || LiveIndex::build(trace, device));
                Indexed::Memory(trace, Box::new((series, live)))
            }
            Self::Parts { windows, file, .. } => Indexed::Parts { windows, device, file },
        }
    }

    pub(super) fn unreadable(self, source: Error) -> Failure {
        let file = match self {
            Self::Memory(_) => PathBuf::new(),
            Self::Parts { file, .. } => file.to_owned(),
        };
        Failure::Read { file, source }
    }
}

/// One device of a recording to check.
pub(super) enum Indexed<'a> {
    /// In memory, with its indices.
    Memory(&'a Trace, Box<(Series, LiveIndex)>),
    /// Read in parts.
    Parts {
        /// Reads the parts.
        windows: &'a Windows,
        /// The device.
        device: DeviceId,
        /// The file.
        file: &'a Path,
    },
}

impl Indexed<'_> {
    /// Measures what `budgets` need beyond the indices.
    pub(super) fn checked(&self, budgets: &Budgets) -> Result<Checked<'_>, Failure> {
        match self {
            Self::Memory(trace, index) => {
                let (series, live) = &**index;
                Ok(Checked::in_memory(Asked { trace, series, live }, budgets.metric))
            }
            Self::Parts { windows, device, file } => {
                let checked = long::with_progress(windows, file, |watch| {
                    Checked::in_parts(Parts::of(windows), *device, budgets.metric, &budgets.rows, watch)
                });
                checked.map_err(|source| Failure::Read { file: file.to_path_buf(), source })
            }
        }
    }
}

/// Returns the devices on which `metric` is measured: those that a verdict covers, except those without samples of it
/// if others have some.
pub(super) fn measured_devices(
    input: CheckInput<'_>,
    wanted: Option<u16>,
    metric: Metric,
) -> Result<Vec<DeviceId>, Failure> {
    let covered = covered(input.facts(), wanted)?;
    let has_metric = |device: &DeviceId| input.check_metric(*device, metric).is_ok();
    let measured: Vec<DeviceId> = covered.iter().copied().filter(has_metric).collect();
    match covered.first() {
        Some(first) if measured.is_empty() => input.check_metric(*first, metric).map(|()| measured),
        _ => Ok(measured),
    }
}

/// Returns the device of `baseline` to compare `device` of `trace` with: the one with the same number, or the only one
/// if both have just one.
///
/// # Errors
///
/// Fails if there is none and a budget needs it.
pub(super) fn device_of_baseline(
    baseline: CheckInput<'_>,
    trace: &Trace,
    device: DeviceId,
    budgets: &Budgets,
) -> Result<Option<DeviceId>, Failure> {
    let (known, own) = (baseline.facts().device_ids(), trace.device_ids());
    let found = match known.as_slice() {
        _ if known.contains(&device) => Some(device),
        [one] if own.len() == 1 => Some(*one),
        _ => None,
    };
    if let Some(found) = found {
        baseline.check_metric(found, budgets.metric).map_err(|failure| match failure {
            Failure::Usage(text) => Failure::Usage(format!("baseline: {text}")),
            other => other,
        })?;
    } else if budgets.rows.iter().any(|budget| matches!(budget, Budget::Growth(_))) {
        let have: Vec<String> = known.iter().map(|device| device.0.to_string()).collect();
        let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
        let text = format!(
            "baseline: the recording has no device {}; it has {have}; name one that both have with --device N",
            device.0
        );
        return Err(Failure::Usage(text));
    }
    Ok(found)
}
