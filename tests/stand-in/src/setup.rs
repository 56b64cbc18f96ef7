//! Runs a test that uses CUDA with the stand-in in place of CUDA's libraries.
//!
//! The loader reads `LD_LIBRARY_PATH` only when a program starts. A test therefore runs itself again in a separate
//! process with the variables set, and checks the exit status:
//!
//! ```text
//! #[test]
//! fn what_is_reserved_can_be_released() {
//!     Setup::new().memory_bytes(64 << 20).run(|| {
//!         let gpu = Gpu::open(0).expect("there is a device");
//!         …
//!     });
//! }
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::libraries::install;
use crate::settings::{
    CAPABILITY_VARIABLE, DEVICES_VARIABLE, DRIVER_VARIABLE, IDLE_VARIABLE, LAZY_VARIABLE, MEMORY_VARIABLE,
    REFUSED_VARIABLE, SEED_VARIABLE,
};

/// If `1`, tests use CUDA's own libraries and a GPU, in the process of the test.
pub const GPU_VARIABLE: &str = "HIGHWATER_TEST_GPU";
/// If set, tests that need the stand-in fail if it cannot be used. Otherwise, they are skipped.
pub const REQUIRED_VARIABLE: &str = "HIGHWATER_REQUIRE_STAND_IN";
/// Set in the process that runs a test's body, to the number of the body within the test.
const INSIDE_VARIABLE: &str = "HIGHWATER_STAND_IN_INSIDE";

/// The line that is printed when a body has finished.
const DONE: &str = "the test's body has run on the stand-in";

/// The settings of the stand-in for a test.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    variables: Vec<(OsString, OsString)>,
    missing: Vec<&'static str>,
    is_for_stand_in: bool,
}

impl Setup {
    /// Creates a setup of one device with 1 GiB that runs work as soon as it is submitted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Delays work until something waits for it.
    #[must_use]
    pub fn lazy(self) -> Self {
        self.variable(LAZY_VARIABLE, "1")
    }

    /// Disables all computation, copies and fills. Untouched memory takes no memory of the host.
    #[must_use]
    pub fn idle(self) -> Self {
        self.variable(IDLE_VARIABLE, "1")
    }

    /// Sets the number of devices.
    #[must_use]
    pub fn devices(self, count: u16) -> Self {
        self.variable(DEVICES_VARIABLE, count.to_string())
    }

    /// Sets the memory of each device.
    #[must_use]
    pub fn memory_bytes(self, bytes: u64) -> Self {
        self.variable(MEMORY_VARIABLE, bytes.to_string())
    }

    /// Sets the compute capability of the devices.
    #[must_use]
    pub fn capability(self, major: i32, minor: i32) -> Self {
        self.variable(CAPABILITY_VARIABLE, format!("{major}.{minor}"))
    }

    /// Sets the CUDA version that the driver supports.
    #[must_use]
    pub fn driver(self, major: i32, minor: i32) -> Self {
        self.variable(DRIVER_VARIABLE, format!("{major}.{minor}"))
    }

    /// Number of proposed algorithms of each matrix product that fail when they are run. Later ones succeed.
    #[must_use]
    pub fn refused_proposals(self, count: u64) -> Self {
        self.variable(REFUSED_VARIABLE, count.to_string())
    }

    /// Runs blocks, warps and lanes in another order for each seed other than 0.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.variable(SEED_VARIABLE, seed.to_string())
    }

    /// Sets another environment variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Leaves out one of CUDA's libraries, such as `libnvrtc.so.13`.
    #[must_use]
    pub fn without(mut self, library: &'static str) -> Self {
        self.missing.push(library);
        self
    }

    /// Skips the test if tests use a real GPU, since it checks the stand-in itself.
    #[must_use]
    pub fn only_on_stand_in(mut self) -> Self {
        self.is_for_stand_in = true;
        self
    }

    /// Sets the environment of a program so that it finds the stand-in, in this setup, in place of CUDA.
    ///
    /// # Errors
    /// Returns the reason that the stand-in cannot be used.
    pub fn apply(&self, command: &mut Command) -> Result<(), String> {
        let folder = install(&self.missing)?;
        let mut paths = vec![folder.clone()];
        paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        let paths = std::env::join_paths(paths).map_err(|why| why.to_string())?;
        for other in ["HIGHWATER_CUDA_PATH", "CUDA_HOME", "CUDA_PATH"] {
            command.env_remove(other);
        }
        command.env("LD_LIBRARY_PATH", paths).env("HIGHWATER_KERNEL_CACHE", folder.join("kernels"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(())
    }

    /// Runs `body` in a process that finds the stand-in. If tests use a real GPU, runs it directly.
    ///
    /// A test may call this several times. Each call runs in a separate process, which executes the test up to that
    /// call, including all other code before it.
    ///
    /// # Panics
    /// Panics if the body does, with what it printed.
    pub fn run<F: FnOnce()>(self, body: F) {
        let name = test_name::<F>();
        let turn = turn_of(&name);
        if let Some(inside) = std::env::var_os(INSIDE_VARIABLE) {
            if inside == *turn.to_string() {
                body();
                say_done();
            }
            return;
        }
        if std::env::var_os(GPU_VARIABLE).is_some_and(|value| value == "1") {
            return if self.is_for_stand_in { skip("it tests the stand-in itself") } else { body() };
        }
        let test = std::env::current_exe().expect("a test knows its own path");
        let mut command = Command::new(test);
        command
            .args([&*name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(INSIDE_VARIABLE, turn.to_string());
        if let Err(why) = self.apply(&mut command) {
            assert!(std::env::var_os(REQUIRED_VARIABLE).is_none(), "{why}");
            return skip(&why);
        }
        let run = command.output().expect("a test can be run again");
        let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        let has_run = output.contains(DONE);
        assert!(run.status.success() && has_run, "{name} on the stand-in: {}\n{output}\n{errors}", run.status);
    }
}

#[expect(clippy::print_stdout, reason = "tells the process that waits for it")]
fn say_done() {
    println!("{DONE}");
}

/// Number of processes that this test has started before.
fn turn_of(test: &str) -> u32 {
    static TURNS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = turns.entry(test.to_owned()).or_default();
    *turn += 1;
    *turn - 1
}

#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Returns the name of the running test in the test harness: the name of its thread, or without threads for tests, the
/// path of its body.
fn test_name<F>() -> String {
    let thread = std::thread::current();
    if let Some(name) = thread.name().filter(|&name| name != "main") {
        return name.to_owned();
    }
    let path = std::any::type_name::<F>().split("::{{closure}}").next().unwrap_or_default();
    path.split_once("::").map_or(path, |(_crate, rest)| rest).to_owned()
}
