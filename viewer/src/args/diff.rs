//! The options of `highwater diff`.

use std::path::PathBuf;

use clap::Args;
use highwater_analysis::{GroupKey, Metric};

use super::values::{ComparedAt, GroupKeys, metric_parser};
use super::{BlockChoice, CategoryChoice, Form, ModuleChoice};

/// Default number of groups.
const TOP: usize = 20;

/// `highwater diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArguments {
    /// First recording; `-` is standard input. Or a folder of ranks: its outlier is compared with a typical rank
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Second recording; without it, two steps of the first are compared. Or a second folder, compared rank by rank
    #[arg(value_name = "B")]
    pub b: Option<PathBuf>,
    /// Moment to compare: peak, end, step:N (the peak of step N) or step-end:N [default: peak; of one recording, the ends
    /// of its last two whole steps]
    #[arg(long, value_name = "MOMENT")]
    pub at: Option<ComparedAt>,
    /// Moment of B [default: as --at; of one recording, the step after it]
    #[arg(long, value_name = "MOMENT")]
    pub at_b: Option<ComparedAt>,
    /// Memory total
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// Device N of A [default: the one that ran out of memory, else the one with the highest peak]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Device N of B [default: as --device; without it, of B the one that ran out of memory, else the one with the highest
    /// peak]
    #[arg(long, value_name = "N")]
    pub device_b: Option<u16>,
    /// Grouping keys, comma-separated: category, op, scope:DEPTH, phase, step, stack, frame, size, stream, pool, lifetime
    /// [default: category; of reserved memory pool,size]
    #[arg(long, value_name = "KEYS", hide_default_value = true, default_value_t = GroupKeys(vec![GroupKey::Category]))]
    #[arg(default_value_if("metric", "reserved", "pool,size"))]
    pub by: GroupKeys,
    /// Number of groups to list, the largest differences first; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// Number of single blocks to list that only one side has
    #[arg(long = "blocks", value_name = "K", default_value_t = 0)]
    pub lone_blocks: usize,
    /// The modules.
    #[command(flatten)]
    pub modules: ModuleChoice,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
    /// The form of the answer.
    #[command(flatten)]
    pub form: Form,
}
