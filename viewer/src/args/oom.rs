//! The options of `highwater oom`.

use clap::Args;

use super::{CategoryChoice, Source};

/// Failed requests that are shown by default.
const TOP: usize = 3;

/// `highwater oom`.
#[derive(Clone, Debug, Args)]
pub struct OomArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Failed request at event N [default: the first ones]
    #[arg(long, value_name = "N")]
    pub event: Option<u64>,
    /// Device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Number of failed requests to show; the others are counted
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}
