//! Warnings on standard error, for problems that no API call can return.

use std::io::Write as _;

use crate::signals;

/// Prints `text` as one line on standard error. Never fails and never blocks: standard error may be a file on a full
/// disk, or locked by a thread that waits for the recorder.
pub(crate) fn warn(text: String) {
    drop(signals::spawn("highwater-says", move || writeln!(std::io::stderr(), "highwater: {text}")));
}
