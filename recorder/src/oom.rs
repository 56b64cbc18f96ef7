//! Saves the recording when a device runs out of memory, before the error can end the program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::Result;
use crate::naming::Rank;
use crate::reentrancy;
use crate::warn::warn;
use crate::{flush, header, hub, recording, sender};

static DUMPS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn save() {
    let _own = reentrancy::own_memory();
    sender::wake();
    flush::wait(Duration::MAX);
    let wish = hub::lock()
        .session()
        .and_then(|session| Some((session.options.dump_on_oom.clone()?, session.options.max_oom_dumps)));
    let Some((folder, most)) = wish else { return };
    let number = DUMPS.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    if number <= most {
        // The program is about to report that it is out of memory; a failed dump must not hide that.
        if let Err(why) = dump_into(&folder, number) {
            warn(format!("cannot save the history before the failed request: {why}"));
        }
    }
}

/// Writes the history to a new file in `folder`, created if missing. Its name contains host, rank, process and number.
fn dump_into(folder: &Path, number: u32) -> Result<PathBuf> {
    let rank = Rank::of_process().rank.map_or(String::new(), |rank| format!("rank{rank}-"));
    // If the folder cannot be created, writing the file fails with the reason.
    drop(std::fs::create_dir_all(folder));
    let (host, pid) = (header::host_name(), std::process::id());
    let named = |again: u32| {
        // A restarted process in a container may have the same process id.
        let again = if again == 0 { String::new() } else { format!("-{again}") };
        folder.join(format!("oom-{host}-{rank}{pid}-{number}{again}.snap"))
    };
    let path = (0..1000).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(0));
    recording::dump_snapshot(&path)?;
    Ok(path)
}
