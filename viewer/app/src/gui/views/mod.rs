//! The views: timeline, moment, block, statistics, events, segments, explain, what-if, plan, comparison, ranks.

pub(crate) mod group_keys;
pub(crate) mod source;
pub(crate) mod timeline;
pub(crate) mod view;
pub(crate) mod sheet;
pub(crate) mod run_chart;
pub(crate) mod run;
pub(crate) mod block;
pub(crate) mod events;
pub(crate) mod segments;
pub(crate) mod statistics;
pub(crate) mod moment;
pub(crate) mod explain;
pub(crate) mod predicted;
pub(crate) mod whatif;
pub(crate) mod plan;
pub(crate) mod list;
pub(crate) mod rank_strip;
pub(crate) mod rank_table;
pub(crate) mod peaks;
pub(crate) mod diff;
