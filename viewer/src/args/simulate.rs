//! The options of `highwater simulate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use highwater_snapshots::alloc_rules::AddressOrder;
use highwater_snapshots::units::parse_bytes;

use crate::gpu::Gpu;

/// Training steps that are run by default: of the second on, nothing new is usually allocated.
const STEPS: u32 = 3;

fn address_order(name: &str) -> Result<AddressOrder, String> {
    AddressOrder::named(name).ok_or_else(|| "expected 'linux' or 'windows' (also for WSL)".to_owned())
}

impl SimulateArguments {
    /// The defaults for a program on a GPU. What it prints goes to standard error.
    pub fn of(words: Vec<OsString>, gpu: Gpu) -> Self {
        Self {
            gpu: Some(gpu),
            memory: None,
            reserve: 0,
            steps: STEPS,
            ranks: None,
            rank: 0,
            out: None,
            addresses: AddressOrder::default(),
            values: false,
            bounds: false,
            keep_init: false,
            json: true,
            provide: None,
            words,
        }
    }
}

/// `highwater simulate`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("card").args(["gpu", "memory"]).required(true).multiple(true),
    after_help = "Exit status: 0 if the program fits, 1 if it does not, 2 if that could not be told.\n\n\
                  Example: highwater simulate --gpu rtx4090 -- python train.py --batch-size 8"
)]
pub struct SimulateArguments {
    /// GPU: h100, a100, rtx4090, …; it decides the memory, and the kernels that PyTorch chooses
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<Gpu>,
    /// Memory of each device, such as 24GiB [default: that of the GPU]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Memory that lies outside of PyTorch's allocator: CUDA's context, NCCL's buffers, other processes
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0")]
    pub reserve: u64,
    /// Training steps after which the program is ended; 0 lets it run to its end
    #[arg(long, value_name = "N", default_value_t = STEPS)]
    pub steps: u32,
    /// Run the program as one of N ranks that train together, without the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// The rank that the program is run as
    #[arg(long, value_name = "N", default_value_t = 0, requires = "ranks")]
    pub rank: u32,
    /// File to write [default: the program's name with .snap, in the current folder]
    ///
    /// If several processes use the device, each writes a file of its own: FILE.rank3.snap or FILE.pid1234.snap.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Order of addresses as of a driver's on linux or on windows (also WSL), on which the reserved bytes of some programs
    /// depend
    #[arg(long, value_name = "linux|windows", value_parser = address_order, default_value = "linux")]
    pub addresses: AddressOrder,
    /// Compute small tensors on the host in a first run of the program, so that loops and branches that depend on them run
    /// as on a GPU; the program runs twice
    #[arg(long)]
    pub values: bool,
    /// Find out whether what is allocated depends on values of the device that are not known, and between which figures:
    /// with --values, and then with ones instead of zeros for these; the program runs four times
    #[arg(long)]
    pub bounds: bool,
    /// Initialize large tensors of the host, which are left as they are by default
    #[arg(long)]
    pub keep_init: bool,
    /// Print one JSON object: sizes in bytes; what the program prints goes to standard error
    #[arg(long)]
    pub json: bool,
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
