//! Every command and option; clap derives the parser and the help from it.

mod values;
mod check;
mod convert;
mod diff;
mod explain;
mod growth;
mod join;
mod oom;
#[cfg(feature = "engine")]
mod record;
#[cfg(not(feature = "engine"))]
#[path = "args/record_disabled.rs"]
mod record;
mod plan;
mod render;
mod run;
mod attach;
mod serve;
mod simulate;
mod symbolize;
mod whatif;
mod given;

pub use attach::AttachArguments;
pub use check::{CategoryLimit, CheckArguments, PhaseLimit, category_of, phase_of};
pub use convert::{ConvertArguments, ConvertTable, ConvertTo};
pub use diff::DiffArguments;
pub use explain::ExplainArguments;
pub use given::Given;
pub use growth::GrowthArguments;
pub use join::{JoinArguments, Seconds};
pub use oom::OomArguments;
pub use plan::{Maximize, PlanArguments};
pub use record::{RecordArguments, ScenarioArguments};
pub use render::{
    PictureAt, PictureAxis, PictureBy, PictureColours, PictureOrder, PictureSize, PictureTheme, RenderArguments,
};
pub use run::ProgramArguments;
pub use serve::ServeArguments;
pub use simulate::SimulateArguments;
pub use symbolize::SymbolizeArguments;
pub use values::{At, Categories, ComparedAt, GroupKeys, Where};
pub use whatif::{Scaled, WhatIfArguments};

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use highwater_analysis::guess::RULES;
use highwater_analysis::{GroupKey, Metric, Siblings};
use highwater_snapshots::event::EventKind;

use values::{kind_parser, metric_parser};

/// Show where GPU memory goes
///
/// `highwater FILE…` opens recordings in the desktop app; every command below works without a display.
/// FILE is a `.snap` recording or a PyTorch memory snapshot: a pickle, JSON, or a page saved by `trace_plot`, each
/// optionally gzipped. The format is detected from the content. `-` is standard input. Sizes are in binary units
/// (1 KiB is 1024 bytes).
///
/// Exit status: 0 on success; 1 if a budget was exceeded (`check`), nothing fits it (`plan`) or nothing was found
/// (`symbolize`), or a program does not fit (`simulate`); 2 for invalid usage, for a file that cannot be read
/// or is inconsistent (`verify`), and for a scenario that ran out of memory (`record`).
#[derive(Debug, Parser)]
#[command(name = "highwater", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Arguments {
    /// The command; without one, the app opens
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Recordings to open in the app
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a built-in training step and write its recording
    Record(Box<RecordArguments>),
    /// Run any program, unchanged, and record its GPU memory: PyTorch by module, others by driver call (Linux)
    ///
    /// Every process that uses CUDA through PyTorch is recorded with modules, phases and steps, also under torchrun and
    /// other launchers. Of other programs, a preloaded library records what they allocate from the CUDA driver: of a
    /// caching allocator the segments, not the blocks within them. The exit status is the program's.
    Run(ProgramArguments),
    /// Record a PyTorch program that is already running, for some steps or some time (Linux)
    ///
    /// The program is changed while it is recorded, and is as before afterwards. What is live when the recording begins
    /// is its baseline, without stacks.
    Attach(AttachArguments),
    /// Run a PyTorch program on a simulated GPU: what it needs, and whether it fits, without a GPU (Linux)
    ///
    /// The program needs no change and runs with its own PyTorch, whose allocator decides every byte. The device has
    /// no contents: kernels do nothing, and its values are zeros. Modules, phases and steps are recorded.
    Simulate(Box<SimulateArguments>),
    /// Show what a recording contains: devices, peaks, and its limitations; for a folder, ranks and outliers
    Info(InfoArguments),
    /// Show what is using memory at the peak, or at any event
    Peak(PeakArguments),
    /// Show memory by step and phase
    Phases(PhasesArguments),
    /// Explain the peak: its composition, the peak without each group, and advice
    Explain(ExplainArguments),
    /// Find the cheapest changes with which a training step fits a memory budget; exit with status 1 if nothing fits
    Plan(Box<PlanArguments>),
    /// Compare two recordings, or two steps of one
    Diff(Box<DiffArguments>),
    /// Find leaks: memory that grows from step to step
    Growth(GrowthArguments),
    /// Analyse out-of-memory errors: why the request failed, and what would have let it succeed
    Oom(OomArguments),
    /// Check a recording against memory budgets; exit with status 1 and name the cause if one is exceeded
    Check(Box<CheckArguments>),
    /// Replay a recording with changes: other allocator settings, another device size, blocks removed or smaller
    #[command(name = "whatif")]
    WhatIf(Box<WhatIfArguments>),
    /// List the events
    Events(EventsArguments),
    /// Check the checksums and invariants of a recording; exit with status 2 if it is not sound
    Verify(VerifyArguments),
    /// Convert a recording for PyTorch's viewer, flame graphs or query engines, or to .snap
    Convert(ConvertArguments),
    /// Merge several recordings into one, on a common time axis
    Join(JoinArguments),
    /// Look up functions, files and lines for the bare addresses of a recording, in place
    Symbolize(SymbolizeArguments),
    /// Draw a recording as a PNG or SVG picture, without a display
    Render(Box<RenderArguments>),
    /// Serve the app and recordings to a browser on this or another computer
    Serve(ServeArguments),
    /// Print the completions of commands and options for a shell
    Completions(CompletionsArguments),
}

/// `highwater completions`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "The shell must load the output: highwater completions bash > \
                        ~/.local/share/bash-completion/completions/highwater")]
pub struct CompletionsArguments {
    /// The shell
    pub shell: Shell,
}

/// The arguments of every command that reads a recording and has a table.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// The form of an answer with a table: text, unless another is given.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Form {
    /// Print one JSON object: sizes in bytes, times in microseconds since 1970
    #[arg(long)]
    pub json: bool,
    /// Print the table as comma-separated values: sizes in bytes, names of columns first
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

impl Form {
    /// Whether the answer is text.
    pub fn is_text(self) -> bool {
        !self.json && !self.csv
    }
}

/// The arguments of a command that reads a recording and has no table.
#[derive(Clone, Debug, Args)]
pub struct TablelessSource {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON object: sizes in bytes, times in microseconds since 1970
    #[arg(long)]
    pub json: bool,
}

/// Which device to look at.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DeviceChoice {
    /// Device N [default: the one that ran out of memory, else the one with the highest peak]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
}

/// Which blocks to look at.
#[derive(Clone, Debug, Default, Args)]
pub struct BlockChoice {
    /// Only blocks that match all conditions, such as 'category=activation size>=1MiB', or a plain word: adam
    ///
    /// A plain word or quoted phrase matches where the stack, scope, op or category contains it, ignoring case. Text keys
    /// (category, op, scope, phase, pool, lifetime, stack, frame) take = != ~ !~ where ~ means "contains"; numeric keys
    /// (size, allocated, step, stream, device) take = != < <= > >=. Comma-separated values match any of them. Lifetimes:
    /// phase, step, steps (freed in the same phase, the same step, a later step), kept (live at the end); `before` and
    /// `always`: allocated before the recording, and freed in it or live at its end.
    #[arg(long = "where", value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: Where,
}

/// How modules are listed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ModuleChoice {
    /// List each module: by default, modules that are equal but for a number in their paths, such as layers, are one row
    #[arg(long)]
    pub each: bool,
}

impl ModuleChoice {
    /// Whether equal modules are one row.
    pub fn siblings(self) -> Siblings {
        if self.each { Siblings::Each } else { Siblings::Merged }
    }
}

/// The long help of `--categories`.
static CATEGORIES_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Source of the categories that are not recorded: 'guess' derives them, and phases and steps, from stacks and \
         lifetimes; 'none' leaves them unknown; a rules file has lines such as\n\n  \
         optimizer_state if stack~adam.py lifetime=kept\n  builtin off\n\nwith conditions as in --where; the first \
         matching line wins, then the built-in rules, unless the file has 'builtin off'. [default: guess for \
         PyTorch's files; a .snap keeps what was guessed when it was written]\n\nThe built-in rules:\n{RULES}"
    )
});

/// How the parts of a recording that are not recorded are derived: categories, and whose code a line is.
#[derive(Clone, Debug, Default, Args)]
pub struct CategoryChoice {
    /// Source of the categories that are not recorded: guesses, or a rules file
    #[arg(long, value_name = "FILE|guess|none", long_help = CATEGORIES_HELP.as_str())]
    pub categories: Option<Categories>,
    /// Take lines that contain PATTERN as a library's, so that their callers represent stacks; may be repeated
    ///
    /// PATTERN is a part of a line as --by stack shows it, with file, line and function: 'pool.rs' or 'Tensor::zeros'.
    /// Lines of Rust's libraries, of frameworks and of the allocator that called the recorder are taken so already.
    #[arg(long, value_name = "PATTERN")]
    pub skip: Vec<String>,
}

/// `highwater info`; FILE may be a folder, which stands for the recordings of a run's ranks in it.
#[derive(Clone, Debug, Args)]
pub struct InfoArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// Number of groups that `peak` lists by default.
const TOP: usize = 20;

/// `highwater peak`.
#[derive(Clone, Debug, Args)]
pub struct PeakArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// The device.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// State after event number EVENT, at `start` or at `end` [default: the peak]
    #[arg(long, value_name = "EVENT")]
    pub at: Option<At>,
    /// Grouping keys, comma-separated: category, op, scope:DEPTH, phase, step, stack, frame, size, stream, pool, lifetime
    #[arg(long, value_name = "KEYS", default_value = "category")]
    pub by: GroupKeys,
    /// Number of groups to list; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The modules.
    #[command(flatten)]
    pub modules: ModuleChoice,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// `highwater phases`.
#[derive(Clone, Debug, Args)]
pub struct PhasesArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// The device.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// How `highwater events` writes an event.
const EVENT_NOTATION: &str = "In a line, b8 is block 8, 4194304/5242880 its requested and allocated bytes, #op the \
                              operation, @module the module, small or large the allocator's pool, free= the bytes that \
                              were free on the device.";

/// `highwater events`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = EVENT_NOTATION, after_help = EVENT_NOTATION)]
pub struct EventsArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Events of device N, with steps, phases and marks that concern all devices [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// First event
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// Last event [default: the last of the recording]
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,
    /// Event kinds, comma-separated [default: all]
    #[arg(long, value_name = "K", value_delimiter = ',', value_parser = kind_parser())]
    pub kind: Vec<EventKind>,
    /// Show the stack of each event (always in the JSON)
    #[arg(long)]
    pub stacks: bool,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// `highwater verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: TablelessSource,
    /// Device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
}

impl InfoArguments {
    /// The arguments of `highwater info FILE`.
    pub fn of(file: PathBuf) -> Self {
        Self {
            source: Source { file, form: Form::default() },
            device: None,
            blocks: BlockChoice::default(),
            categories: CategoryChoice::default(),
        }
    }
}

impl PeakArguments {
    /// The arguments of `highwater peak FILE`.
    pub fn of(file: PathBuf) -> Self {
        Self {
            source: Source { file, form: Form::default() },
            device: DeviceChoice::default(),
            metric: Metric::Requested,
            at: None,
            by: GroupKeys(vec![GroupKey::Category]),
            top: TOP,
            modules: ModuleChoice::default(),
            blocks: BlockChoice::default(),
            categories: CategoryChoice::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_contradict_nothing() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }
}
