//! What happens when a device runs out of memory: the recording is brought to safety before the program can die of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Result;
use crate::{hub, recording};

/// At most so many dumps a process: a program that catches the error and tries again shall not fill the disk.
const MOST_DUMPS: u32 = 4;

static DUMPS: AtomicU32 = AtomicU32::new(0);

/// Writes out what waits for the file, and dumps the history where that was asked for.
pub(crate) fn save() {
    hub::flush();
    let folder = hub::lock().active.as_ref().and_then(|active| active.options.dump_on_oom.clone());
    let Some(folder) = folder else { return };
    let number = DUMPS.fetch_add(1, Ordering::Relaxed) + 1;
    if number <= MOST_DUMPS {
        // The program is about to learn that it is out of memory; a failed dump must not hide that.
        drop(dump_into(&folder, number));
    }
}

fn dump_into(folder: &Path, number: u32) -> Result<PathBuf> {
    let path = folder.join(format!("oom-{}-{number}.snap", std::process::id()));
    recording::dump_snapshot(&path)?;
    Ok(path)
}
