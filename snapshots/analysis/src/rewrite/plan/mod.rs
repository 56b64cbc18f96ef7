//! Chooses the modules to recompute so that a step fits a budget. Models memory as a linear function of the choices,
//! and finds the cheapest solution.

mod solve;
mod model;
mod blocks;

pub use blocks::{blocks, candidates_of};
pub use model::{Candidate, model};
pub use solve::{Choice, Program, Solution};
