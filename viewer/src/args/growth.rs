//! The options of `highwater growth`.

use clap::Args;
use highwater_analysis::Metric;

use super::values::{GroupKeys, growing_metric_parser};
use super::{BlockChoice, CategoryChoice, DeviceChoice, Source};

/// Default number of groups.
const TOP: usize = 12;

/// `highwater growth`.
#[derive(Clone, Debug, Args)]
pub struct GrowthArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// First step of the window [default: the second, since the first allocates what later ones reuse]
    #[arg(long, value_name = "N")]
    pub from_step: Option<u32>,
    /// Last step of the window [default: the last whole step]
    #[arg(long, value_name = "M")]
    pub to_step: Option<u32>,
    /// The device.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total: requested, allocated, active or reserved; of reserved memory, segments are counted
    #[arg(long, value_name = "M", default_value = "requested", value_parser = growing_metric_parser())]
    pub metric: Metric,
    /// Grouping keys, comma-separated: category, op, scope:DEPTH, phase, step, stack, frame, size, stream, pool, lifetime
    /// [default: category,scope; category,frame where the recording names no modules; frame where categories are guessed;
    /// of reserved memory pool,frame]
    #[arg(long, value_name = "KEYS")]
    pub by: Option<GroupKeys>,
    /// Number of groups to list, the largest growth first; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}
