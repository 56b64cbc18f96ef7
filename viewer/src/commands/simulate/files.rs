//! The folder for a simulation: the simulated GPU, the Python package, and the recordings of the program's processes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::output::Failure;
use crate::python_package::{self, before};

/// The library embedded in the binary; empty if the binary was built without it.
#[cfg(feature = "simulate")]
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/simulate.so"));
#[cfg(not(feature = "simulate"))]
const LIBRARY: &[u8] = &[];

/// The names under which programs and libraries open the driver and NVML. The first is the name of the actual file.
const NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];

const START: &str = "from highwater import _simulated\n_simulated.start()\n";

/// The folder with the simulated driver and the Python package. The loader and Python search it first.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// The temporary folder, if there is one. Dropping it removes the folder.
    _temporary: Option<tempfile::TempDir>,
}

impl Files {
    /// Writes all files for the program into `folder`, or by default into a temporary folder, which is removed at the
    /// end.
    ///
    /// # Errors
    /// Fails if this build has no simulated GPU, or if the folder cannot be written to.
    pub(super) fn provide(folder: Option<&Path>) -> Result<Self, Failure> {
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            let text = "`highwater simulate` works on Linux with the GNU C library: on Windows use WSL, elsewhere a container, \
                        with PyTorch's CUDA wheel";
            return Err(Failure::Record(text.to_owned()));
        }
        if LIBRARY.is_empty() {
            let text =
                "this build does not include the simulated GPU: build highwater with its default feature 'simulate'";
            return Err(Failure::Record(text.to_owned()));
        }
        let cannot = |why: io::Error| Failure::Record(format!("cannot create a folder for the simulation: {why}"));
        let make = || tempfile::Builder::new().prefix("highwater-simulate-").tempdir();
        let files = match folder {
            Some(folder) => Self { folder: std::path::absolute(folder).map_err(cannot)?, _temporary: None },
            None => {
                let temporary = make().map_err(cannot)?;
                Self { folder: temporary.path().to_owned(), _temporary: Some(temporary) }
            }
        };
        files.write().map_err(cannot)?;
        Ok(files)
    }

    fn write(&self) -> io::Result<()> {
        for folder in [self.libraries(), self.recordings(), self.first_recordings(), self.other_recordings()] {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(self.libraries().join(NAMES[0]), LIBRARY)?;
        #[cfg(unix)]
        for name in &NAMES[1..] {
            std::os::unix::fs::symlink(NAMES[0], self.libraries().join(name))?;
        }
        python_package::write(&self.start(), START)
    }

    fn libraries(&self) -> PathBuf {
        self.folder.join("lib")
    }

    fn start(&self) -> PathBuf {
        self.folder.join("start")
    }

    pub(super) fn recordings(&self) -> PathBuf {
        self.folder.join("recordings")
    }

    /// Whether a process has used CUDA through PyTorch, recorded or not.
    pub(super) fn has_begun(&self) -> bool {
        let entries = std::fs::read_dir(self.recordings()).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(".begun"))
    }

    /// Returns the folder for the recordings of a first run of the program, which are discarded.
    pub(super) fn first_recordings(&self) -> PathBuf {
        self.folder.join("first")
    }

    /// Returns the folder for the recordings of the run in which unknown values are ones instead of zeros.
    pub(super) fn other_recordings(&self) -> PathBuf {
        self.folder.join("other")
    }

    /// Returns the file in which a first run of the program stores values for the second run.
    pub(super) fn answers(&self) -> PathBuf {
        self.folder.join("answers")
    }

    /// Creates a folder for the caches of one run. The folder is removed when the result is dropped.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub(super) fn caches(&self) -> Result<tempfile::TempDir, Failure> {
        let made = tempfile::Builder::new().prefix("caches-").tempdir_in(&self.folder);
        made.map_err(|why| Failure::Record(format!("cannot create a folder for the caches of the program: {why}")))
    }

    /// The folder for the caches of programs that the user runs.
    pub(super) fn shared_caches(&self) -> PathBuf {
        self.folder.join("caches")
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            ("HIGHWATER_SIMULATE_LIBRARY", self.libraries().join(NAMES[0]).into()),
            ("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &self.libraries())),
        ];
        variables.extend(python_package::environment(&self.start()));
        variables
    }
}

/// Returns the environment variables for the caches of Inductor and Triton, unless the user has set them. Otherwise,
/// the default caches would store kernels chosen by simulated times, which would change the allocations of later runs.
pub(super) fn variables_of_caches(folder: &Path) -> Vec<(&'static str, OsString)> {
    let names = [("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")];
    let unset = names.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    unset.map(|(name, inner)| (name, folder.join(inner).into())).collect()
}
