//! Plans: the cheapest changes with which a training step fits a memory budget.

mod change;
mod step;
mod search;
mod line;
mod composition;
mod code;
mod recorded;
mod warnings;
mod advice_peaks;

pub use advice_peaks::AdvicePeaks;
pub use change::{Allowance, Change, Class, Forbidden};
pub use code::{RustProgram, python, rust};
pub use composition::{composition, sharded};
pub use line::{PlanLine, micros, name, names, prefixes, recomputed};
pub use recorded::{Changed, Recorded, record_words};
pub use search::{Minimum, Plan, Query, Search, plan_with, search};
pub use step::{Model, Setup, TrainingStep, Trial, Work};
pub use warnings::warnings;
