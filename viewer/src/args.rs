//! Args: every command and option as data; clap makes parser and help from it.

mod values;
mod check;
mod convert;
mod diff;
mod explain;
mod growth;
mod join;
mod oom;
mod record;
mod render;
mod run;
mod symbolize;
mod whatif;

pub use check::{CategoryLimit, CheckArguments, PhaseLimit, category_of, phase_of};
pub use convert::{ConvertArguments, ConvertTable, ConvertTo};
pub use diff::DiffArguments;
pub use explain::ExplainArguments;
pub use growth::GrowthArguments;
pub use join::{JoinArguments, Seconds};
pub use oom::OomArguments;
pub use record::RecordArguments;
pub use render::{
    PictureAt, PictureAxis, PictureBy, PictureColours, PictureOrder, PictureSize, PictureTheme, RenderArguments,
};
pub use run::ProgramArguments;
pub use symbolize::SymbolizeArguments;
pub use values::{At, Categories, ComparedAt, GroupKeys, RunDevice, Where};
pub use whatif::{Scaled, WhatIfArguments};

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use highwater_snapshots::analysis::{GroupKey, Metric};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::guess::RULES;

use values::{kind_parser, metric_parser};

/// Finds out where GPU memory goes.
///
/// `highwater FILE…` opens recordings in the desktop app; every command below works without a display.
/// A FILE is a `.snap` recording, or a memory snapshot of PyTorch: a pickle, JSON, or a page saved by `trace_plot`; each
/// may be gzipped. What it is, is told by its content. A FILE of `-` is standard input. Sizes print in binary units (1 KiB is 1024 bytes).
///
/// Exit status: 0 fine; 1 a budget was broken (`check`); 2 bad usage, an unreadable or unsound recording, or a recorded run that ran out of memory.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do, other than to open the app
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
    /// Run any program, and record its calls of the CUDA driver that obtain and free memory (Linux)
    ///
    /// The program needs no change: a library is put into it that stands between it and the driver. What a framework's own
    /// allocator does with its segments is not seen, only the segments. Ends as the program does.
    Run(ProgramArguments),
    /// Say what is in a recording: devices, peaks, and how far it can be trusted; of a folder, which rank stands out
    Info(InfoArguments),
    /// Say who holds memory at the peak, or at any event
    Peak(PeakArguments),
    /// Say what each step and phase did to memory
    Phases(PhasesArguments),
    /// Say what the peak is made of, what it would be without each part, and what could be done
    Explain(ExplainArguments),
    /// Say what makes the difference between two recordings, or between two steps of one
    Diff(Box<DiffArguments>),
    /// Say what lives on from step to step: what leaks
    Growth(GrowthArguments),
    /// Say why memory ran out, and what would have made the failed request fit
    Oom(OomArguments),
    /// Hold a recording to budgets, and name who broke them; status 1 if one is broken
    Check(Box<CheckArguments>),
    /// Replay a recording with something changed: other allocator settings, another device, blocks gone or smaller
    #[command(name = "whatif")]
    WhatIf(Box<WhatIfArguments>),
    /// List the events
    Events(EventsArguments),
    /// Check checksums and invariants; status 2 if a recording is not sound
    Verify(VerifyArguments),
    /// Write a recording in another format: for PyTorch's viewer, flame graphs or query engines, or as .snap
    Convert(ConvertArguments),
    /// Put several recordings on one axis of time, as one
    Join(JoinArguments),
    /// Find functions, files and lines for a recording that has bare addresses, in place
    Symbolize(SymbolizeArguments),
    /// Draw a recording as a picture, PNG or SVG, with no display
    Render(Box<RenderArguments>),
}

/// Whether `file` stands for standard input.
pub fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// What every command that reads a recording takes.
#[derive(Clone, Debug, Args)]
pub struct Source {
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
    /// Look only at blocks that meet all conditions, such as 'category=activation size>=1MiB scope~block.3'
    ///
    /// Text (category, op, scope, phase, pool, lifetime, stack, frame) takes = != ~ !~ where ~ is "contains"; numbers
    /// (size, allocated, step, stream, device) take = != < <= > >=. Several values, separated by commas, mean any of
    /// them. Lifetimes are phase, step and steps (freed in the same phase, the same step, a later step), kept (alive at
    /// the end), and before and always (the same two for what is from before the recording).
    #[arg(long = "where", value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: Where,
}

/// What `--categories` does, at length.
static CATEGORIES_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Where categories come from that the recording does not say: 'guess' works them out, and phases and steps, from \
         stacks and lifetimes; 'none' leaves them unknown; a rules file has lines such as\n\n  \
         optimizer_state if stack~adam.py lifetime=kept\n  builtin off\n\nwith conditions as in --where; the first \
         line that fits wins, then the built-in rules, unless 'builtin off' stands there. [default: guess for \
         PyTorch's files; a .snap holds what was guessed when it was written]\n\nThe built-in rules:\n{RULES}"
    )
});

/// Where categories come from.
#[derive(Clone, Debug, Default, Args)]
pub struct CategoryChoice {
    /// Guess categories that the recording does not say, or take them from a rules file
    #[arg(long, value_name = "FILE|guess|none", long_help = CATEGORIES_HELP.as_str())]
    pub categories: Option<Categories>,
}

/// `highwater info`; FILE may be a folder, which stands for the recordings of a run's ranks in it.
#[derive(Clone, Debug, Args)]
pub struct InfoArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Only device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// Groups that `peak` names when it is not told how many.
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
    /// The total to look at
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// Look at the state after event number EVENT, at `start` or at `end` [default: the peak]
    #[arg(long, value_name = "EVENT")]
    pub at: Option<At>,
    /// Group by these, separated by commas: category, op, scope, phase, step, stack, frame, size, stream, pool, lifetime
    #[arg(long, value_name = "KEYS", default_value = "category")]
    pub by: GroupKeys,
    /// Name the K largest groups; the others are summed up as the rest
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
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
    /// The total to look at
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// `highwater events`.
#[derive(Clone, Debug, Args)]
pub struct EventsArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Only events of device N, and steps, phases and marks that concern every device [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// The first event
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u32,
    /// The last event [default: the last of the recording]
    #[arg(long, value_name = "N")]
    pub to: Option<u32>,
    /// Only events of these kinds, separated by commas
    #[arg(long, value_name = "K", value_delimiter = ',', value_parser = kind_parser())]
    pub kind: Vec<EventKind>,
    /// Show the stack of each event (the JSON always has it)
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
    pub source: Source,
    /// Check only device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
}

impl InfoArguments {
    /// Those of `highwater info FILE`.
    pub fn of(file: PathBuf) -> Self {
        Self {
            source: Source { file, json: false },
            device: None,
            blocks: BlockChoice::default(),
            categories: CategoryChoice::default(),
        }
    }
}

impl PeakArguments {
    /// Those of `highwater peak FILE`.
    pub fn of(file: PathBuf) -> Self {
        Self {
            source: Source { file, json: false },
            device: DeviceChoice::default(),
            metric: Metric::Requested,
            at: None,
            by: GroupKeys(vec![GroupKey::Category]),
            top: TOP,
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
