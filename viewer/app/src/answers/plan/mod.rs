//! Plans: the cheapest changes with which a training step fits a memory budget.

mod change;
mod step;
mod search;
mod recorded;
mod reach;

pub use change::{Allowance, Change, Class, Forbidden};
pub use reach::Reach;
pub use recorded::Recorded;
pub use search::{Minimum, Plan, Query, Search, plan_with, search};
pub use step::{Model, Setup, TrainingStep, Trial, Work};
