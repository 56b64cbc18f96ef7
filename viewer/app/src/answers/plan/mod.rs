//! Plans: the cheapest changes with which a training step fits a memory budget.

mod change;
mod code;
mod step;
mod search;
mod line;
mod warnings;
mod recorded;
mod aligned;
mod advice_peaks;
#[cfg(test)]
mod recorded_tests;

pub use advice_peaks::AdvicePeaks;
pub use aligned::aligned;
pub use change::{Allowance, Change, Class, Forbidden, Setup};
pub use code::{Code, RustProgram, python, rust};
pub use line::{PlanLine, composition, micros, name, names, prefixes, recomputed, sharded};
pub use recorded::{Recorded, record_words};
pub use search::{Minimum, Plan, Query, Search, plan_with, search};
pub use step::{Changed, Model, Proof, Reach, RerunOf, TrainingStep, Trial, Work};
pub use warnings::{NOTE, warnings};
