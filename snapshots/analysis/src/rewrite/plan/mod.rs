//! The modules to recompute such that a step fits a budget: the memory of every choice as a linear program, and its
//! cheapest solution.

mod solve;
mod model;
mod blocks;

pub use blocks::{blocks, candidates_of};
pub use model::{Candidate, model};
pub use solve::{Choice, Program, Solution};
