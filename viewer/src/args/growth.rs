//! Growth: the options of `highwater growth`.

use clap::Args;
use highwater_snapshots::analysis::Metric;

use super::values::{GroupKeys, block_metric_parser};
use super::{BlockChoice, CategoryChoice, DeviceChoice, Source};

/// Groups that are named when it is not told how many.
const TOP: usize = 12;

/// `highwater growth`.
#[derive(Clone, Debug, Args)]
pub struct GrowthArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// The first step that counts [default: the second of the recording, since the first makes what later ones find]
    #[arg(long, value_name = "N")]
    pub from_step: Option<u32>,
    /// The last step that counts [default: the last whole one]
    #[arg(long, value_name = "M")]
    pub to_step: Option<u32>,
    /// The device.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// The total that grows: requested, allocated or active
    #[arg(long, value_name = "M", default_value = "requested", value_parser = block_metric_parser())]
    pub metric: Metric,
    /// Group by these, separated by commas: category, op, scope, phase, step, stack, frame, size, stream, pool, lifetime
    /// [default: category,scope; category,frame where the recording names no modules; frame where categories are guessed]
    #[arg(long, value_name = "KEYS")]
    pub by: Option<GroupKeys>,
    /// Name the K groups that grow most; the others are summed up as the rest
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The blocks.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}
