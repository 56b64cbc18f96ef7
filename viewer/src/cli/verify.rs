//! The report of `highwater verify`: whether a recording is consistent.

use std::io;
use std::path::Path;

use highwater_analysis::source::Source;
use highwater_analysis::verify::verify_devices;
use highwater_app::figures::moment::count_of;
use highwater_pytorch::open::{FileFormat, FileKind};
use serde::Serialize;

use crate::args::{CategoryChoice, VerifyArguments};
use crate::cli::input::devices::on_devices;
use crate::cli::input::recording::{Recording, choose_device, read_any};
use crate::cli::input::source::{Input, open_long};
use crate::cli::output::caveats::TrustFigures;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_command;

/// Opens `file`, of which nothing needs to be readable, in windows if it is long and they are not damaged.
pub fn open(file: &Path, is_whole: bool) -> Result<Input, Failure> {
    let long = if is_whole { None } else { open_long(file, &CategoryChoice::default())? };
    if let Some(source) = long {
        return Ok(Input::of(source, FileFormat { kind: FileKind::Snap, is_gzipped: false }, file));
    }
    let Recording { trace, format } = read_any(file)?;
    Ok(Input::of(Source::in_memory(trace), format, file))
}

/// The report, as text and as JSON.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    ok: bool,
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<TrustFigures>,
    /// Losses, as sentences.
    #[serde(skip)]
    limits: Vec<String>,
    /// Facts that were computed rather than recorded, as sentences.
    #[serde(skip)]
    routine: Vec<String>,
    /// The beginning of the first line.
    #[serde(skip)]
    on: String,
    devices: Vec<u16>,
    /// Whether no other command can answer anything.
    #[serde(skip)]
    is_unreadable: bool,
    /// Whether the file has checksums, which were then checked while reading.
    #[serde(skip)]
    has_checksums: bool,
}

impl VerifyReport {
    /// Runs the requested checks of `input`, and counts the problems found while reading.
    pub fn of(input: &Input, arguments: &VerifyArguments) -> Result<Self, Failure> {
        let (trace, source) = (input.facts(), &input.source);
        let devices = &match arguments.device {
            Some(_) => vec![choose_device(trace, arguments.device)?],
            None => trace.device_ids(),
        };
        let found = input.ask(|source, watch| verify_devices(source, devices, watch))?;
        let others = trace.problems.iter().filter(|problem| !problem.is_of_sums);
        let problems: Vec<String> = others.chain(&found).map(ToString::to_string).collect();
        Ok(Self {
            ok: problems.is_empty(),
            problems,
            on: on_devices(trace, devices),
            devices: devices.iter().map(|device| device.0).collect(),
            events: Some(source.count_events()),
            blocks: Some(source.count_blocks().map_err(|why| input.unreadable(why))?),
            trust: Some(TrustFigures::of(trace)),
            limits: trace.trust.limits(),
            routine: trace.routine_sentences().into_iter().chain(trace.header.notes().map(str::to_owned)).collect(),
            is_unreadable: trace.is_unreadable(),
            has_checksums: input.format.kind == FileKind::Snap,
        })
    }

    /// Returns the report for a file of which nothing could be read.
    pub fn of_unreadable(error: &highwater_snapshots::Error) -> Self {
        let problems = vec![error.to_string()];
        let (on, devices) = (String::new(), Vec::new());
        Self {
            ok: false,
            problems,
            on,
            devices,
            events: None,
            blocks: None,
            trust: None,
            limits: Vec::new(),
            routine: Vec::new(),
            is_unreadable: true,
            has_checksums: false,
        }
    }

    /// Returns the exit status.
    pub fn status(&self) -> Status {
        if self.ok { Status::Fine } else { Status::Unsound }
    }

    /// Prints the report as text.
    pub fn print(&self, file: &Path, page: &mut Page<'_>) -> io::Result<()> {
        let count = |count: Option<u64>, noun: &str| count_of(count.unwrap_or(0), noun);
        let size = format!("{}, {}", count(self.events, "event"), count(self.blocks, "block"));
        if self.ok {
            let checked = if self.has_checksums { "all checksums match, and " } else { "" };
            page.headline(&format!("{}Sound: {size}; {checked}no contradiction was found.", self.on))?;
        } else {
            let problems = count_of(self.problems.len() as u64, "problem");
            page.headline(&format!("{}Not sound: {problems}; what could be read: {size}.", self.on))?;
            page.gap()?;
        }
        for problem in &self.problems {
            page.warning(&format!("  {problem}"))?;
        }
        if !self.limits.is_empty() || !self.routine.is_empty() {
            page.gap()?;
        }
        for sentence in &self.limits {
            page.warning(&format!("Trust: {sentence}."))?;
        }
        if !self.routine.is_empty() {
            page.hint(&format!("Note: {}.", self.routine.join("; ")))?;
        }
        if self.is_unreadable {
            return Ok(());
        }
        page.gap()?;
        page.hint(&next_command(&["info"], file, &[], "for what is in it"))
    }
}
