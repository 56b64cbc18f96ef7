//! Analysis of a recording: pure functions of a trace that return plain structs.
//!
//! The command line and the app print the same structs. What an event does is defined by
//! [`transition`](highwater_snapshots::transition); everything else is a fold over its effects ([`replay`]).

pub use highwater_snapshots::metric;
pub mod replay;
pub mod series;
pub mod capacity;
mod ends;
pub mod live;
pub mod bands;
pub mod owners;
mod leading;
pub mod frames;
pub mod fused_form;
pub mod lifetime;
mod origin;
pub mod device_spans;
pub mod addresses;
pub mod pools;
pub mod together;
pub mod beside;
mod dimension;
mod alike;
pub mod filter;
pub mod condition;
pub mod matches;
pub mod vocabulary;
pub mod complete;
pub mod counterfactual;
mod key_encoder;
pub mod block_values;
pub mod siblings;
pub mod breakdown;
pub mod live_groups;
pub mod peak;
pub mod phases;
pub mod final_oom;
pub mod source;
pub mod doubt;
pub mod summary;
pub mod extremes;
pub mod between;
pub mod growth;
pub mod tree;
pub mod folded;
pub mod statistics;
pub mod verify;
pub mod excerpt;
pub mod last_uses;
pub mod recompute;
pub mod plan;
pub mod guess;
pub mod explain;
pub mod diff;
pub mod budget;
pub mod join;

pub use addresses::{AddressIndex, AddressMap, FailedRequest};
pub use beside::Beside;
pub use between::{Balance, Question};
pub use block_values::BlockValues;
pub use breakdown::{Breakdown, Group};
pub use capacity::Capacity;
pub use complete::{Completion, complete};
pub use diff::Diff;
pub use dimension::{GroupKey, NO_LABEL};
pub use doubt::Doubt;
pub use explain::Explanation;
pub use filter::Filter;
pub use last_uses::LastUses;
pub use leading::unmatched_skips;
pub use lifetime::Lifetime;
pub use live::LiveIndex;
pub use matches::Matches;
pub use metric::{Metric, Totals};
pub use origin::Origin;
pub use peak::{Moment, Peak};
pub use series::Series;
pub use siblings::Siblings;
pub use source::Source;
pub use statistics::Statistics;
pub use together::Together;
pub use tree::{Tree, TreeKey, TreeQuery};
pub use vocabulary::Vocabulary;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
