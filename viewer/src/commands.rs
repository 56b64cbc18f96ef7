//! The commands. Each file contains a command's arguments, its execution and its report; code used by only one command
//! is in a folder of the same name.

pub(crate) mod next_command;
pub(crate) mod info;
pub(crate) mod peak;
pub(crate) mod phases;
pub(crate) mod explain;
pub(crate) mod diff;
pub(crate) mod growth;
pub(crate) mod oom;
pub(crate) mod events;
pub(crate) mod verify;
pub(crate) mod convert;
pub(crate) mod symbolize;
pub(crate) mod join;
pub mod whatif;
#[cfg(feature = "engine")]
pub mod record;
#[cfg(not(feature = "engine"))]
#[path = "commands/record_disabled.rs"]
pub mod record;
pub(crate) mod run;
pub(crate) mod attach;
pub(crate) mod simulate;
pub mod plan;
pub(crate) mod render;
pub(crate) mod check;
pub(crate) mod serve;
pub mod top;
pub(crate) mod completions;
pub(crate) mod without_command;
pub(crate) mod mcp;
pub(crate) mod skill;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::output::{Failure, Page, Status};

/// Show where GPU memory goes
///
/// `highwater FILE…` opens recordings in the desktop app; every command below works without a display.
/// FILE is a `.snap` recording, a PyTorch memory snapshot (a pickle, JSON, or a page saved by `trace_plot`), a memory
/// profile of JAX, an SQLite export of Nsight Systems, or a log of RMM or NCCL, each optionally gzipped. The format is
/// detected from the content. `-` is standard input. Sizes are in binary units (1 KiB is 1024 bytes).
///
/// Exit status: 0 on success; 1 if a budget was exceeded or cannot be confirmed (`check`), nothing fits it (`plan`),
/// nothing was found (`symbolize`), or a program does not fit (`simulate`); 2 for invalid usage, for a file that cannot
/// be read or is inconsistent (`verify`), and for a scenario that ran out of memory (`record`).
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

macro_rules! commands {
    ($($(#[$about:meta])* $name:ident($arguments:ty) => $run:path,)*) => {
        /// The commands of the program, each with its arguments.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$about])* $name($arguments),)*
        }

        impl Command {
            /// Executes the command.
            ///
            /// # Errors
            /// Fails if the command fails.
            pub fn run(&self, page: &mut Page<'_>) -> Result<Status, Failure> {
                match self {
                    $(Self::$name(arguments) => $run(arguments, page),)*
                }
            }
        }
    };
}

commands! {
    /// Run a built-in training step and write its recording
    Record(Box<record::RecordArguments>) => without_command::record,
    /// Run any program, unchanged, and record its GPU memory: PyTorch by module, others by driver call (Linux)
    ///
    /// Every process that uses CUDA through PyTorch is recorded with modules, phases and steps, also under torchrun and
    /// other launchers. Of other programs, a preloaded library records what they allocate from the CUDA driver: of a
    /// caching allocator the segments, not the blocks within them. The exit status is the program's.
    Run(run::ProgramArguments) => run::run,
    /// Record a PyTorch program that is already running, for some steps or some time (Linux)
    ///
    /// The program is modified while it is recorded, and restored afterwards. Blocks that are live when the recording
    /// begins are its baseline, without stacks.
    Attach(attach::AttachArguments) => attach::run,
    /// Run a PyTorch program on a simulated GPU: what it needs, and whether it fits, without a GPU (Linux)
    ///
    /// The program needs no change and runs with its own PyTorch, whose allocator decides every byte. The device has
    /// no contents: kernels do nothing, and its values are zeros. Modules, phases and steps are recorded. With --json
    /// or --csv, what the program prints goes to standard error.
    Simulate(Box<simulate::SimulateArguments>) => simulate::run,
    /// Show what a recording contains: devices, peaks, and its limitations; for a folder, ranks and outliers
    Info(info::InfoArguments) => info::run,
    /// Show what is using memory at the peak, or at any event
    Peak(peak::PeakArguments) => peak::run,
    /// Show memory by step and phase
    Phases(phases::PhasesArguments) => phases::run,
    /// Explain the peak: its composition, the peak without each group, and advice
    Explain(explain::ExplainArguments) => explain::run,
    /// Find the cheapest changes with which a training step fits a memory budget; exit with status 1 if nothing fits
    Plan(Box<plan::PlanArguments>) => plan::run,
    /// Compare two recordings, or two steps of one
    Diff(Box<diff::DiffArguments>) => diff::run,
    /// Find leaks: memory that grows from step to step
    Growth(growth::GrowthArguments) => growth::run,
    /// Analyse out-of-memory errors: why the request failed, and what would have let it succeed
    Oom(oom::OomArguments) => oom::run,
    /// Check a recording against memory budgets; exit with status 1 and name the cause if one is exceeded
    Check(Box<check::CheckArguments>) => check::run,
    /// Replay a recording with changes: other allocator settings, another device size, blocks removed or smaller
    #[command(name = "whatif")]
    WhatIf(Box<whatif::WhatIfArguments>) => whatif::run,
    /// List the events
    Events(events::EventsArguments) => events::run,
    /// Check the checksums and invariants of a recording; exit with status 2 if it is not sound
    Verify(verify::VerifyArguments) => verify::run,
    /// Convert a recording for PyTorch's viewer, flame graphs or query engines, or to .snap
    Convert(convert::ConvertArguments) => convert::run,
    /// Merge several recordings into one, on a common time axis
    Join(join::JoinArguments) => join::run,
    /// Look up functions, files and lines for the bare addresses of a recording, in place
    Symbolize(symbolize::SymbolizeArguments) => symbolize::run,
    /// Draw a recording as a PNG or SVG picture, without a display
    Render(Box<render::RenderArguments>) => render::run,
    /// Serve the app and recordings to a browser on this or another computer
    Serve(serve::ServeArguments) => serve::run,
    /// Show in the terminal how memory grows while a program runs: totals, peak, categories, modules, steps, ranks
    ///
    /// Follows a recording while it is written, all recordings of a folder with one for each rank, or those that a
    /// process writes. If standard output is not a terminal, prints it once as text.
    Top(top::TopArguments) => top::run,
    /// Answer the questions of an assistant about recordings, by the Model Context Protocol
    ///
    /// The assistant starts it, and asks with one JSON-RPC message a line on standard input. It answers from the files
    /// that are named here, and writes none.
    Mcp(mcp::McpArguments) => mcp::run,
    /// Install instructions with which an assistant uses this program (an Agent Skill), or list them
    Skill(skill::SkillArguments) => skill::run,
    /// Print the completions of commands and options for a shell
    Completions(completions::CompletionsArguments) => completions::run,
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
