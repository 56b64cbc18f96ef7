//! Analysis of recordings: pure functions of a trace that return plain structs.
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

pub use addresses::{AddressIndex, AddressMap, FailedRequest, PoolAndStream, ReservedSegment};
pub use beside::Beside;
pub use between::{Balance, Question, bytes_of};
pub use block_values::BlockValues;
pub use breakdown::{Breakdown, Group};
pub use capacity::Capacity;
pub use complete::{Completion, complete};
pub use diff::{Comparison, Diff, DiffAt, DiffGroup, DiffTree, MatchKind, PhasePair, UnmatchedBlocks};
pub use doubt::Doubt;
pub use explain::{Advice, Composition, ExplainedGroup, Explanation, PeakCause, PeakPiece};
pub use filter::Filter;
pub use frames::{LeadingFrame, leading_frame, short_stack, stack_lines};
pub use grouping::dimension::{GroupKey, NO_LABEL};
pub use grouping::origin::Origin;
pub use growth::{Between, Growth, GrowthQuery, Leak, Leaks, StepRange, StepWindow};
pub use last_uses::LastUses;
pub use lifetime::Lifetime;
pub use live::LiveIndex;
pub use live_groups::{LiveGroup, LiveGroups};
pub use matches::Matches;
pub use metric::{Metric, Totals};
pub use peak::{Moment, Peak};
pub use phases::PhaseRow;
pub use pools::BlockPool;
pub use recompute::Evidence;
pub use series::Series;
pub use siblings::Siblings;
pub use source::{SoughtStep, Source, Watch};
pub use stacks::leading::unmatched_skips;
pub use statistics::Statistics;
pub use summary::DeviceSummary;
pub use together::Together;
pub use tree::{LineRole, NodeId, Tree, TreeKey, TreeQuery};
pub use vocabulary::Vocabulary;

#[cfg(test)]
mod tests;
