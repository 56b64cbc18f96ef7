//! Scenarios, which are named, built-in training workloads that are recorded for study.
//!
//! A recording contains the whole run, from building the model (phase setup) to forward, backward, optimizer and
//! zero_grad of each step. It ends while model and optimizer are still live, like that of an ordinary training program.

pub mod error;
pub mod options;
pub mod report;
pub mod task;
pub mod definition;
pub mod vit;
pub mod small;
pub mod nerf;
pub mod fcn;
pub mod chain;
pub mod rnn;
pub mod branch;
pub mod language;
pub mod catalog;
pub mod session;
mod op_costs;
pub mod run;

pub use catalog::{all, optimizer_of};
pub use definition::{ScenarioInfo, Variant};
pub use error::ScenarioError;
pub use options::{Checkpoint, DeviceChoice, OptimizerKind, Options, Sizes};
pub use report::{OutOfMemory, Report};
pub use run::{record, trace};
pub use session::Session;
