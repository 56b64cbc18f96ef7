//! `highwater run`: records any program, using the Python package for PyTorch and a preloaded library for other uses of
//! the CUDA driver.

mod library;
pub(crate) mod signals;
mod program;
mod report;
mod unfinished;

pub(crate) use self::program::Program;
pub(crate) use self::report::report_file_of;
pub(crate) use self::signals::{Signals, is_running};

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use highwater_snapshots::{parse_bytes, parse_range};
use tempfile::{Builder, TempDir};

use self::library::Library;
use crate::output::{Failure, Page, Status};
use crate::python_package::{self, Package};

fn steps(text: &str) -> Result<Range<u32>, String> {
    parse_range(text).ok_or_else(|| "expected the first step and the step after the last, such as 10..13".to_owned())
}

pub(crate) fn function(text: &str) -> Result<String, String> {
    let is_part_of_name = |c: char| c.is_alphanumeric() || "_.:<>".contains(c);
    let is_name = !text.is_empty() && text.chars().all(is_part_of_name);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "expected a function, such as Engine.step or module:Engine.step".to_owned())
}

/// Arguments of `highwater run`.
#[derive(Clone, Debug, Args)]
pub struct ProgramArguments {
    /// File to write [default: the script's or program's name with .snap, in the current folder]
    ///
    /// If PROGRAM is a shell or a command such as env, it is named after the program that the shell runs. An existing
    /// file is replaced. If several processes use the GPU, the first writes this file and the others write
    /// FILE.rank3.snap where a launcher sets ranks, else FILE.pid1234.snap.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep only the last N events in memory, and write them when the program ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ring: Option<u64>,
    /// Record no stacks
    #[arg(long)]
    pub no_stacks: bool,
    /// Record only these training steps of PyTorch programs, counted from 0, the last one excluded: 10..13
    #[arg(long, value_name = "FROM..TO", value_parser = steps)]
    pub steps: Option<Range<u32>>,
    /// Count each call of this function of a PyTorch program as a step: Engine.step, or package.module:Engine.step
    ///
    /// For servers and loops without an optimizer, which have no steps otherwise.
    #[arg(long, value_name = "NAME", value_parser = function)]
    pub step_at: Option<String>,
    /// Also record what PyTorch programs allocate from the CUDA driver, to FILE.driver.snap
    #[arg(long)]
    pub driver: bool,
    /// Print nothing about the recording when the program has ended
    #[arg(long)]
    pub quiet: bool,
    /// Leave out blocks smaller than SIZE, such as 64KiB (they still count as reserved); has no effect on PyTorch
    /// programs
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub smallest: Option<u64>,
    /// Program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// The code that Python runs at startup. It imports the recorder only when PyTorch is imported.
const START: &str = r#"
class _BeforeTorch:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(_BeforeTorch)
        try:
            from highwater import _launched
            finder = _launched.finder()
        except Exception:
            return None
        sys.meta_path.insert(0, finder)
        return finder.find_spec(name, path, target)
if sys.version_info >= (3, 9):
    sys.meta_path.insert(0, _BeforeTorch)
"#;

const WRITTEN: [&str; 7] = ["snap", "pickle", "pkl", "json", "folded", "html", "parquet"];

/// Runs the program to its end, prints a summary of the recording to standard error, and returns the program's exit
/// status. Standard input, output and error are the program's.
pub(crate) fn run(arguments: &ProgramArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    let program = Program::find(&arguments.words)?;
    let file = file_of(arguments, &program)?;
    let library = Library::provide()?;
    let cannot = |why: io::Error| Failure::Record(format!("cannot create a folder for the run: {why}"));
    let claims = claims_beside(&file).map_err(cannot)?;
    let package = Package::provide(START, false).map_err(cannot)?;
    if !file.is_dir() {
        make_way(&file)?;
    }
    let mut command = Command::new(program.path());
    command.args(arguments.words.iter().skip(1));
    command.envs(settings(arguments, &file, claims.path()));
    command.envs(python_package::environment(package.path()));
    command.env("LD_PRELOAD", library.among(std::env::var_os("LD_PRELOAD")));
    let signals = Signals::catch()?;
    let status = program.run(command, &signals)?;
    unfinished::remove(&file, claims.path());
    if !arguments.quiet {
        report::report(&program, &file, claims.path(), arguments.driver);
    }
    Ok(Status::Program(status))
}

/// Creates a folder in which processes claim file names: in the folder of temporary files, or otherwise in the folder
/// of the recording, which must be writable in any case.
fn claims_beside(file: &Path) -> io::Result<TempDir> {
    let in_folder = |folder: &Path| Builder::new().prefix("highwater-run-").tempdir_in(folder);
    let beside = if file.is_dir() { Some(file) } else { file.parent() };
    in_folder(&std::env::temp_dir()).or_else(|why| beside.and_then(|folder| in_folder(folder).ok()).ok_or(why))
}

/// Returns the absolute path of the recording, since the program may change its working folder. For a program that only
/// starts other programs, returns a folder in which the recorded program chooses the file name.
fn file_of(arguments: &ProgramArguments, program: &Program) -> Result<PathBuf, Failure> {
    let named = || match program.script(&arguments.words) {
        Some(script) => format!("{script}.snap"),
        None if program.starts_others() => ".".to_owned(),
        None => format!("{}.snap", program.name()),
    };
    let file = arguments.out.clone().unwrap_or_else(|| PathBuf::from(named()));
    // The recorder of PyTorch programs would report this only after the program has run for a while.
    let ending = file.file_name().map(|name| name.to_string_lossy().trim_end_matches(".gz").to_owned());
    let ending = ending.as_deref().map(Path::new).and_then(Path::extension).map(|ending| ending.to_string_lossy());
    let is_given_file = arguments.out.is_some() && !file.is_dir();
    if let Some(ending) = ending.filter(|ending| is_given_file && !WRITTEN.contains(&&**ending)) {
        let text = format!(
            "cannot record to {}: unknown suffix '.{ending}': expected .{}",
            file.display(),
            WRITTEN.join(", .")
        );
        return Err(Failure::Usage(text));
    }
    std::path::absolute(&file).map_err(|why| Failure::Write(format!("{}: {why}", file.display())))
}

/// Fails before rather than after the run if the file cannot be written. An existing file remains until it is replaced.
pub(crate) fn make_way(file: &Path) -> Result<(), Failure> {
    let cannot =
        |why: io::Error| Failure::Write(format!("cannot write {}: {why}; choose another with --out", file.display()));
    if file.exists() && !file.is_file() {
        return Err(Failure::Write(format!("{} is not a regular file; choose another with --out", file.display())));
    }
    let is_new = !file.exists();
    OpenOptions::new().write(true).create(true).truncate(false).open(file).map_err(cannot)?;
    if is_new { std::fs::remove_file(file).map_err(cannot) } else { Ok(()) }
}

fn settings(arguments: &ProgramArguments, file: &Path, claims: &Path) -> Vec<(&'static str, OsString)> {
    let level = if arguments.no_stacks { "events" } else { "stacks" };
    let steps = arguments.steps.as_ref().map_or_else(String::new, |steps| format!("{}..{}", steps.start, steps.end));
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default().into();
    vec![
        ("HIGHWATER_RUN_FILE", file.into()),
        ("HIGHWATER_RUN_CLAIMS", claims.into()),
        ("HIGHWATER_RUN_LEVEL", level.into()),
        ("HIGHWATER_RUN_RING", number(arguments.ring)),
        ("HIGHWATER_RUN_SMALLEST", number(arguments.smallest)),
        ("HIGHWATER_RUN_STEPS", steps.into()),
        ("HIGHWATER_RUN_STEP_AT", arguments.step_at.clone().unwrap_or_default().into()),
        ("HIGHWATER_RUN_DRIVER", if arguments.driver { "1" } else { "" }.into()),
    ]
}
