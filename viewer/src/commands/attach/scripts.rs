//! The scripts that begin and end a recording in a running program, and the status messages of the program, in a folder
//! that both processes access.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::{Builder, TempDir};

use crate::output::Failure;
use crate::python_package::Package;

/// The start of each script, after the lines that set its variables. If `highwater attach` no longer waits for a script
/// when it runs, the script removes the folder.
const START: &str = "\
import os, shutil, sys
def is_awaited(name):
    try:
        os.remove(os.path.join(folder, name))
        return True
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return False
try:
    sys.path.insert(0, package)
";
const IMPORT: &str = "from highwater import _attached, _binary; _binary.given = binary; _attached";
/// The end of each script, which prevents exceptions from reaching the program.
const END: &str = "
except BaseException as error:
    try:
        with open(notes, 'a') as file:
            print('error', ' '.join(str(error).split()) or type(error).__name__, file=file)
    except OSError:
        pass
finally:
    if package in sys.path:
        sys.path.remove(package)
";

#[derive(Debug)]
pub(super) struct Scripts {
    pid: u32,
    folder: TempDir,
    package: PathBuf,
}

impl Scripts {
    /// Creates the folder and writes the Python package, so that the process can use both.
    ///
    /// # Errors
    /// Fails if the files cannot be written, or if the process does not see them.
    pub(super) fn for_process(pid: u32) -> io::Result<Self> {
        let folder = Builder::new().prefix("highwater-attach-").tempdir()?;
        if !is_seen_by(pid, folder.path()) {
            return Err(io::Error::other("it runs in a container or a chroot: run `highwater attach` there"));
        }
        let is_given = give_to_user_of(pid, folder.path())?;
        // The program uses the package until the end of the recording, whether or not this process still runs.
        let package = Package::provide("", is_given)?.keep();
        give_to_user_of(pid, &package)?;
        Ok(Self { pid, folder, package })
    }

    /// Writes the script that begins a recording in `out`; `options` are those of `record_memory_history`.
    pub(super) fn begin(&self, out: &Path, options: &str) -> io::Result<PathBuf> {
        // The program can use the id of this process only within the same PID namespace.
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let is_counted = namespace("self") == namespace(&self.pid.to_string());
        let own = if is_counted { std::process::id().to_string() } else { "None".to_owned() };
        let attach = format!("attach({}, notes, dict({options}), {own})", text(out));
        self.write("begin", &format!("if is_awaited('begin'): {IMPORT}.{attach}"))
    }

    /// Writes the script that ends a recording that another process has begun.
    pub(super) fn end_other(&self) -> io::Result<PathBuf> {
        self.write("begin", &format!("if is_awaited('begin'): {IMPORT}.end(notes)"))
    }

    /// Writes the script that ends the recording.
    pub(super) fn end(&self) -> io::Result<PathBuf> {
        self.write("end", &format!("is_awaited('end'); {IMPORT}.detach()"))
    }

    fn write(&self, name: &str, line: &str) -> io::Result<PathBuf> {
        let script = self.path(&format!("{name}.py"));
        let values = [self.folder.path(), &self.package, &self.path("notes"), &std::env::current_exe()?].map(text);
        let variables = format!("folder, package, notes, binary = {}\n", values.join(", "));
        std::fs::write(&script, format!("{variables}{START}    {line}{END}"))?;
        std::fs::write(self.path(name), "")?;
        give_to_user_of(self.pid, self.folder.path())?;
        Ok(script)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn notes(&self) -> Notes {
        Notes::of(&std::fs::read_to_string(self.path("notes")).unwrap_or_default())
    }

    /// Withdraws a script that the program has not run yet; if the program runs it later, the script only removes the
    /// folder. Returns false if there is no such script, or if the program has already run it.
    pub(super) fn withdraw(&mut self, name: &str) -> bool {
        let is_withdrawn = std::fs::remove_file(self.path(name)).is_ok();
        if is_withdrawn {
            self.folder.disable_cleanup(true);
        }
        is_withdrawn
    }
}

/// The program's status messages: `recording`, `written PATH`, `ended`, or `error TEXT`.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) is_recording: bool,
    pub(super) has_ended: bool,
    pub(super) written: Vec<PathBuf>,
    pub(super) error: Option<String>,
}

impl Notes {
    fn of(lines: &str) -> Self {
        let mut notes = Self::default();
        for line in lines.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("recording", _) => notes.is_recording = true,
                ("ended", _) => notes.has_ended = true,
                ("written", path) => notes.written.push(PathBuf::from(path)),
                ("error", text) => notes.error = Some(text.to_owned()),
                _ => {}
            }
        }
        notes
    }
}

/// Returns a path as a Python string literal.
pub(super) fn text(path: &Path) -> String {
    let escaped = path.to_string_lossy().replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
    format!("'{escaped}'")
}

/// Returns whether a process sees this folder under the same path; true if this user has no permission to find out.
#[cfg(unix)]
fn is_seen_by(pid: u32, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |path: &Path| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    let Ok(inside) = folder.strip_prefix("/") else { return true };
    match (place(folder), place(&PathBuf::from(format!("/proc/{pid}/root")).join(inside))) {
        (Ok(own), Ok(other)) => own == other,
        (_, Err(why)) => why.kind() != io::ErrorKind::NotFound,
        _ => true,
    }
}

/// Gives a folder and its contents to the user of a process if this user is root and that one is not. Returns whether
/// the owner was changed.
#[cfg(unix)]
fn give_to_user_of(pid: u32, folder: &Path) -> io::Result<bool> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
        chown(path, Some(user), Some(group))?;
        if path.is_dir() {
            std::fs::read_dir(path)?.try_for_each(|entry| give(&entry?.path(), user, group))?;
        }
        Ok(())
    }
    let (own, process) = (std::fs::metadata("/proc/self")?, std::fs::metadata(format!("/proc/{pid}"))?);
    let is_given = own.uid() == 0 && process.uid() != 0;
    if is_given {
        give(folder, process.uid(), process.gid())?;
    }
    Ok(is_given)
}

#[cfg(not(unix))]
fn is_seen_by(_pid: u32, _folder: &Path) -> bool {
    true
}

#[cfg(not(unix))]
fn give_to_user_of(_pid: u32, _folder: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Size in bytes of the memory that is mapped in the program for the lines that run the script.
const BYTES: usize = 1 << 13;

/// Makes the program run `script`, which must not raise an exception, when its main thread next runs Python. The file
/// must exist until then.
///
/// # Errors
/// Fails if there is no such process, if it does not run Python, or if this user has no permission to modify it.
pub(super) fn inject(pid: u32, script: &Path) -> Result<(), Failure> {
    let done = match runs_scripts(pid).then(|| by_python(pid, script)) {
        // `PYTHON_DISABLE_REMOTE_DEBUG` was set.
        Some(Err(why)) if why.contains("not enabled") => by_debugger(pid, script),
        done => done.unwrap_or_else(|| by_debugger(pid, script)),
    };
    done.map_err(|why| Failure::Record(format!("cannot attach to process {pid}: {why}")))
}

fn executable(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

fn run(program: impl AsRef<OsStr>, words: &[&OsStr]) -> io::Result<Output> {
    Command::new(program).args(words).stdin(Stdio::null()).output()
}

/// Returns whether the name of the program's executable begins with `python`.
fn is_python(pid: u32) -> bool {
    std::fs::read_link(executable(pid))
        .is_ok_and(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")))
}

/// Returns whether the program's Python has `sys.remote_exec`, as version 3.14 or later does.
fn runs_scripts(pid: u32) -> bool {
    let asks = "import sys; sys.exit(not hasattr(sys, 'remote_exec'))";
    is_python(pid)
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

const MAY_NOT: &str = "permission denied: run it as root, or allow it with `sysctl kernel.yama.ptrace_scope=0`";

/// Makes a debugger call `Py_AddPendingCall` in the program, so that its main thread runs the script when it next runs
/// Python.
fn by_debugger(pid: u32, script: &Path) -> Result<(), String> {
    // Names that the script defines are not left in the program's main module.
    let read = format!("exec(compile(open({}, 'rb').read(), 'highwater attach', 'exec'), {{}})", text(script));
    let lines = format!("try:\n    {read}\nexcept BaseException:\n    pass\n");
    if lines.len() >= BYTES {
        return Err(format!("the path of {} is too long", script.display()));
    }
    let has_library =
        || std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|all| all.contains("libpython"));
    let runs_python = is_python(pid) || has_library();
    let pid = pid.to_string();
    let by_gdb = by_gdb(&pid, &lines, script);
    let lacks_registers =
        by_gdb.as_ref().is_ok_and(|done| String::from_utf8_lossy(&done.stderr).contains(NO_REGISTERS));
    let done = match by_gdb {
        Err(why) if why.kind() == io::ErrorKind::NotFound => by_lldb(&pid, &lines),
        Ok(_) if lacks_registers => by_lldb(&pid, &lines),
        done => done,
    };
    let done = done.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound if !runs_python => "it does not run Python".to_owned(),
        io::ErrorKind::NotFound if lacks_registers => "this version of gdb does not know all registers of this \
                                                       processor: install a later one, or lldb (`apt install lldb`), \
                                                       or start the program with `highwater run`"
            .to_owned(),
        io::ErrorKind::NotFound => "attaching to this Python version needs gdb or lldb, and neither is installed: run \
                                    `apt install gdb`, or start the program with `highwater run`"
            .to_owned(),
        _ => why.to_string(),
    })?;
    // The result of `Py_AddPendingCall`.
    if ["$1 = 0", "$0 = 0"].iter().any(|result| String::from_utf8_lossy(&done.stdout).contains(result)) {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    Err(if errors.contains("not permitted") {
        MAY_NOT.to_owned()
    } else if errors.contains("No symbol") || errors.contains("undeclared identifier") {
        "it does not run Python, or its Python does not export the C API".to_owned()
    } else {
        last_line(&done.stderr)
    })
}

/// Commands by which gdb changes a vector register and restores it. A version of gdb that does not know all of the
/// processor's registers cannot, and after a call of a function would leave the program in a state in which it crashes.
const CHECK_OF_REGISTERS: &str = "\
set $former = $xmm0.v4_int32[0]
set $xmm0.v4_int32[0] = $former ^ 1
set $xmm0.v4_int32[0] = $former
";

/// Printed by gdb in that case.
const NO_REGISTERS: &str = "Couldn't write extended state";

/// Makes gdb copy `lines` into the program and call `Py_AddPendingCall` with them.
fn by_gdb(pid: &str, lines: &str, script: &Path) -> io::Result<Output> {
    let file = script.with_extension("lines");
    std::fs::write(&file, format!("{lines}\0"))
        .map_err(|why| io::Error::other(format!("cannot write {}: {why}", file.display())))?;
    let map = format!("set $memory = ((long (*)(long, long, long, long, long, long)) mmap)(0, {BYTES}, 3, 34, -1, 0)");
    let copy = format!("restore {} binary $memory", file.display());
    let call = "print ((int (*)(void *, void *)) Py_AddPendingCall)((void *) PyRun_SimpleString, (void *) $memory)";
    // Loading the symbols of all of PyTorch's libraries takes some twenty seconds, in which the program is stopped.
    let libraries = "sharedlibrary libc[.-]\nsharedlibrary libpthread\nsharedlibrary libpython";
    let check = if cfg!(target_arch = "x86_64") { CHECK_OF_REGISTERS } else { "" };
    // gdb leaves a file of commands at the first command that fails.
    let commands = script.with_extension("gdb");
    let text = format!("set confirm off\n{libraries}\n{check}{map}\n{copy}\n{call}\n");
    std::fs::write(&commands, text)?;
    let options = ["-nx", "-batch", "-iex", "set auto-solib-add off", "-p", pid, "-x"].map(OsStr::new);
    run("gdb", &[&options, &[commands.as_os_str()][..]].concat())
}

/// Like [`by_gdb`], with lldb, which takes several seconds.
fn by_lldb(pid: &str, lines: &str) -> io::Result<Output> {
    let text = lines.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let map =
        format!("((char *(*)(void *, unsigned long, int, int, int, long)) mmap)((void *) 0, {BYTES}, 3, 34, -1, 0)");
    let copy = format!("for (long at = 0; at <= {}; at++) memory[at] = text[at]", lines.len());
    // lldb cannot pass the address of a function directly.
    let call =
        "volatile long run = (long) PyRun_SimpleString; ((int (*)(long, char *)) Py_AddPendingCall)(run, memory)";
    let whole = format!("expression -l c -- char *memory = {map}; const char *text = \"{text}\"; {copy}; {call}");
    let settings = ["target.preload-symbols false", "plugin.jit-loader.gdb.enable off"];
    let [symbols, code] = settings.map(|setting| format!("settings set {setting}"));
    let attach = format!("process attach --pid {pid}");
    let commands: [&str; 5] = [&symbols, &code, &attach, &whole, "process detach"];
    let words =
        ["--no-lldbinit", "--batch"].into_iter().chain(commands.into_iter().flat_map(|command| ["-o", command]));
    run("lldb", &words.map(OsStr::new).collect::<Vec<_>>())
}

fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("the reason is unknown").trim().to_owned()
}
