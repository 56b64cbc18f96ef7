//! The program to run, and the reasons that the loader may not have preloaded the library into it.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::signals::Signals;
use crate::output::Failure;

/// Shells. A recording is named after the program that the shell runs.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

/// Commands that run another program. A recording is named after that program.
const LAUNCHERS: [&str; 6] = ["env", "nice", "nohup", "numactl", "taskset", "timeout"];

/// Launchers of ranks that accept `-m MODULE` as Python does, and their own module names.
const MODULE_LAUNCHERS: [&str; 3] = ["torchrun", "accelerate", "deepspeed"];
const LAUNCHER_MODULES: [&str; 4] =
    ["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"];

#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// Finds the program named by the first word, as a shell does.
    pub(crate) fn find(words: &[OsString]) -> Result<Self, Failure> {
        let word = words.first().cloned().unwrap_or_default();
        let is_path = Path::new(&word).components().count() > 1 || word.as_encoded_bytes().contains(&b'/');
        let candidates: Vec<PathBuf> = if is_path {
            vec![PathBuf::from(&word)]
        } else {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders).map(|folder| folder.join(&word)).collect()
        };
        let is_there = candidates.iter().any(|path| path.is_file());
        let found = candidates.into_iter().find(|path| can_be_run(path));
        found.map(|path| Self { path }).ok_or_else(|| {
            let word = Path::new(&word).display();
            let place = match (is_there, is_path) {
                (true, _) => "the file is not executable",
                (false, true) => "no such file",
                (false, false) => "not found in PATH",
            };
            Failure::Usage(format!("cannot run '{word}': {place}; `highwater run -- PROGRAM ARGUMENTS…`"))
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns whether the program is a shell or a command that runs another program named in its arguments.
    pub(crate) fn starts_others(&self) -> bool {
        SHELLS.iter().chain(&LAUNCHERS).any(|known| *known == self.name())
    }

    /// Returns the Python script or module that `words` run, without its folder and extension.
    pub(crate) fn script(&self, words: &[OsString]) -> Option<String> {
        // A shell's commands, and what its scripts do with their arguments, are not known.
        if SHELLS.contains(&self.name().as_str()) {
            return None;
        }
        let mut runs_modules = false;
        let mut words = words.iter().map(Path::new);
        while let Some(word) = words.next() {
            let name = word.file_name().unwrap_or_default().to_string_lossy();
            if word == Path::new("-m") && runs_modules {
                let module = words.next()?.to_string_lossy().into_owned();
                if !LAUNCHER_MODULES.contains(&module.as_str()) {
                    return Some(module.rsplit('.').next()?.to_owned());
                }
            } else if word.extension().is_some_and(|extension| extension == "py") {
                return Some(word.file_stem()?.to_string_lossy().into_owned());
            }
            runs_modules |= name.starts_with("python") || MODULE_LAUNCHERS.contains(&&*name);
        }
        None
    }

    /// Runs `command`, which starts this program, to its end, and passes signals on. Returns its exit status, or 128
    /// plus the signal number if a signal killed it, as in shells.
    pub(crate) fn run(&self, mut command: Command, signals: &Signals) -> Result<u8, Failure> {
        let started = command.spawn();
        let child = started.map_err(|why| Failure::Usage(format!("cannot run {}: {why}", self.path.display())))?;
        let ended = signals.wait(child);
        let ended = ended.map_err(|why| Failure::Record(format!("cannot wait for {}: {why}", self.name())))?;
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&ended) {
            return Ok(128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)));
        }
        Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2))
    }

    /// Returns the reason the loader does not preload the library into this program, if its file shows that.
    pub(crate) fn resists(&self) -> Option<String> {
        let name = self.name();
        #[cfg(unix)]
        if let Ok(facts) = std::fs::metadata(&self.path)
            && std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o6000 != 0
        {
            return Some(format!("{name} is setuid or setgid: the loader does not preload libraries into it"));
        }
        let mut start = Vec::new();
        std::fs::File::open(&self.path).and_then(|file| file.take(1 << 16).read_to_end(&mut start)).ok()?;
        match loaded_by(&start)? {
            Loader::Missing => Some(format!("{name} is statically linked: no library can be preloaded into it")),
            Loader::Foreign => Some(format!("{name} is built for another processor architecture than this highwater")),
            Loader::Usual => None,
        }
    }
}

/// Returns whether this is a file that some user may execute.
fn can_be_run(path: &Path) -> bool {
    let Ok(facts) = std::fs::metadata(path) else { return false };
    #[cfg(unix)]
    let may_be = std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_be = true;
    facts.is_file() && may_be
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loader {
    Usual,
    Missing,
    Foreign,
}

/// Returns the loader of a program whose file begins with `start`; `None` if the file is not a binary, such as a
/// script.
fn loaded_by(start: &[u8]) -> Option<Loader> {
    let number = |at: usize, bytes: usize| {
        let field = start.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0_usize, |number, &byte| number << 8 | usize::from(byte)))
    };
    if !start.starts_with(b"\x7fELF") {
        return None;
    }
    // 64-bit, little-endian, and the machine's number.
    let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    if start.get(4..6)? != [2, 1] || number(18, 2)? != machine {
        return Some(Loader::Foreign);
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    const INTERPRETER: usize = 3;
    for index in 0..count {
        if number(first.checked_add(index * size)?, 4)? == INTERPRETER {
            return Some(Loader::Usual);
        }
    }
    Some(Loader::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_shows_who_loads_its_libraries() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        if cfg!(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))) {
            assert_eq!(loaded_by(&own), Some(Loader::Usual));
            let mut other = own.clone();
            other[18] = 8;
            assert_eq!(loaded_by(&other), Some(Loader::Foreign));
            let mut alone = own[..4096].to_vec();
            alone[56..58].copy_from_slice(&[0, 0]);
            assert_eq!(loaded_by(&alone), Some(Loader::Missing));
        }
        assert_eq!(loaded_by(b"#!/bin/sh\n"), None);
        for end in 0..64 {
            let _ = loaded_by(&own[..end]);
        }
    }

    #[test]
    fn scripts_and_modules_are_found_behind_launchers_and_options() {
        let script = |text: &str| {
            let words: Vec<OsString> = text.split('|').map(OsString::from).collect();
            Program { path: PathBuf::from("/usr/bin").join(&words[0]) }.script(&words)
        };
        assert_eq!(script("python3|-u|tools/train.py|--data|x.csv").as_deref(), Some("train"));
        assert_eq!(script("torchrun|--nproc-per-node|2|train.py").as_deref(), Some("train"));
        assert_eq!(script("python|-m|package.train|other.txt").as_deref(), Some("train"));
        assert_eq!(script("python|-m|torch.distributed.run|-m|package.train").as_deref(), Some("train"));
        assert_eq!(script("torchrun|-m|package.train").as_deref(), Some("train"));
        assert_eq!(script("python|-m|tool|config.py").as_deref(), Some("tool"));
        assert_eq!(script("timeout|1h|python3|train.py").as_deref(), Some("train"));
        assert_eq!(script("bash|job.sh|config.py"), None);
        assert_eq!(script("sh|-c|cd x && python train.py"), None);
        assert_eq!(script("./program|-m|7"), None);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let missing = |word: &str| Program::find(&[word.into()]).unwrap_err().to_string();
        assert!(missing("no-program-has-this-name").contains("not found in PATH"));
        assert!(missing("./no-program-has-this-name").contains("no such file"));
        let text = tempfile::NamedTempFile::new().unwrap();
        assert!(missing(text.path().to_str().unwrap()).contains("the file is not executable"));
    }
}
