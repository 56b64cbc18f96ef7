//! The views: timeline, moment, block, statistics, events, segments, explain, what-if, plan, comparison, ranks.

pub mod group_keys;
pub mod source;
pub mod timeline;
pub mod view;
pub mod sheet;
pub(crate) mod banner;
pub mod run_chart;
pub mod run;
pub mod block;
pub mod events;
pub mod segments;
pub mod statistics;
pub mod moment;
pub mod explain;
pub mod predicted;
pub mod whatif;
pub mod plan;
pub mod list;
pub mod ranks;
pub mod fleet;
pub(crate) mod peaks;
pub mod diff;
