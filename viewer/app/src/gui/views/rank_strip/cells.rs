//! The content of the strip's cells: one for each device of each file, or for each rank of a folder.

use std::sync::Arc;

use highwater_analysis::Metric;
use highwater_snapshots::format_bytes;

use super::SAMPLES;
use crate::Recording;
use crate::answers::outliers::{Standing, standings};
use crate::figures::moment::total_name;
use crate::files::fleet::Fleet;
use crate::gui::identity::Identity;
use crate::gui::widgets::{before, failed_requests};

/// Identifies one device of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellPlace {
    /// Index of the open file, or of the rank in its folder.
    pub file: usize,
    /// Index of the device in the file.
    pub device: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) place: CellPlace,
    /// The rank, such as `rank 3`, or the file's name; followed by the device if the file has several.
    pub(super) name: String,
    pub(super) short: String,
    pub(super) peak: u64,
    pub(super) baseline: u64,
    /// A phrase for a start before the curve: before the recording, or before the displayed part of it.
    pub(super) before: &'static str,
    pub(super) capacity: u64,
    pub(super) failed: u64,
    pub(super) standing: Standing,
    /// Whether the cell shows a rank of a run rather than a device of an unrelated recording.
    pub(super) is_rank: bool,
    /// Samples of the total over the recording.
    pub(super) curve: Vec<u64>,
}

/// The source of the strip's cells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShownCell<'a> {
    /// The open files, with a cell for each device.
    Files(&'a [&'a Arc<Recording>]),
    /// The ranks of a folder, whether open or not.
    Fleet(&'a Arc<Fleet>),
}

/// Identifies the content for which the cells were computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    Files(Vec<Identity<Recording>>),
    Fleet(Identity<Fleet>),
}

impl Known {
    pub(super) fn of(shown: ShownCell<'_>) -> Self {
        match shown {
            ShownCell::Files(files) => Self::Files(files.iter().map(|file| Identity::of(file)).collect()),
            ShownCell::Fleet(fleet) => Self::Fleet(Identity::of(fleet)),
        }
    }
}

impl Cell {
    pub(super) fn words(&self, metric: Metric) -> String {
        let metric = total_name(metric);
        let mut words = format!("{}: {metric} memory peaks at {}", self.name, format_bytes(self.peak));
        if self.capacity > 0 {
            let share = self.peak as f64 / self.capacity as f64 * 100.0;
            words += &format!(", {share:.0}% of {}", format_bytes(self.capacity));
        }
        if self.baseline > 0 {
            words += &format!("; it was {} {}", format_bytes(self.baseline), self.before);
        }
        words += ".";
        if self.failed > 0 {
            words += &format!(" {} (out of memory).", failed_requests(self.failed));
        }
        let what = if self.is_rank { "ranks" } else { "devices of this size" };
        if let Some(standing) = self.standing.words(what) {
            words += &format!(" This is {standing}.");
        }
        words
    }
}

/// The cells in order, with outliers among comparable devices marked.
pub(super) fn cells(shown: ShownCell<'_>, metric: Metric) -> Vec<Cell> {
    let mut cells = match shown {
        ShownCell::Files(files) => of_files(files, metric),
        ShownCell::Fleet(fleet) => of_fleet(fleet, metric),
    };
    // Devices with the same capacity are comparable.
    let comparable: Vec<(u64, u64)> = cells.iter().map(|cell| (cell.capacity, cell.peak)).collect();
    for (cell, standing) in cells.iter_mut().zip(standings(&comparable)) {
        cell.standing = standing;
    }
    cells
}

/// Returns the cells for the default device of each rank of a folder.
fn of_fleet(fleet: &Fleet, metric: Metric) -> Vec<Cell> {
    let at = Metric::ALL.iter().position(|other| *other == metric).unwrap_or(0);
    let cell = |(row, rank): (usize, &crate::files::fleet::Rank)| {
        let (look, peak) = (rank.main(), rank.peak(metric).bytes);
        Cell {
            place: CellPlace { file: row, device: rank.main },
            name: rank.label(),
            short: rank.number().map_or_else(|| rank.name.clone(), |rank| rank.to_string()),
            peak,
            baseline: look.baseline.get(metric).min(peak),
            before: "before the recording",
            capacity: look.summary.capacity_bytes,
            failed: rank.devices.iter().map(|look| look.summary.oom_events).sum(),
            standing: Standing::Usual,
            is_rank: true,
            curve: look.curves[at].clone(),
        }
    };
    fleet.ranks.iter().enumerate().map(cell).collect()
}

/// The cells of all files, ordered by rank if known, then by tab, then by device.
fn of_files(files: &[&Arc<Recording>], metric: Metric) -> Vec<Cell> {
    let mut cells: Vec<(Option<u32>, Cell)> = Vec::new();
    for (file, recording) in files.iter().enumerate() {
        let rank = recording.trace.header.rank;
        for (device, index) in recording.devices.iter().enumerate() {
            let (mut name, mut short) = match rank {
                Some(rank) => (format!("rank {rank}"), rank.to_string()),
                None => (recording.name.clone(), (file + 1).to_string()),
            };
            if recording.devices.len() > 1 {
                name += &format!(", device {}", index.device.0);
                short =
                    if files.len() > 1 { format!("{short}:{}", index.device.0) } else { index.device.0.to_string() };
            }
            let peak = index.peak(&recording.trace, metric).bytes;
            cells.push((
                rank,
                Cell {
                    place: CellPlace { file, device },
                    name,
                    short,
                    peak,
                    baseline: index.series.baseline().get(metric).min(peak),
                    before: before(&recording.trace),
                    capacity: index.summary.capacity_bytes,
                    failed: index.summary.oom_events,
                    standing: Standing::Usual,
                    is_rank: rank.is_some(),
                    curve: index.series.samples(&recording.trace, metric, index.moments.clone(), SAMPLES),
                },
            ));
        }
    }
    cells.sort_by_key(|(rank, cell)| (rank.is_none(), rank.unwrap_or_default(), cell.place.file, cell.place.device));
    cells.into_iter().map(|(_, cell)| cell).collect()
}
