//! Ends the simulated program when the command that started it has ended, even if the command was killed.
#![expect(unsafe_code, reason = "calls the system")]

use std::ffi::c_int;

use crate::abi::{INVALID_VALUE, SUCCESS, answer, functions};

/// Waits until the process with file descriptor `descriptor` ends, then kills the current process.
fn wait_and_end(descriptor: c_int) {
    let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one local variable.
        let ended = unsafe { libc::poll(&raw mut watched, 1, -1) };
        if ended == 1 && watched.revents & libc::POLLIN != 0 {
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        // The program has closed the descriptor, or there is another error, so the program continues.
        if ended == 1 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

functions! {
    /// Kills the current process when `process`, such as `highwater simulate`, ends or is killed. Fails for process 0,
    /// and on kernels that do not support this (before Linux 5.3).
    fn highwater_simulate_end_with(process: c_int) {
        if process <= 0 { return INVALID_VALUE; }
        // SAFETY: takes numbers.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        if descriptor < 0 { return INVALID_VALUE; }
        let mut all = std::mem::MaybeUninit::uninit();
        let mut before = std::mem::MaybeUninit::uninit();
        // Signals are meant for the program's threads, so the new thread blocks them all.
        // SAFETY: both are local variables, of which `sigfillset` and `pthread_sigmask` write the one and the other.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        let started = std::thread::Builder::new()
            .name("highwater".to_owned())
            .stack_size(64 << 10)
            .spawn(move || wait_and_end(descriptor as c_int));
        // SAFETY: was written above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        if started.is_ok() { SUCCESS } else { INVALID_VALUE }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// Set in a process of the test below: the process that it ends with.
    const PROCESS: &str = "HIGHWATER_TEST_ENDS_WITH";

    #[test]
    fn a_process_is_killed_when_the_one_that_it_watches_ends() {
        if let Ok(process) = std::env::var(PROCESS) {
            assert_eq!(highwater_simulate_end_with(process.parse().unwrap()), SUCCESS);
            std::thread::sleep(std::time::Duration::from_secs(60));
            return;
        }
        let mut watched = Command::new("sleep").arg("60").spawn().unwrap();
        let name = "watch::tests::a_process_is_killed_when_the_one_that_it_watches_ends";
        let mut watching = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(PROCESS, watched.id().to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(watching.try_wait().unwrap().is_none(), "goes on while the other one does");
        watched.kill().unwrap();
        watched.wait().unwrap();
        assert_eq!(watching.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(highwater_simulate_end_with(0), INVALID_VALUE);
        assert_eq!(highwater_simulate_end_with(i32::MAX), INVALID_VALUE);
    }
}
