//! Plans for an unmodified PyTorch program: simulates it, makes a plan, and simulates it again with the lines of the
//! plan on a device of the budget's size.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::args::arguments_of;
use crate::commands::plan::PlanArguments;
use crate::commands::plan::report::Proven;
use crate::commands::simulate::{Outcome, SimulateArguments, Simulated, simulate};
use crate::gpu::Gpu;
use crate::output::Failure;
use highwater_analysis::Metric;
use highwater_app::answers::plan::{Code, Trial};

/// The environment variable with the path of the file of lines that the Python package applies.
const LINES: &str = "HIGHWATER_SIMULATE_LINES";

/// Device memory in the first simulation, in bytes. Larger than that of any real device, so that no request fails.
const UNLIMITED_BYTES: u64 = 1 << 40;

#[derive(Debug)]
pub(super) struct SimulatedProgram<'a> {
    arguments: &'a PlanArguments,
    gpu: Gpu,
}

impl<'a> SimulatedProgram<'a> {
    pub(super) fn new(arguments: &'a PlanArguments) -> Self {
        Self { arguments, gpu: arguments.gpu.unwrap_or_else(Gpu::unless_named) }
    }

    /// Returns a note on the GPU that determines the kernels, unless the user chose it.
    pub(super) fn assumed(&self) -> Option<String> {
        let name = self.gpu.name;
        let text = format!("--gpu is not given: the program is simulated with the kernels of an {name}");
        self.arguments.gpu.is_none().then_some(text)
    }

    /// Simulates the unchanged program, on a device with practically unlimited memory.
    ///
    /// # Errors
    /// Fails if nothing was recorded, or if the program did not reach its end.
    pub(super) fn recorded(&self) -> Result<Simulated, Failure> {
        let memory = UNLIMITED_BYTES.max(self.gpu.memory_bytes);
        let simulated = simulate(&self.simulation(memory, 0, None), &[])?;
        match simulated.outcome() {
            Outcome::Fits => Ok(simulated),
            Outcome::DoesNotFit => Err(Failure::Record("the program ran out of memory at its own limit".to_owned())),
            Outcome::Unknown(why) => Err(Failure::Record(format!("cannot plan: {why}"))),
        }
    }

    /// Simulates the program with the lines `code` on a device of the budget's size, and compares the result with
    /// `expected`. Writes the new recording next to `recorded`, the recording of the unmodified program.
    ///
    /// # Errors
    /// Fails if the lines cannot be written, the program cannot be started, or nothing was recorded.
    pub(super) fn prove(&self, code: &Code, expected: Trial, recorded: &Path) -> Result<Proven, Failure> {
        let mut more: Vec<(String, OsString)> =
            code.environment.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        let cannot = |why: std::io::Error| Failure::Record(format!("cannot write the lines of the plan: {why}"));
        let mut file = tempfile::NamedTempFile::new().map_err(cannot)?;
        if !code.lines.is_empty() {
            file.write_all(code.lines.join("\n").as_bytes()).map_err(cannot)?;
            more.push((LINES.to_owned(), file.path().into()));
        }
        let budget = self.arguments.budget();
        let out = recorded.with_extension("planned.snap");
        let attempt = |values: bool| {
            let simulation = self.simulation(budget.bytes, budget.reserve, Some(out.clone()));
            simulate(&SimulateArguments { values, ..simulation }, &more)
        };
        let predicted = [expected.requested, expected.allocated, expected.reserved];
        let peaks = |simulated: &Simulated| {
            [Metric::Requested, Metric::Allocated, Metric::Reserved].map(|metric| simulated.peak(metric))
        };
        let mut simulated = attempt(false)?;
        let is_as_predicted = matches!(simulated.outcome(), Outcome::Fits) && peaks(&simulated) == predicted;
        if simulated.reads_unknown_values() && !is_as_predicted {
            // With the plan, the program may read a value on which memory depends, as transformers does without a
            // cache.
            simulated = attempt(true)?;
        }
        let (fits, why) = match simulated.outcome() {
            Outcome::Fits => (Some(true), None),
            Outcome::DoesNotFit => (Some(false), Some("it runs out of memory".to_owned())),
            Outcome::Unknown(why) => (None, Some(why)),
        };
        let peaks = peaks(&simulated);
        Ok(Proven {
            fits,
            peaks,
            as_predicted: peaks == predicted,
            depends_on_values: simulated.lines_that_read(),
            why,
            file: simulated.file().to_owned(),
        })
    }

    fn simulation(&self, memory: u64, reserve: u64, out: Option<PathBuf>) -> SimulateArguments {
        let words = self.arguments.words.clone();
        SimulateArguments {
            gpu: Some(self.gpu),
            memory: Some(memory),
            reserve,
            out,
            words,
            ..arguments_of(["--json", "--memory=1", "--", "python"])
        }
    }
}
