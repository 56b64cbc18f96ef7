//! The options of `highwater explain`.

use clap::Args;
use highwater_analysis::{GroupKey, Metric};

use super::values::{GroupKeys, block_metric_parser};
use super::{BlockChoice, CategoryChoice, DeviceChoice, ModuleChoice, Source};

/// Default number of groups.
const TOP: usize = 12;

/// Default keys; the second does not apply to a recording without phases.
const DEFAULT_KEYS: [GroupKey; 2] = [GroupKey::Category, GroupKey::Phase];

/// `highwater explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// The device.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total: requested, allocated or active
    #[arg(long, value_name = "M", default_value = "requested", value_parser = block_metric_parser())]
    pub metric: Metric,
    /// Grouping keys, comma-separated: category, op, scope:DEPTH, phase, step, stack, frame, size, stream, pool, lifetime
    #[arg(long, value_name = "KEYS", default_value_t = GroupKeys(DEFAULT_KEYS.to_vec()))]
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

impl ExplainArguments {
    /// The grouping keys for a recording with or without steps or phases.
    pub fn keys(&self, has_stages: bool) -> &[GroupKey] {
        let keys = self.by.0.as_slice();
        if keys == DEFAULT_KEYS && !has_stages { &keys[..1] } else { keys }
    }
}
