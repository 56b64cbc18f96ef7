//! Tests across the crates: one binary, one module per subject.

mod brute_force;
mod crash;
mod gate;
mod gpu_scripts;
mod idle;
mod layering;
mod budgets;
mod module_order;
mod plan;
mod pytorch_bytes;
mod reasons;
mod recompute;
mod recordings;
