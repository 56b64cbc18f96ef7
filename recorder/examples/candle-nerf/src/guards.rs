//! Guards: what candle's operations and modules are called in the recording, since candle itself tells nobody.

use candle_core::Result;
use highwater_recorder::scope;
use highwater_recorder::{Category, Phase};

/// Runs an operation of candle's: what it allocates carries its name and number.
pub(crate) fn op<T>(name: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let _op = scope::op(name);
    run()
}

/// Runs a module, told as `network.layers.3`: what its operations allocate carries this path.
pub(crate) fn module<T>(path: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let (name, within) = path.split_once('.').unwrap_or((path, ""));
    let _scope = scope::scope(name);
    if within.is_empty() { run() } else { module(within, run) }
}

/// Says what is allocated for, meanwhile.
pub(crate) fn made_as<T>(category: Category, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let _category = scope::category(category);
    run()
}

/// A part of a training step.
pub(crate) fn phase<T>(phase: Phase, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let _phase = scope::phase(phase);
    run()
}
