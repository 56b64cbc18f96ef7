//! `highwater join`: merges several recordings on a common time axis.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use highwater_analysis::join::{JoinPart, Joined, JoinedDevice, join};
use highwater_analysis::source::Source;
use highwater_analysis::{Metric, Series};
use highwater_app::figures::moment::count_of;
use highwater_app::files::destination::Destination;
use highwater_app::files::is_stdin;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::convert::write_to;
use crate::args::JoinArguments;
use crate::cli::input::categories::read_with;
use crate::cli::input::recording::Recording;
use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_command;
use crate::cli::output::table::{Column, Table};

/// Reads the recordings, writes them as one, and prints the result for each device.
pub fn run(arguments: &JoinArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let names = names(&arguments.files)?;
    if arguments.offsets.len() >= arguments.files.len() {
        let text = format!(
            "--offset is given {} times: the first is that of the second recording, and there are {} recordings",
            arguments.offsets.len(),
            arguments.files.len()
        );
        return Err(Failure::Usage(text));
    }
    let mut destination = None;
    for file in &arguments.files {
        destination = Some(Destination::new(&arguments.out, file)?);
    }
    let destination = destination.expect("the command line asks for two files");
    let recordings: Vec<Recording> =
        arguments.files.iter().map(|file| read_with(file, &arguments.categories)).collect::<Result<_, _>>()?;
    let offsets =
        std::iter::once(0).chain(arguments.offsets.iter().map(|offset| offset.nanos)).chain(std::iter::repeat(0));
    let parts: Vec<JoinPart<'_>> = recordings
        .iter()
        .zip(&names)
        .zip(offsets)
        .map(|((recording, name), offset_ns)| JoinPart { name, trace: &recording.trace, offset_ns })
        .collect();
    let joined = join(&parts).map_err(|why| Failure::Usage(why.to_string()))?;
    if !arguments.json {
        for (recording, name) in recordings.iter().zip(&names) {
            caveats::lead(&recording.trace, name, page)?;
        }
    }
    drop(recordings);
    let (exported, bytes) = write_to(&destination, &Source::in_memory(&joined.trace))?;
    let lost = joined.lost.iter().chain(&exported.lost).cloned().collect();
    let answer = Answer { arguments, joined, lost, bytes };
    if arguments.json {
        page.json(&answer.figures())?;
    } else {
        answer.print(page)?;
    }
    Ok(Status::Fine)
}

/// Distinct names of the recordings: the stems of their file names, or their paths if these are equal.
fn names(files: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let stem = |file: &PathBuf| -> String {
        match file.file_stem() {
            Some(stem) if !is_stdin(file) => stem.to_string_lossy().into_owned(),
            _ => "standard input".to_owned(),
        }
    };
    let paths: BTreeSet<PathBuf> =
        files.iter().map(|file| std::fs::canonicalize(file).unwrap_or(file.clone())).collect();
    if paths.len() < files.len() {
        return Err(Failure::Usage("the same recording is given twice".to_owned()));
    }
    let stems: Vec<String> = files.iter().map(stem).collect();
    let is_shared = |stem: &String| stems.iter().filter(|other| *other == stem).count() > 1;
    let name = |(file, stem): (&PathBuf, &String)| {
        if is_shared(stem) { file.display().to_string() } else { stem.clone() }
    };
    Ok(files.iter().zip(&stems).map(name).collect())
}

/// The report about the recordings.
struct Answer<'a> {
    arguments: &'a JoinArguments,
    joined: Joined,
    lost: Vec<String>,
    bytes: u64,
}

impl Answer<'_> {
    fn out(&self) -> &Path {
        &self.arguments.out
    }

    fn devices(&self) -> Vec<DeviceFigures> {
        let trace = &self.joined.trace;
        let known = trace.device_ids();
        let devices = self.joined.devices.iter().filter(|device| known.contains(&device.device));
        let figures = |device: &JoinedDevice| {
            let series = Series::build(trace, device.device);
            let peak = |metric| series.peak(trace, metric).0;
            DeviceFigures {
                device: device.device.0,
                name: device.name.clone(),
                file: self.arguments.files[device.part].display().to_string(),
                was: device.was.0,
                blocks: trace.blocks.device.iter().filter(|at| **at == device.device).count() as u64,
                peak_requested: peak(Metric::Requested),
                peak_reserved: peak(Metric::Reserved),
            }
        };
        devices.map(figures).collect()
    }

    fn figures(&self) -> JoinFigures<'_> {
        JoinFigures {
            file: self.out().display().to_string(),
            bytes: self.bytes,
            events: self.joined.trace.events.len() as u64,
            devices: self.devices(),
            lost: &self.lost,
            warnings: &self.joined.warnings,
        }
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let trace = &self.joined.trace;
        let events = count_of(trace.events.len() as u64, "event");
        let (out, size) = (self.out().display(), format_bytes(self.bytes));
        let files = self.arguments.files.len();
        page.headline(&format!("Wrote {out} ({size}): {events} of {files} recordings on one axis of time."))?;
        page.gap()?;
        let mut table = Table::new(vec![
            Column::number("device"),
            Column::text("name").cut(),
            Column::text("from").source_lines(),
            Column::number("was"),
            Column::number("blocks"),
            Column::number("peak requested"),
            Column::number("peak reserved"),
        ]);
        for device in self.devices() {
            table.push(vec![
                device.device.to_string(),
                device.name,
                device.file,
                device.was.to_string(),
                format_count(device.blocks),
                format_bytes(device.peak_requested),
                format_bytes(device.peak_reserved),
            ]);
        }
        page.table(&table)?;
        if !self.lost.is_empty() || !self.joined.warnings.is_empty() {
            page.gap()?;
        }
        for what in &self.lost {
            page.warning(&format!("Lost: {what}."))?;
        }
        for what in &self.joined.warnings {
            page.warning(&format!("Times: {what}."))?;
        }
        caveats::print(trace, page)?;
        page.gap()?;
        page.hint(&next_command(&["info"], self.out(), &[], "for the peaks of all devices"))
    }
}

/// The object that `join --json` prints.
#[derive(Debug, Serialize)]
struct JoinFigures<'a> {
    file: String,
    bytes: u64,
    events: u64,
    devices: Vec<DeviceFigures>,
    lost: &'a [String],
    warnings: &'a [String],
}

/// A device of the merged recording.
#[derive(Debug, Serialize)]
struct DeviceFigures {
    device: u16,
    name: String,
    /// The recording that it comes from.
    file: String,
    /// Its number there.
    was: u16,
    blocks: u64,
    /// In bytes.
    peak_requested: u64,
    /// In bytes.
    peak_reserved: u64,
}
