//! Code that the tests across crates share.

pub mod brute_force;
pub mod command;
pub mod pytorch;
pub mod pytorch_table;
pub mod random_block;
pub mod random_net;
pub mod same_events;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The folder that holds the workspace, found at run time, so that a test binary can be moved with its sources.
pub fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| std::env::current_dir().unwrap_or_default(), PathBuf::from);
    let is_root = |folder: &&std::path::Path| folder.join("snapshots").is_dir() && folder.join("engine").is_dir();
    here.ancestors().find(is_root).unwrap_or(&here).to_owned()
}

/// The recorder is one for the process: tests that record hold this while they do.
pub fn recording_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
