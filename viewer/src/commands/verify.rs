//! `highwater verify`: checks whether a recording is consistent.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use highwater_analysis::Source;
use highwater_analysis::verify::verify;
use highwater_app::report::{Fact, Facts, Value};
use highwater_pytorch::open::FileKind;
use highwater_snapshots::count_of;

use crate::args::{CategoryChoice, FilesAndOptions, TablelessSource};
use crate::input::{Input, Recording, answer_or_whole, choose_device, on_devices, read_any};
use crate::output::{Failure, Page, Report, Status, caveats};

/// Arguments of `highwater verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: TablelessSource,
    /// Device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
}

pub(crate) fn run(arguments: &VerifyArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    let report = answer_or_whole(|is_whole| open(file, is_whole), |input| VerifyReport::of(input, arguments));
    let report = report.inspect_err(|failure| {
        // With --json, an unreadable file is reported as JSON too.
        if let (Failure::Read { source, .. }, true) = (failure, arguments.source.json) {
            // The error itself is reported in any case.
            let _ = VerifyReport::of_unreadable(source).write(arguments.source.form(), page);
        }
    })?;
    report.write(arguments.source.form(), page)?;
    Ok(report.status())
}

/// Opens a recording, even if no event can be read.
fn open(file: &Path, is_whole: bool) -> Result<Input, Failure> {
    if !is_whole && let Some(input) = Input::open_long(file, &CategoryChoice::default())? {
        return Ok(input);
    }
    let Recording { trace, format } = read_any(file)?;
    Ok(Input::of(Source::in_memory(trace), format, file))
}

/// The report of `highwater verify`.
#[derive(Debug, Default)]
pub struct VerifyReport {
    file: PathBuf,
    ok: bool,
    problems: Vec<String>,
    events: Option<u64>,
    blocks: Option<u64>,
    trust: Option<Value>,
    /// Limits of accuracy, as sentences.
    limits: Vec<String>,
    /// Limits of every recording of this kind, and the recorder's notes, as sentences.
    routine: Vec<String>,
    /// The beginning of the first line.
    on: String,
    devices: Vec<u16>,
    /// Whether the file is unusable for all other commands.
    is_unreadable: bool,
    /// Whether the file has checksums, which are verified while reading.
    has_checksums: bool,
}

impl VerifyReport {
    /// Runs the checks of the requested devices, and adds the problems found while reading.
    pub fn of(input: &Input, arguments: &VerifyArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let devices = &match arguments.device {
            Some(_) => vec![choose_device(trace, arguments.device)?],
            None => trace.device_ids(),
        };
        let (found, blocks) =
            input.ask(|source, watch| Ok((verify(source, devices, watch)?, source.count_blocks()?)))?;
        let others = trace.problems.iter().filter(|problem| !problem.is_of_sums);
        let problems: Vec<String> = others.chain(&found).map(ToString::to_string).collect();
        Ok(Self {
            file: arguments.source.file.clone(),
            ok: problems.is_empty(),
            problems,
            on: on_devices(trace, devices),
            devices: devices.iter().map(|device| device.0).collect(),
            events: Some(input.source.count_events()),
            blocks: Some(blocks),
            trust: Some(caveats::trust(trace)),
            limits: trace.trust.limits(),
            routine: trace.routine_sentences().into_iter().chain(trace.header.notes().map(str::to_owned)).collect(),
            is_unreadable: trace.is_unreadable(),
            has_checksums: input.format.kind == FileKind::Snap,
        })
    }

    pub(crate) fn of_unreadable(error: &highwater_snapshots::Error) -> Self {
        Self { problems: vec![error.to_string()], is_unreadable: true, ..Self::default() }
    }

    /// Returns status 2 if the recording has a problem or cannot be read, otherwise 0.
    pub fn status(&self) -> Status {
        if self.ok { Status::Fine } else { Status::Unsound }
    }
}

impl Report for VerifyReport {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("ok", self.ok.into()),
            ("problems", self.problems.clone().into()),
            ("events", Fact::or_absent(self.events)),
            ("blocks", Fact::or_absent(self.blocks)),
            ("trust", Fact::or_absent(self.trust.clone())),
            ("devices", self.devices.clone().into()),
        ])
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
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
        page.gap()?.hint(&FilesAndOptions::of(&self.file).next("info", &[], "for its contents"))
    }
}
