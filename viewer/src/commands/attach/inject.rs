//! Makes the main thread of a running Python program execute a script.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::scripts::text;
use crate::output::outcome::Failure;

/// Memory in the program, for a line that runs the script.
const BYTES: usize = 1 << 13;

/// Has the program run `script`, which must not raise an exception, when its main thread next runs Python. The file
/// must remain until then.
///
/// # Errors
///
/// Fails if there is no such process, if it runs no Python, or if this user may not change it.
pub(super) fn inject(pid: u32, script: &Path) -> Result<(), Failure> {
    let why = match runs_scripts(pid).then(|| by_python(pid, script)) {
        Some(Ok(())) => return Ok(()),
        // `PYTHON_DISABLE_REMOTE_DEBUG` was set.
        Some(Err(why)) if why.contains("not enabled") => by_gdb(pid, script).err(),
        Some(Err(why)) => Some(why),
        None => by_gdb(pid, script).err(),
    };
    why.map_or(Ok(()), |why| Err(Failure::Record(format!("cannot attach to process {pid}: {why}"))))
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

fn by_python(pid: u32, script: &Path) -> Result<(), String> {
    let asks = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])";
    let pid_text = pid.to_string();
    let words: [&OsStr; 5] = ["-I".as_ref(), "-c".as_ref(), asks.as_ref(), pid_text.as_ref(), script.as_ref()];
    match run(executable(pid), &words) {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) if String::from_utf8_lossy(&done.stderr).contains("not permitted") => Err(MAY_NOT.to_owned()),
        Ok(done) => Err(last_line(&done.stderr)),
        Err(why) => Err(why.to_string()),
    }
}

const MAY_NOT: &str = "this user may not: run it as root, or allow it with `sysctl kernel.yama.ptrace_scope=0`";

/// The debugger stops the program for a moment, and has Python call one of its functions when it is safe.
fn by_gdb(pid: u32, script: &Path) -> Result<(), String> {
    // The end of a string of C. What the script defines is not left in the program's main module.
    let read = format!("exec(compile(open({}, 'rb').read(), 'highwater attach', 'exec'), {{}})", text(script));
    let lines = format!("try:\n    {read}\nexcept BaseException:\n    pass\n\0");
    let file = script.with_extension("lines");
    if lines.len() > BYTES {
        return Err(format!("the path of {} is too long", file.display()));
    }
    std::fs::write(&file, lines).map_err(|why| format!("cannot write {}: {why}", file.display()))?;
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
        "this Python cannot be asked without the debugger gdb, which is not installed: apt install gdb, or start the \
         program with `highwater run`"
            .to_owned()
    })?;
    if String::from_utf8_lossy(&done.stdout).contains("$1 = 0") {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    Err(if errors.contains("not permitted") {
        MAY_NOT.to_owned()
    } else if errors.contains("No symbol") {
        "it runs no Python, or one whose functions are hidden".to_owned()
    } else {
        last_line(&done.stderr)
    })
}

fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason is known").trim().to_owned()
}
