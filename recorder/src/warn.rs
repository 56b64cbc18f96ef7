//! Say: what the recorder tells on standard error, where nobody asked and nobody else would tell.

use std::io::Write as _;

use crate::signals;

/// Says `text` on a line of its own. Never fails, and never waits: standard error may be a file on a full disk, or locked by
/// a thread that waits for the recorder.
pub(crate) fn warn(text: String) {
    drop(signals::spawn("highwater-says", move || writeln!(std::io::stderr(), "highwater: {text}")));
}
