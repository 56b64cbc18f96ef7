//! Handles signals while a program runs, and waits for its end.
#![cfg_attr(all(target_os = "linux", target_env = "gnu"), expect(unsafe_code, reason = "passes a signal on"))]

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
#[cfg(unix)]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::output::Failure;

const PAUSE: Duration = Duration::from_millis(20);

/// Whether no program is running, so that signals have their default effect.
#[cfg(unix)]
static IS_IDLE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Signals that do not terminate this process while the program runs, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Signals to pass on. The flag of a signal is set when the signal is received.
    passed_on: Vec<(i32, Arc<AtomicBool>)>,
    interrupt: Arc<AtomicBool>,
    #[cfg(unix)]
    registered: Vec<signal_hook::SigId>,
}

impl Signals {
    /// Handles signals from now on; called before a program starts, so that no signal is lost. The terminal sends an
    /// interrupt to the program too, which then ends. Signals that are ignored, as under nohup, remain ignored by this
    /// process and by the program.
    pub(crate) fn catch() -> Result<Self, Failure> {
        Self::register().map_err(|why| Failure::Record(format!("cannot handle signals: {why}")))
    }

    #[cfg(not(unix))]
    fn register() -> io::Result<Self> {
        Ok(Self { passed_on: Vec::new(), interrupt: Arc::default() })
    }

    #[cfg(unix)]
    fn register() -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
        use signal_hook::flag;
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        let caught: Vec<i32> = all.into_iter().filter(|signal| !is_ignored(*signal)).collect();
        if let Some(is_idle) = IS_IDLE.get() {
            is_idle.store(false, Ordering::SeqCst);
        } else {
            // An unregistered signal would be ignored from then on.
            let is_idle = IS_IDLE.get_or_init(Arc::default);
            for &signal in &caught {
                flag::register_conditional_default(signal, Arc::clone(is_idle))?;
            }
        }
        let mut signals = Self { passed_on: Vec::new(), interrupt: Arc::default(), registered: Vec::new() };
        for signal in caught {
            let came = if signal == SIGINT { Arc::clone(&signals.interrupt) } else { Arc::default() };
            signals.registered.push(flag::register(signal, Arc::clone(&came))?);
            if ![SIGINT, SIGQUIT].contains(&signal) {
                signals.passed_on.push((signal, came));
            }
        }
        Ok(signals)
    }

    /// Returns whether an interrupt (Ctrl+C) or a signal to pass on was received since the last call.
    pub(crate) fn take_interrupt(&self) -> bool {
        let all = self.passed_on.iter().map(|(_, came)| came).chain([&self.interrupt]);
        all.fold(false, |any, came| came.swap(false, Ordering::Relaxed) | any)
    }

    /// Waits for the program's end, and passes on received signals.
    pub(crate) fn wait(&self, mut child: Child) -> io::Result<ExitStatus> {
        let pid = child.id();
        let (sender, status) = mpsc::channel();
        let wait = move || drop(sender.send(child.wait()));
        std::thread::Builder::new().name("highwater-wait".to_owned()).spawn(wait)?;
        loop {
            match status.recv_timeout(PAUSE) {
                Ok(ended) => return ended,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("its thread has ended")),
            }
            for (signal, came) in &self.passed_on {
                if came.swap(false, Ordering::Relaxed) {
                    send(pid, *signal);
                }
            }
        }
    }
}

/// Returns whether this process ignores a signal; false if the system does not report it.
#[cfg(unix)]
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Returns whether the process is running; always false without `/proc`. A process that has ended remains in the
/// process table until its parent asks for its status.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, state)| !state.trim_start().starts_with(['Z', 'X']))
}

#[cfg(unix)]
impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
        if let Some(is_idle) = IS_IDLE.get() {
            is_idle.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn send(pid: u32, signal: i32) {
    let Ok(pid) = i32::try_from(pid) else { return };
    // SAFETY: no memory is involved; the process is ours and has not ended.
    unsafe { libc::kill(pid, signal) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn send(_pid: u32, _signal: i32) {}
