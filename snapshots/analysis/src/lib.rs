//! Analysis of a recording: pure functions of a trace that return plain structs.
//!
//! The command line and the app print the same structs. The effect of an event is defined by
//! [`transition`](highwater_snapshots::transition); all analysis is a fold over these effects ([`replay`]).

pub use highwater_snapshots::metric;
mod index;
mod stacks;
mod grouping;
mod rewrite;
mod question;

pub use grouping::{
    block_values, breakdown, complete, condition, filter, lifetime, live_groups, matches, siblings, vocabulary,
};
pub use index::{
    addresses, bands, beside, capacity, counterfactual, device_spans, extremes, final_oom, last_uses, live, pools,
    replay, series, together,
};
pub use question::{
    between, budget, diff, doubt, explain, growth, listed_blocks, peak, peak_stacks, phases, source, statistics,
    summary, trace_events, tree, verify,
};
pub use rewrite::{excerpt, guess, join, plan, recompute};
pub use stacks::{frames, fused_form, owners};

pub use addresses::{AddressIndex, AddressMap, FailedRequest};
pub use beside::Beside;
pub use between::{Balance, Question};
pub use block_values::BlockValues;
pub use breakdown::{Breakdown, Group};
pub use capacity::Capacity;
pub use complete::{Completion, complete};
pub use diff::Diff;
pub use doubt::Doubt;
pub use explain::Explanation;
pub use filter::Filter;
pub use grouping::dimension::{GroupKey, NO_LABEL};
pub use grouping::origin::Origin;
pub use last_uses::LastUses;
pub use lifetime::Lifetime;
pub use live::LiveIndex;
pub use matches::Matches;
pub use metric::{Metric, Totals};
pub use peak::{Moment, Peak};
pub use series::Series;
pub use siblings::Siblings;
pub use source::Source;
pub use stacks::leading::unmatched_skips;
pub use statistics::Statistics;
pub use together::Together;
pub use tree::{Tree, TreeKey, TreeQuery};
pub use vocabulary::Vocabulary;

#[cfg(test)]
mod tests;
