//! Guards that name candle's operations and modules in the recording, since candle itself does not report them.

use candle_core::Result;
use highwater_recorder::scope;
use highwater_recorder::{Category, Phase};

/// Runs an operation of candle: its allocations are recorded with its name and number.
pub(crate) fn op<T>(name: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let _op = scope::op(name);
    run()
}

/// Runs a module: allocations within it are recorded with its path, such as `network.layers.3`.
pub(crate) fn module<T>(path: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let (name, within) = path.split_once('.').unwrap_or((path, ""));
    let _scope = scope::scope(name);
    if within.is_empty() { run() } else { module(within, run) }
}

/// Runs code whose allocations are recorded with this category.
pub(crate) fn made_as<T>(category: Category, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let _category = scope::category(category);
    run()
}

/// Runs a phase of a training step.
pub(crate) fn phase<T>(phase: Phase, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let _phase = scope::phase(phase);
    run()
}
