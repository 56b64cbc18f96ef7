//! Oom: the options of `highwater oom`.

use clap::Args;

use super::{CategoryChoice, Source};

/// Failed requests that are told when it is not told how many.
const TOP: usize = 3;

/// `highwater oom`.
#[derive(Clone, Debug, Args)]
pub struct OomArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Tell the failed request that is event number N [default: the first ones]
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
    /// Only device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Tell the first K failed requests; the others are counted
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}
