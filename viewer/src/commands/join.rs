//! `highwater join`: merges several recordings on a common time axis.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use highwater_analysis::join::{JoinPart, Joined, JoinedDevice, join};
use highwater_analysis::{Metric, Series, Source};
use highwater_app::files::destination::Destination;
use highwater_app::files::is_stdin;
use highwater_app::report::{Column, Facts, Rows, Table};
use highwater_snapshots::{count_of, format_bytes};

use super::convert::write_to;
use crate::args::{CategoryChoice, FilesAndOptions, Form};
use crate::input::{Recording, read_with};
use crate::output::{Failure, Page, Report, Status, caveats};

/// Arguments of `highwater join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArguments {
    /// Recordings, two or more: of several allocators of one program, or of several processes
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    pub files: Vec<PathBuf>,
    /// File to write; its extension sets the format, as for `convert`
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// Seconds to add to the times of the second recording, where clocks differ; repeat for the third, and so on
    #[arg(long = "offset", value_name = "SECONDS", allow_hyphen_values = true)]
    pub offsets: Vec<Seconds>,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
}

/// A duration given in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seconds {
    /// The duration in nanoseconds; may be negative.
    pub nanos: i64,
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid number of seconds '{text}': expected a number such as 2, -0.25 or 0.000001");
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) || fraction.len() > 9
        {
            return Err(wrong());
        }
        let digits = format!("{whole}{fraction:0<9}");
        let nanos: i64 = digits.parse().map_err(|_| wrong())?;
        Ok(Self { nanos: if is_negative { -nanos } else { nanos } })
    }
}

pub(crate) fn run(arguments: &JoinArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let names = names(&arguments.files)?;
    if arguments.offsets.len() >= arguments.files.len() {
        let text = format!(
            "too many --offset: {} for {} recordings; give one for each recording after the first",
            arguments.offsets.len(),
            arguments.files.len()
        );
        return Err(Failure::Usage(text));
    }
    let mut destination = None;
    for file in &arguments.files {
        destination = Some(Destination::new(&arguments.out, file)?);
    }
    let destination = destination.expect("fewer than two files");
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
    if arguments.form.is_text() {
        for (recording, name) in recordings.iter().zip(&names) {
            caveats::lead(&recording.trace, name, page)?;
        }
    }
    drop(recordings);
    let (exported, bytes) = write_to(&destination, &Source::in_memory(&joined.trace), None)?;
    let lost = joined.lost.iter().chain(&exported.lost).cloned().collect();
    JoinReport { arguments, joined, lost, bytes }.write(arguments.form, page)?;
    Ok(Status::Fine)
}

/// Returns distinct names for the recordings: the stems of their file names, or for equal stems, their paths. Fails if
/// a recording is given twice.
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
        return Err(Failure::Usage("the same recording is given twice; name each one once".to_owned()));
    }
    let stems: Vec<String> = files.iter().map(stem).collect();
    let is_shared = |stem: &String| stems.iter().filter(|other| *other == stem).count() > 1;
    let name = |(file, stem): (&PathBuf, &String)| {
        if is_shared(stem) { file.display().to_string() } else { stem.clone() }
    };
    Ok(files.iter().zip(&stems).map(name).collect())
}

struct JoinReport<'a> {
    arguments: &'a JoinArguments,
    joined: Joined,
    lost: Vec<String>,
    bytes: u64,
}

impl Report for JoinReport<'_> {
    fn table(&self) -> Table<'_> {
        let trace = &self.joined.trace;
        let known = trace.device_ids();
        let devices = self.joined.devices.iter().filter(|device| known.contains(&device.device));
        let rows: Rows<(&JoinedDevice, Series)> =
            devices.map(|device| (device, Series::build(trace, device.device))).collect();
        let blocks = |(device, _): &(&JoinedDevice, Series)| {
            trace.blocks.device.iter().filter(|at| **at == device.device).count()
        };
        let peak = |metric: Metric| rows.of(move |(_, series)| series.peak(trace, metric).0);
        let columns = [
            Column::number("device", "device", rows.of(|(device, _)| device.device.0)),
            Column::text("name", "name", rows.of(|(device, _)| device.name.clone())).cut(),
            // The recording that it comes from, and its number there.
            Column::text("file", "from", rows.of(|(device, _)| self.arguments.files[device.part].as_path()))
                .source_lines(),
            Column::number("was", "was", rows.of(|(device, _)| device.was.0)),
            Column::count("blocks", "blocks", rows.of(blocks)),
            Column::bytes("peak_requested", "peak requested", peak(Metric::Requested)),
            Column::bytes("peak_reserved", "peak reserved", peak(Metric::Reserved)),
        ];
        Table::new(rows.count(), columns)
    }

    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("file", self.arguments.out.as_path().into()),
            ("bytes", self.bytes.into()),
            ("events", self.joined.trace.events.len().into()),
            ("devices", self.table().into()),
            ("lost", self.lost.clone().into()),
            ("warnings", self.joined.warnings.clone().into()),
        ])
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let trace = &self.joined.trace;
        let events = count_of(trace.events.len() as u64, "event");
        let JoinArguments { out, files, .. } = self.arguments;
        let (name, size, count) = (out.display(), format_bytes(self.bytes), files.len());
        page.headline(&format!("Wrote {name} ({size}): {events} of {count} recordings on one time axis."))?;
        page.gap()?.table(&self.table())?;
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
        page.gap()?.hint(&FilesAndOptions::of(out).next("info", &[], "for the peaks of all devices"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        let nanos = |text: &str| text.parse::<Seconds>().ok().map(|seconds| seconds.nanos);
        assert_eq!(nanos("2"), Some(2_000_000_000));
        assert_eq!(nanos("-0.25"), Some(-250_000_000));
        assert_eq!(nanos("+.000000001"), Some(1));
        assert_eq!(nanos("1."), Some(1_000_000_000));
        for text in ["", "-", ".", "two", "1e3", "1.2.3", "0.0000000001", "99999999999", "--1"] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
