//! `highwater symbolize`: looks up functions, files and lines for bare addresses.

use std::fs::{File, TryLockError};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use highwater_analysis::Source;
use highwater_analysis::owners::is_of_program;
use highwater_app::figures::moment::count_with;
use highwater_app::files::destination::{Destination, Kind, rewrite};
use highwater_app::files::is_stdin;
use highwater_app::report::{Column, Facts, Rows, Table};
use highwater_snapshots::format::amend_file;
use highwater_snapshots::symbols::{
    Asked, Cause, Found, LookUp, Missing, ModuleOutcome, SYSTEM_DEBUG_FOLDER, Symbolizer, look_up,
};
use highwater_snapshots::{count_of, format_bytes, format_count};

use super::convert::write_to;
use crate::args::{FilesAndOptions, Form};
use crate::input::source::PLAIN;
use crate::input::{Recording, read};
use crate::output::{Failure, Page, Report, Status, answer};

/// Arguments of `highwater symbolize`.
#[derive(Clone, Debug, Args)]
pub struct SymbolizeArguments {
    /// Recording (.snap); `-` is standard input and needs --out
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder of binaries and debug files to search too; repeatable
    ///
    /// Files are identified by their build ids: as D/.build-id/xx/yyyy.debug, or under any name in D and in folders two
    /// deep in it. So a recording can be taken to a machine where the program never ran. Binaries are also searched at
    /// the paths at which they ran, and debug files beside them and in /usr/lib/debug.
    #[arg(long = "debug-dir", value_name = "D")]
    pub debug_dirs: Vec<PathBuf>,
    /// Write the result to OUT (.snap, .snap.gz) and leave FILE unchanged
    #[arg(long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Also look up frames that have a function but no file and line
    #[arg(long)]
    pub again: bool,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
}

pub(crate) fn run(arguments: &SymbolizeArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let destination = arguments.out.as_ref().map(|out| destination(out, &arguments.file)).transpose()?;
    for folder in &arguments.debug_dirs {
        if !folder.is_dir() {
            return Err(Failure::Usage(format!("--debug-dir {}: there is no such folder", folder.display())));
        }
    }
    // Held to the end, so that no other process replaces the file meanwhile.
    let _lock = if destination.is_none() { Some(lock(&arguments.file)?) } else { None };
    let mut recording = read(&arguments.file)?;
    let mut folders = arguments.debug_dirs.clone();
    folders.push(SYSTEM_DEBUG_FOLDER.into());
    let mut symbolizer = Symbolizer::new(folders).with_copies_in(arguments.debug_dirs.clone());
    let began = recording.trace.header.started_unix_us;
    if began > 0 {
        symbolizer = symbolizer.for_recording(SystemTime::UNIX_EPOCH + Duration::from_micros(began));
    }
    let asked = if arguments.again { Asked::BareAndNamed } else { Asked::Bare };
    let found = look_up(&recording.trace.tables, asked, &mut symbolizer);
    let written = write(arguments, destination.as_ref(), &mut recording, &found)?;
    let report = SymbolizeReport { arguments, found, written };
    answer(&recording.trace, arguments.form, page, &report)?;
    Ok(report.status())
}

/// Returns the destination `out`, which must be a .snap.
fn destination(out: &Path, file: &Path) -> Result<Destination, Failure> {
    let destination = Destination::new(out, file)?;
    if destination.kind != Kind::Snap {
        let text = format!("--out {}: expected a .snap; use `highwater convert` for other formats", out.display());
        return Err(Failure::Usage(text));
    }
    Ok(destination)
}

/// Opens and locks `file`, so that no other process replaces it. Fails for standard input, and if a recorder is still
/// writing the file.
fn lock(file: &Path) -> Result<File, Failure> {
    if is_stdin(file) {
        return Err(Failure::Usage("standard input cannot be changed in place: name a file with --out".to_owned()));
    }
    let unreadable = |source| {
        let source = highwater_snapshots::Error::Io { doing: "open the recording", source, path: file.to_owned() };
        Failure::Read { file: file.to_owned(), source }
    };
    let opened = File::open(file).map_err(unreadable)?;
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Failure::Usage(format!(
            "{} is still being written: wait for its program to end, or write a copy with --out",
            file.display()
        ))),
        // If the file system does not support locks, no recorder holds one.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(opened),
    }
}

#[derive(Clone, Debug)]
struct Written {
    path: PathBuf,
    bytes: u64,
    /// Number of bytes of an incomplete section, which are not copied.
    torn_bytes: u64,
}

/// Writes the recording with the found symbols. In place, does nothing if none were found.
fn write(
    arguments: &SymbolizeArguments,
    destination: Option<&Destination>,
    recording: &mut Recording,
    found: &LookUp,
) -> Result<Option<Written>, Failure> {
    let file = &arguments.file;
    let known = recording.trace.tables.strings.len();
    let amend = |out: &mut (dyn io::Write + Send)| {
        amend_file(file, |amendment| {
            amendment.write(out, known, &found.strings, &found.symbols)?;
            Ok(amendment.torn_bytes())
        })
    };
    // The sections of an uncompressed .snap can be copied.
    let can_amend = recording.format == PLAIN && std::fs::metadata(file).is_ok_and(|facts| facts.is_file());
    let (path, (torn_bytes, bytes)) = match destination {
        None if found.symbols.is_empty() => return Ok(None),
        None if recording.format != PLAIN => {
            let (file, name) = (file.display(), recording.format.name());
            let text = format!("{file} is a {name} file, which is not changed in place: name a .snap with --out");
            return Err(Failure::Usage(text));
        }
        None => (file, rewrite(file, amend)?),
        Some(destination) if can_amend => (&destination.path, destination.write(amend)?),
        Some(destination) => {
            recording.trace = mem::take(&mut recording.trace).edited(|trace| found.apply(&mut trace.tables));
            let (_, bytes) = write_to(destination, &Source::in_memory(&recording.trace), None)?;
            (&destination.path, (0, bytes))
        }
    };
    Ok(Some(Written { path: path.clone(), bytes, torn_bytes }))
}

struct SymbolizeReport<'a> {
    arguments: &'a SymbolizeArguments,
    found: LookUp,
    written: Option<Written>,
}

impl SymbolizeReport<'_> {
    /// Returns status 1 if no symbols were found for one of the program's own binaries or for all binaries, or if a
    /// binary was rejected because it was rebuilt.
    fn status(&self) -> Status {
        let is_rebuilt = |module: &ModuleOutcome| {
            module.finding.as_ref().is_some_and(|found| found.as_ref().is_err_and(|why| why.cause == Cause::Rebuilt))
        };
        let is_bare = |module: &ModuleOutcome| module.asked > 0 && module.unresolved() == module.asked;
        let is_own = |module: &&ModuleOutcome| is_of_program(&module.path);
        let has_failed = self.found.asked() > 0 && self.found.resolved() == 0
            || self.found.modules.iter().filter(is_own).any(is_bare);
        if has_failed || self.found.modules.iter().any(is_rebuilt) { Status::Broken } else { Status::Fine }
    }

    fn print_nothing(&self, page: &mut Page<'_>) -> io::Result<()> {
        let found = &self.found;
        let frames: u64 = found.modules.iter().map(|module| module.frames).sum();
        match (frames, found.imported) {
            (0, 0) => page.headline("Nothing to look up: the recording has no stacks.")?,
            (0, imported) => {
                let all = match imported {
                    1 => "the name of its only frame is".to_owned(),
                    _ => format!("the names of its {} are", count_of(imported, "frame")),
                };
                page.headline(&format!("Nothing to look up: {all} already in the recording."))?;
            }
            (frames, _) => {
                let all = match frames {
                    1 => "the only frame already has a name or a line".to_owned(),
                    _ => format!("all {} already have names or lines", count_of(frames, "frame")),
                };
                page.headline(&format!("Nothing to look up: {all}."))?;
                if !self.arguments.again {
                    page.line("With --again, frames known only by the function's name are looked up too.")?;
                }
            }
        }
        if let Some(text) = outside_modules(found.outside) {
            page.line(&text)?;
        }
        match &self.written {
            Some(written) => page.line(&format!("Wrote {} unchanged.", written.path.display())),
            None => Ok(()),
        }
    }

    /// Prints which binaries lack symbols and how to provide them, one sentence each.
    fn print_reasons(&self, page: &mut Page<'_>) -> io::Result<()> {
        let found = &self.found;
        let reasons: Vec<String> = found
            .modules
            .iter()
            .filter_map(|module| Some((module, self.reason(module)?)))
            .map(|(module, reason)| format!("{}: {reason}.", module.path))
            .collect();
        if !reasons.is_empty() || found.outside > 0 {
            page.gap()?;
        }
        for reason in reasons {
            page.warning(&reason)?;
        }
        if let Some(text) = outside_modules(found.outside) {
            page.warning(&text)?;
        }
        match &self.written {
            Some(written) if written.torn_bytes > 0 => page.warning(&format!(
                "The recording ends within a section: {} that cannot be read are left out.",
                format_bytes(written.torn_bytes)
            )),
            _ => Ok(()),
        }
    }

    /// Returns the reason some frames of a module have no file and line, and a remedy.
    fn reason(&self, module: &ModuleOutcome) -> Option<String> {
        match module.finding.as_ref()? {
            Ok(found) if !found.is_certain => {
                Some("it has no build id, so whether it was rebuilt since is unknown; link with --build-id".to_owned())
            }
            Ok(_) if module.with_names == 0 && module.unresolved() == 0 => None,
            Ok(Found { has_lines: true, .. }) => {
                let frames = count_with(module.with_names + module.unresolved(), "frame", ["lies", "lie"]);
                Some(format!("{frames} in code that was built without line information"))
            }
            Ok(_) => Some(
                "no line information; build with debug = \"line-tables-only\", or pass --debug-dir with its debug file"
                    .to_owned(),
            ),
            Err(_) if is_kernels(&module.path) => {
                Some("code of the operating system's kernel (vDSO), which is in no file".to_owned())
            }
            Err(missing) => Some(match missing.cause {
                Cause::NotThere => format!("not found ({}); {}", missing.what, self.where_else("it")),
                Cause::Rebuilt => format!("{}; {}", missing.what, self.where_else("the binary that ran")),
                Cause::Unreadable => missing.what.clone(),
            }),
        }
    }

    /// Returns a suggestion for finding `what`.
    fn where_else(&self, what: &str) -> String {
        if self.arguments.debug_dirs.is_empty() {
            format!("pass --debug-dir with a folder that contains {what} or its debug file")
        } else {
            format!("a --debug-dir must contain {what} or its debug file")
        }
    }
}

impl Report for SymbolizeReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let sum = |count: fn(&ModuleOutcome) -> u64| self.found.modules.iter().map(count).sum::<u64>().into();
        let written = self.written.as_ref();
        Facts::new([
            // Null if nothing was written.
            ("file", written.map(|written| written.path.as_path()).into()),
            ("bytes", written.map(|written| written.bytes).into()),
            // Frames within modules.
            ("frames", sum(|module| module.frames)),
            ("asked", sum(|module| module.asked)),
            ("with_lines", sum(|module| module.with_lines)),
            ("with_names", sum(|module| module.with_names)),
            ("unresolved", sum(ModuleOutcome::unresolved)),
            // Frames without lines outside all modules.
            ("outside", self.found.outside.into()),
            ("torn_bytes", written.map_or(0, |written| written.torn_bytes).into()),
            ("modules", self.table().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let rows: Rows<&ModuleOutcome> = self.found.modules.iter().filter(|module| module.asked > 0).collect();
        let found = |module: &ModuleOutcome| module.finding.as_ref().and_then(|finding| finding.as_ref().ok().cloned());
        let columns = [
            Column::text("path", "module", rows.of(|module| module.path.clone())).source_lines(),
            Column::count("frames", "", rows.of(|module| module.frames)).in_files(),
            Column::count("asked", "frames", rows.of(|module| module.asked)),
            Column::count("with_lines", "lines", rows.of(|module| module.with_lines)),
            Column::count("with_names", "names", rows.of(|module| module.with_names)),
            // The file that was read.
            Column::text(
                "from",
                "from",
                rows.of(move |module| found(module).map(|found| found.path.display().to_string())),
            )
            .shown(rows.of(|module| source(module)))
            .source_lines(),
            // Whether it is certainly the file that ran.
            Column::text("certain", "", rows.of(move |module| found(module).is_none_or(|found| found.is_certain)))
                .in_files(),
            // Why some frames have no file and line, and how to provide them.
            Column::text("reason", "", rows.of(|module| self.reason(module))).in_files(),
        ];
        Table::new(rows.count(), columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let found = &self.found;
        let asked = found.asked();
        if asked == 0 {
            return self.print_nothing(page);
        }
        let (lines, names) = found
            .modules
            .iter()
            .fold((0, 0), |(lines, names), module| (lines + module.with_lines, names + module.with_names));
        let mut headline =
            format!("{} of {} now known by file and line", format_count(lines), count_of(asked, "frame"));
        if names > 0 {
            headline += &format!(", {} by the function's name alone", format_count(names));
        }
        page.headline(&format!("{headline}."))?;
        page.gap()?.table(&self.table())?;
        self.print_reasons(page)?;
        page.gap()?;
        match &self.written {
            Some(written) => {
                page.line(&format!("Wrote {} ({}).", written.path.display(), format_bytes(written.bytes)))?;
                page.gap()?.hint(&FilesAndOptions::of(&written.path).next(
                    "peak",
                    &["--by", "frame"],
                    "for the lines that use memory",
                ))
            }
            None => page.line("Nothing was written: the recording is unchanged."),
        }
    }
}

/// Returns a sentence with the number of frames outside of all modules; `None` if there are none.
fn outside_modules(frames: u64) -> Option<String> {
    let whose = if frames == 1 { "its" } else { "their" };
    let frames = Some(count_with(frames, "frame", ["is", "are"])).filter(|_| frames > 0)?;
    Some(format!("{frames} in no module: {whose} code was generated while the program ran."))
}

/// Returns the file from which a module's symbols were read, or the reason that there is none.
fn source(module: &ModuleOutcome) -> String {
    match &module.finding {
        Some(Ok(found)) if found.path == Path::new(&module.path) => "itself".to_owned(),
        Some(Ok(found)) => found.path.display().to_string(),
        Some(Err(_)) if is_kernels(&module.path) => "(the kernel)".to_owned(),
        Some(Err(Missing { cause, .. })) => match cause {
            Cause::NotThere => "(not found)".to_owned(),
            Cause::Rebuilt => "(was rebuilt)".to_owned(),
            Cause::Unreadable => "(cannot be read)".to_owned(),
        },
        None => String::new(),
    }
}

/// Returns whether a module is code that the kernel maps into every process, which is the vDSO.
fn is_kernels(path: &str) -> bool {
    !path.contains('/') && path.contains("vdso")
}
