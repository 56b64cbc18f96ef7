//! Makes the main thread of a running Python program execute some lines.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::output::outcome::Failure;

/// Memory for the lines in the program.
const BYTES: usize = 1 << 16;

/// Has the program run `lines`, which must not raise an exception. They run when its main thread next runs Python.
///
/// # Errors
///
/// Fails if there is no such process, if it runs no Python, or if this user may not change it.
pub(super) fn inject(pid: u32, lines: &str) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|why| Failure::Record(format!("cannot make a folder: {why}")))?;
    let file = folder.path().join("lines.py");
    // The end of a string of C.
    let text = format!("{lines}\0");
    assert!(text.len() < BYTES, "a few lines");
    let written = std::fs::write(&file, if runs_scripts(pid) { lines } else { &text });
    written.map_err(|why| Failure::Record(format!("cannot write {}: {why}", file.display())))?;
    if runs_scripts(pid) { by_python(pid, &file) } else { by_gdb(pid, &file) }
}

fn executable(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

fn run(program: impl AsRef<OsStr>, words: &[&OsStr]) -> std::io::Result<Output> {
    Command::new(program).args(words).stdin(Stdio::null()).output()
}

/// Whether the program's Python lets another process have it run a script: that of version 3.14 or later.
fn runs_scripts(pid: u32) -> bool {
    let asks = "import sys; sys.exit(not hasattr(sys, 'remote_exec'))";
    let is_python = std::fs::read_link(executable(pid))
        .is_ok_and(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")));
    is_python
        && run(executable(pid), &["-I".as_ref(), "-c".as_ref(), asks.as_ref()]).is_ok_and(|done| done.status.success())
}

fn by_python(pid: u32, file: &Path) -> Result<(), Failure> {
    let asks = "import sys, time; sys.remote_exec(int(sys.argv[1]), sys.argv[2]); time.sleep(1)";
    let pid_text = pid.to_string();
    let words: [&OsStr; 5] = ["-I".as_ref(), "-c".as_ref(), asks.as_ref(), pid_text.as_ref(), file.as_ref()];
    let done = run(executable(pid), &words);
    let why = match done {
        Ok(done) if done.status.success() => return Ok(()),
        Ok(done) => last_line(&done.stderr),
        Err(why) => why.to_string(),
    };
    Err(Failure::Record(format!("cannot attach to process {pid}: {why}")))
}

/// The debugger stops the program for a moment, and has Python call one of its functions when it is safe.
fn by_gdb(pid: u32, file: &Path) -> Result<(), Failure> {
    let pid_text = pid.to_string();
    let map = format!("set $memory = ((long (*)(long, long, long, long, long, long)) mmap)(0, {BYTES}, 3, 34, -1, 0)");
    let copy = format!("restore {} binary $memory", file.display());
    let call = "print ((int (*)(void *, void *)) Py_AddPendingCall)((void *) PyRun_SimpleString, (void *) $memory)";
    // The symbols of all libraries of PyTorch would take it some twenty seconds, in which the program stands still.
    let without_symbols = ["-nx", "-batch", "-iex", "set auto-solib-add off", "-p", &pid_text];
    let mut words: Vec<&OsStr> = without_symbols.map(OsStr::new).to_vec();
    let libraries = ["libc[.-]", "libpthread", "libpython"].map(|name| format!("sharedlibrary {name}"));
    let [c, threads, python] = libraries.each_ref().map(String::as_str);
    for command in ["set confirm off", c, threads, python, &map, &copy, call] {
        words.extend([OsStr::new("-ex"), OsStr::new(command)]);
    }
    let done = run("gdb", &words).map_err(|_| {
        let text = "attaching to Python before 3.14 needs the debugger gdb, which is not installed: apt install gdb, or start \
                    the program with `highwater run`";
        Failure::Record(text.to_owned())
    })?;
    if String::from_utf8_lossy(&done.stdout).contains("$1 = 0") {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let why = if errors.contains("not permitted") {
        "this user may not: run it as root, or allow it with `sysctl kernel.yama.ptrace_scope=0`".to_owned()
    } else if errors.contains("No symbol") {
        "it runs no Python, or one whose functions are hidden".to_owned()
    } else {
        last_line(&done.stderr)
    };
    Err(Failure::Record(format!("cannot attach to process {pid}: {why}")))
}

fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason is known").trim().to_owned()
}
