//! `highwater simulate`: runs a PyTorch program on a simulated GPU, records it, and reports whether it fits.

mod files;
mod found;
mod accuracy;
mod report;

pub(crate) use self::found::{Outcome, Simulated};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use highwater_analysis::GroupKey;
use highwater_app::report::Facts;
use highwater_snapshots::alloc_rules::AddressOrder;
use highwater_snapshots::parse_bytes;

use self::files::{Files, variables_of_caches};
use self::found::WithOnes;
use self::report::SimulateReport;
use crate::args::{Form, GroupKeys, arguments_of_file};
use crate::commands;
use crate::commands::next_command::shortened;
use crate::commands::peak::PeakArguments;
use crate::commands::run::{Program, Signals, make_way};
use crate::gpu::Gpu;
use crate::output::{Failure, Page, Report as _, Status};

/// Default number of training steps to run. From the second step on, the allocations usually repeat.
const STEPS: u32 = 3;

const TOP: usize = 6;

fn address_order(name: &str) -> Result<AddressOrder, String> {
    AddressOrder::named(name).ok_or_else(|| "expected 'linux' or 'windows' (also for WSL)".to_owned())
}

/// Arguments of `highwater simulate`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("card").args(["gpu", "memory"]).required(true).multiple(true),
    after_help = "Exit status: 0 if the program fits, 1 if it does not, 2 if that could not be determined.\n\n\
                  Example: highwater simulate --gpu rtx4090 -- python train.py --batch-size 8"
)]
pub struct SimulateArguments {
    /// GPU: h100, a100, rtx4090, …; determines the memory and the kernels that PyTorch chooses
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<Gpu>,
    /// Memory of each device, such as 24GiB [default: that of the GPU]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Memory outside of PyTorch's allocator: CUDA's context, NCCL's buffers, other processes
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0")]
    pub reserve: u64,
    /// Number of training steps after which the program is stopped; 0 lets it run to its end
    #[arg(long, value_name = "N", default_value_t = STEPS)]
    pub steps: u32,
    /// Run the program as one of N ranks that train together; the other ranks are not run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Rank of the program
    #[arg(long, value_name = "N", default_value_t = 0, requires = "ranks")]
    pub rank: u32,
    /// File to write [default: the program's name with .snap, in the current folder]
    ///
    /// If several processes use the device, each writes its own file: FILE.rank3.snap or FILE.pid1234.snap.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Order in which the driver returns addresses, as on linux or on windows (also WSL); the reserved bytes of some
    /// programs depend on it
    #[arg(long, value_name = "linux|windows", value_parser = address_order, default_value = "linux")]
    pub addresses: AddressOrder,
    /// Compute small tensors on the host in a first run of the program, so that loops and branches that depend on them
    /// run as on a GPU; the program runs twice
    #[arg(long)]
    pub values: bool,
    /// Determine whether allocations depend on unknown values computed on the device, and the bounds of the figures:
    /// run with --values, then with ones instead of zeros for these; the program runs four times
    #[arg(long)]
    pub bounds: bool,
    /// Initialize large tensors on the host, which are left uninitialized by default
    #[arg(long)]
    pub keep_init: bool,
    /// The output format. Unless it is text, the output of the program goes to standard error.
    #[command(flatten)]
    pub form: Form,
    /// Write the simulated GPU into this folder, and print the environment variables of programs that use it as a JSON
    /// object
    #[arg(long, value_name = "FOLDER", hide = true, conflicts_with = "words")]
    pub provide: Option<PathBuf>,
    /// Program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required_unless_present = "provide",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

// The variables of the Python package and of the library that differ between a first run and the second.
const FOLDER: &str = "HIGHWATER_SIMULATE_FOLDER";
const WRITES_ANSWERS: &str = "HIGHWATER_SIMULATE_WRITES_ANSWERS";
const READS_ANSWERS: &str = "HIGHWATER_SIMULATE_READS_ANSWERS";
const ASSUMES_ONES: &str = "HIGHWATER_SIMULATE_ASSUMES_ONES";

/// Environment variable that selects devices of this machine. It is removed for simulated devices.
const DEVICES_OF_MACHINE: &str = "CUDA_VISIBLE_DEVICES";

/// Number of devices of a simulated machine, one of which is used by each rank.
const DEVICES_OF_RANKS: u32 = 8;

/// Runs the program, reads its recording, and prints whether it fits.
///
/// # Errors
/// Fails if the program cannot be started, or nothing was recorded.
pub(crate) fn run(arguments: &SimulateArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.ranks.is_some_and(|ranks| arguments.rank >= ranks) {
        return Err(Failure::Usage(format!("invalid value '{}' for --rank: ranks are counted from 0", arguments.rank)));
    }
    if let Some(folder) = &arguments.provide {
        let variables = variables(arguments, folder)?.into_iter().map(|(name, value)| (name, value.into()));
        page.json(Facts::new(variables))?;
        return Ok(Status::Fine);
    }
    let simulated = simulate(arguments, &[])?;
    SimulateReport::of(&simulated).write(arguments.form, page)?;
    if arguments.form.is_text() {
        let mut peak = arguments_of_file::<PeakArguments>(&shortened(simulated.file()));
        (peak.by, peak.top) = (GroupKeys(vec![GroupKey::Scope, GroupKey::Category]), TOP);
        page.gap()?;
        commands::peak::run(&peak, page)?;
    }
    Ok(match simulated.outcome() {
        Outcome::Fits => Status::Fine,
        Outcome::DoesNotFit => Status::Broken,
        Outcome::Unknown(_) => Status::Unsound,
    })
}

/// Runs the program with additional environment variables, and reads its recordings.
///
/// # Errors
/// Fails if the program cannot be started, or nothing was recorded.
pub(crate) fn simulate(arguments: &SimulateArguments, more: &[(String, OsString)]) -> Result<Simulated, Failure> {
    let program = Program::find(&arguments.words)?;
    let out = file_of(arguments, &program)?;
    let gpu = gpu_of(arguments);
    let files = Files::provide(None)?;
    let signals = Signals::catch()?;
    let start = |of_run: &[(&str, PathBuf)], is_silent: bool| {
        let caches = files.caches()?;
        let mut command = Command::new(program.path());
        command.args(arguments.words.iter().skip(1));
        command.env_remove(DEVICES_OF_MACHINE);
        command.envs(files.environment()).envs(variables_of_caches(caches.path()));
        command.envs(settings(arguments, &gpu)).env(FOLDER, files.recordings());
        command.envs(more.iter().cloned()).envs(of_run.iter().cloned());
        if is_silent {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        } else if !arguments.form.is_text() {
            // Standard output is for the answer alone.
            command.stdout(standard_error());
        }
        program.run(command, &signals)
    };
    let finds_values = arguments.values || arguments.bounds;
    let first = [(WRITES_ANSWERS, files.answers()), (FOLDER, files.first_recordings())];
    let second = if finds_values { vec![(READS_ANSWERS, files.answers())] } else { Vec::new() };
    if finds_values {
        // Only the output and the status of the second run count.
        start(&first, true)?;
    }
    let status = start(&second, false)?;
    let capacity = gpu.memory_bytes.saturating_sub(arguments.reserve);
    let recorded = found::read_all(&files.recordings(), &out, capacity)?;
    if recorded.is_empty() {
        return Err(Failure::Record(nothing_recorded(&program, status, files.has_begun())));
    }
    let mut simulated = Simulated {
        gpu,
        recorded,
        status,
        reserve_bytes: arguments.reserve,
        has_values: finds_values,
        with_ones: None,
    };
    if arguments.bounds && simulated.reads_unknown_values() {
        let ones = || (ASSUMES_ONES, PathBuf::from("1"));
        start(&first.into_iter().chain([ones()]).collect::<Vec<_>>(), true)?;
        let others = (FOLDER, files.other_recordings());
        let status = start(&second.into_iter().chain([ones(), others]).collect::<Vec<_>>(), true)?;
        simulated.with_ones = Some(WithOnes { traces: found::read_traces(&files.other_recordings())?, status });
    }
    Ok(simulated)
}

/// Writes the simulated GPU into `folder`. Returns the environment variables for programs that use it, where `None`
/// means that the variable must be removed.
fn variables(arguments: &SimulateArguments, folder: &Path) -> Result<BTreeMap<&'static str, Option<String>>, Failure> {
    let files = Files::provide(Some(folder))?;
    let files = files.environment().into_iter().chain(variables_of_caches(&files.shared_caches()));
    let files = files.map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    let variables = files.chain(settings(arguments, &gpu_of(arguments))).map(|(name, value)| (name, Some(value)));
    Ok(variables.chain([(DEVICES_OF_MACHINE, None)]).collect())
}

#[cfg(unix)]
fn standard_error() -> Stdio {
    use std::os::fd::AsFd as _;
    std::io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from)
}

#[cfg(not(unix))]
fn standard_error() -> Stdio {
    Stdio::null()
}

fn gpu_of(arguments: &SimulateArguments) -> Gpu {
    // With a size alone, an A100 of this size.
    let gpu = arguments.gpu.unwrap_or_else(Gpu::unless_named);
    gpu.with_memory(arguments.memory.unwrap_or(gpu.memory_bytes))
}

/// Returns the absolute path of the recording. By default, it is named after the Python script.
fn file_of(arguments: &SimulateArguments, program: &Program) -> Result<PathBuf, Failure> {
    let name = || program.script(&arguments.words).unwrap_or_else(|| program.name());
    let file = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.snap", name())));
    let file = std::path::absolute(&file).map_err(|why| Failure::Write(format!("{}: {why}", file.display())))?;
    make_way(&file)?;
    Ok(file)
}

fn settings(arguments: &SimulateArguments, gpu: &Gpu) -> Vec<(&'static str, String)> {
    let (major, minor) = gpu.capability;
    let description =
        format!("{major}.{minor},{},{},{},{}", gpu.multiprocessors, gpu.l2_bytes, gpu.memory_bytes, gpu.name);
    let known = AddressOrder::ALL.into_iter().find(|(_, order)| *order == arguments.addresses);
    let addresses = known.map_or("", |(name, _)| name);
    let mut settings = vec![
        ("HIGHWATER_SIMULATE_GPU", description),
        // The library alone reads these; values that the user has set must have no effect here.
        ("HIGHWATER_SIMULATE_MEMORY_BYTES", String::new()),
        ("HIGHWATER_SIMULATE_CUDNN", String::new()),
        ("HIGHWATER_SIMULATE_DEVICES", "1".to_owned()),
        ("HIGHWATER_SIMULATE_RESERVED_BYTES", arguments.reserve.to_string()),
        ("HIGHWATER_SIMULATE_ADDRESSES", addresses.to_owned()),
        ("HIGHWATER_SIMULATE_STEPS", arguments.steps.to_string()),
        ("HIGHWATER_SIMULATE_KEEP_INIT", if arguments.keep_init { "1" } else { "" }.to_owned()),
    ];
    if let Some(ranks) = arguments.ranks {
        let local = arguments.rank % DEVICES_OF_RANKS;
        settings.extend([
            ("HIGHWATER_SIMULATE_RANKS", ranks.to_string()),
            ("HIGHWATER_SIMULATE_RANK", arguments.rank.to_string()),
            ("HIGHWATER_SIMULATE_DEVICES", DEVICES_OF_RANKS.min(ranks).to_string()),
            ("RANK", arguments.rank.to_string()),
            ("WORLD_SIZE", ranks.to_string()),
            ("LOCAL_RANK", local.to_string()),
            ("LOCAL_WORLD_SIZE", DEVICES_OF_RANKS.min(ranks).to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", "29500".to_owned()),
        ]);
    }
    settings
}

fn nothing_recorded(program: &Program, status: u8, has_begun: bool) -> String {
    let what = if has_begun {
        format!(
            "{} ended with status {status} before Python could exit, for example by a signal or exec: its recording is \
             lost",
            program.name()
        )
    } else if status == 0 {
        "the program has not used CUDA through PyTorch: does it choose device=\"cuda\", and does `python -c 'import torch; \
         print(torch.version.cuda)'` print a version?"
            .to_owned()
    } else {
        format!(
            "{} ended with status {status} before it used CUDA through PyTorch: see its own message above",
            program.name()
        )
    };
    format!("nothing was simulated: {what}")
}
