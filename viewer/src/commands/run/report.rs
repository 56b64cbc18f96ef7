//! The summary printed to standard error when the program has ended.

use std::io;
use std::path::{Path, PathBuf};

use highwater_analysis::peak::Query;
use highwater_analysis::summary::summarize;
use highwater_analysis::{DeviceSummary, Filter, GroupKey, Metric, Peak, Siblings};
use highwater_app::answers::request_failure::RequestFailure;
use highwater_app::figures::moment::how_much_and_when;
use highwater_app::figures::requests::failure_text;
use highwater_app::report::{Column, Table, percent};
use highwater_snapshots::{count_of, format_bytes};

use super::program::Program;
use crate::args::{CategoryChoice, FilesAndOptions};
use crate::commands::next_command::shortened;
use crate::input::Input;
use crate::output::{Failure, Page, caveats};

const MAX_FILES: usize = 16;

/// Prints a summary of the recording, or the reason nothing was recorded. Errors here do not change the program's exit
/// status. `asks_for_driver` states whether driver calls of PyTorch programs were to be recorded too.
pub(super) fn report(program: &Program, file: &Path, claims: &Path, asks_for_driver: bool) {
    let mut out = io::stderr().lock();
    let page = &mut Page::for_stderr(&mut out);
    let lost = notes(claims, ".begun");
    // If standard error is closed, nobody reads it.
    let _ = match files_of_run(file, claims).as_slice() {
        [] if !claims.is_dir() => report_unknown(claims, page),
        [] if !lost.is_empty() => report_lost(&lost, page),
        [] => report_nothing(program, notes(claims, ".used").iter().max(), page),
        files => report_files(program, files, page)
            .and_then(|()| report_driver(asks_for_driver, files, page))
            .and_then(|()| report_lost(&lost, page)),
    };
}

/// Returns the recordings of a run, as claimed by its processes: the requested name first, then others by name.
pub(super) fn files_of_run(file: &Path, claims: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(claims).into_iter().flatten().flatten();
    let claimed = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let mut files: Vec<PathBuf> = claimed.map(PathBuf::from).filter(|path| path.is_file()).collect();
    files.sort_by_key(|path| (path != file, path.clone()));
    files.dedup();
    files
}

/// Returns the notes of the processes with this ending. A `.begun` note belongs to a process whose recording has not
/// ended, and is empty or contains the path of its last save.
fn notes(claims: &Path, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(claims).into_iter().flatten().flatten();
    let notes = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    notes.map(|note| std::fs::read_to_string(note.path()).unwrap_or_default()).collect()
}

/// Reports recordings that have not ended.
fn report_lost(notes: &[String], page: &mut Page<'_>) -> io::Result<()> {
    // The saved file may have been deleted since.
    let (saved, lost): (Vec<&String>, Vec<&String>) = notes.iter().partition(|note| Path::new(note).is_file());
    for file in saved.into_iter().take(MAX_FILES) {
        let file = shortened(Path::new(file));
        let saved = std::fs::metadata(&file).and_then(|facts| facts.modified()).ok();
        let seconds = saved.and_then(|saved| saved.elapsed().ok()).map_or(0, |age| age.as_secs());
        let why = "its process ended before it was written again, for example by SIGKILL or a crash";
        page.headline(&format!("highwater: {} contains the state saved {seconds} s ago: {why}.", file.display()))?;
    }
    let which = match lost.len() {
        0 => return Ok(()),
        1 => "the recording of a process is lost: the process ended before it was".to_owned(),
        count => format!("the recordings of {count} processes are lost: the processes ended before they were"),
    };
    page.headline(&format!("highwater: {which} written, for example by SIGKILL or a crash."))
}

fn report_driver(is_asked: bool, files: &[PathBuf], page: &mut Page<'_>) -> io::Result<()> {
    let is_of_driver = |file: &PathBuf| file.to_string_lossy().ends_with(".driver.snap");
    if !is_asked || files.iter().any(is_of_driver) {
        return Ok(());
    }
    page.line("highwater: --driver has recorded nothing: no allocation by the CUDA driver was seen.")
}

fn report_unknown(claims: &Path, page: &mut Page<'_>) -> io::Result<()> {
    let text = "highwater: which files were recorded is unknown: the program has deleted the folder";
    page.headline(&format!("{text} {}.", claims.display()))
}

/// Reports that there is no recording; `used` is the note of a process that used CUDA, which may have the reason.
fn report_nothing(program: &Program, used: Option<&String>, page: &mut Page<'_>) -> io::Result<()> {
    let why = match used {
        Some(why) if why.is_empty() => "CUDA was used, but no recording was written".to_owned(),
        Some(why) => why.clone(),
        None => program.resists().unwrap_or_else(|| "no use of CUDA was seen".to_owned()),
    };
    page.headline(&format!("highwater: nothing was recorded: {why}."))
}

fn report_files(program: &Program, files: &[PathBuf], page: &mut Page<'_>) -> io::Result<()> {
    let mut next = None;
    for file in files.iter().take(MAX_FILES) {
        let file = &shortened(file);
        let read = Input::open(file, &CategoryChoice::default());
        match read.and_then(|input| Ok((input.ask(summarize)?, input))) {
            Ok((summaries, input)) => {
                report_file(program, file, (&input, &summaries), page)?;
                next.get_or_insert_with(|| next_of(file, &input));
            }
            Err(why) => page.warning(&format!("highwater: {why}"))?,
        }
    }
    if files.len() > MAX_FILES {
        page.line(&format!("… and {} more", files.len() - MAX_FILES))?;
    }
    next.map_or(Ok(()), |next| page.hint(&next))
}

fn next_of(file: &Path, input: &Input) -> String {
    if !is_of_pytorch(input) {
        return FilesAndOptions::of(file).next("peak", &["--by", "scope,frame"], "for the calls that allocated memory");
    }
    let ends_out_of_memory = input.ask(|source, _| source.final_oom()).is_ok_and(|failed| failed.is_some());
    if ends_out_of_memory {
        return FilesAndOptions::of(file).next("oom", &[], "for the cause of the failure, and possible fixes");
    }
    FilesAndOptions::of(file).next("explain", &[], "for the composition of the peak, and ways to lower it")
}

/// Returns whether PyTorch's recorder made the recording, rather than the preloaded library.
fn is_of_pytorch(input: &Input) -> bool {
    input.facts().header.recorder == "PyTorch"
}

/// Prints the peak of the recording written by a PyTorch program.
///
/// # Errors
/// Fails if the recording cannot be read.
pub(crate) fn report_file_of(file: &Path, page: &mut Page<'_>) -> Result<(), Failure> {
    let file = &shortened(file);
    let input = Input::open(file, &CategoryChoice::default())?;
    let summaries = input.ask(summarize)?;
    page.headline(&format!("{}: {}.", file.display(), verdict(&input, &summaries)?))?;
    Ok(page.hint(&next_of(file, &input))?)
}

fn report_file(
    program: &Program,
    file: &Path,
    (input, summaries): (&Input, &[DeviceSummary]),
    page: &mut Page<'_>,
) -> io::Result<()> {
    let trace = input.facts();
    let bytes = std::fs::metadata(file).map_or(0, |facts| facts.len());
    let events = count_of(input.source.count_events(), "event");
    // A shell or a launcher runs other programs.
    let recorded = trace.header.program.split(' ').next().and_then(|word| Path::new(word).file_name());
    let recorded = recorded.map_or_else(|| program.name(), |name| name.to_string_lossy().into_owned());
    let process = format!("{recorded}, process {}", trace.header.pid);
    let name = file.display();
    if is_of_pytorch(input) {
        let verdict = verdict(input, summaries).unwrap_or_else(|why| why.to_string());
        page.headline(&format!("highwater: {name}: {verdict}."))?;
        // With a ring buffer, the peak is that of the last events.
        return if trace.trust.events_lost > 0 { caveats::print(trace, page) } else { Ok(()) };
    }
    page.headline(&format!("highwater: recorded {events} of {process} in {name} ({}).", format_bytes(bytes)))?;
    page.table(&devices(summaries))?;
    caveats::print(trace, page)
}

fn devices(summaries: &[DeviceSummary]) -> Table<'_> {
    let peak = |row: usize, metric: Metric| summaries[row].peak(metric).map(|moment| moment.bytes);
    let reserved = move |row: usize| peak(row, Metric::Reserved).unwrap_or(0);
    let used = move |row: usize| peak(row, Metric::DeviceUsed).map_or_else(|| "-".to_owned(), format_bytes);
    let columns = [
        Column::number("device", "device", |row| summaries[row].device.0),
        Column::text("name", "name", |row| summaries[row].name.as_str()).cut(),
        Column::number("calls", "calls", |row| summaries[row].allocs + summaries[row].frees),
        Column::number("failed", "failed", |row| summaries[row].oom_events),
        Column::bytes("peak_reserved", "peak reserved", reserved),
        Column::shown_alone("of device", true, move |row| percent(reserved(row), summaries[row].capacity_bytes)),
        Column::bytes("end_reserved", "reserved at end", |row| summaries[row].end.reserved),
        Column::shown_alone("peak device use", true, used),
    ];
    Table::new(summaries.len(), columns)
}

/// Returns the verdict, without the file name.
///
/// # Errors
/// Fails if the recording cannot be read.
pub(super) fn verdict(input: &Input, summaries: &[DeviceSummary]) -> Result<String, Failure> {
    let trace = input.facts();
    let main = trace.main_device();
    if !summaries.iter().any(|summary| summary.device == main) {
        return Ok("no memory was allocated".to_owned());
    }
    let key = if trace.tables.scopes.is_empty() { GroupKey::Frame } else { GroupKey::Scope };
    input.ask(|source, _| {
        // A failed request that the program has handled is not final.
        if source.final_oom()?.is_some_and(|(_, device)| device == main)
            && let Some(failure) = RequestFailure::last(source, main)?
        {
            return Ok(format!("out of memory: {}", failure_text(&failure)));
        }
        let moment = source.peak(main, Metric::Requested)?;
        let window = source.window_at(moment.number())?;
        let index = window.index(main);
        let query = Query { keys: &[key], top: 1, filter: &Filter::default(), siblings: Siblings::Merged };
        let peak = Peak::at(&window.trace, &index.live, &index.series, moment, &query);
        let largest = peak.breakdown.groups.first().filter(|group| !group.key[0].starts_with('('));
        let share = largest
            .map_or_else(String::new, |group| format!("; {} in {}", percent(group.bytes, moment.bytes), group.key[0]));
        Ok(format!("peak {}{share}", how_much_and_when(&moment)))
    })
}
