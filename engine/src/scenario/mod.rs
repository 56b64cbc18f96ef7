//! Scenarios: built-in training steps worth recording, by name.
//!
//! A recording holds the whole run: building the model (phase setup), then for each step forward, backward, optimizer
//! and zero_grad. It ends while model and optimizer are alive, as a program's own would.

pub mod error;
pub mod options;
pub mod report;
pub mod task;
pub mod training;
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
pub mod run;

pub use catalog::all;
pub use definition::{ScenarioInfo, Variant};
pub use error::ScenarioError;
pub use options::{DeviceChoice, OptimizerKind, Options, Sizes};
pub use report::{OutOfMemory, Report};
pub use run::record;
pub use session::Session;
