//! Warnings on standard error, for problems that no API call can return.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::signals;

/// Maximum time by which a warning may delay the program.
const PATIENCE: Duration = Duration::from_millis(100);

/// Prints `text` as one line on standard error. Never fails and never blocks, since standard error may be a file on a
/// full disk, or locked by a thread that waits for the recorder. Usually the line is printed when this function
/// returns, so that it is not lost at the end of the program.
pub(crate) fn warn(text: String) {
    let Ok(writing) = signals::spawn("highwater-says", move || writeln!(std::io::stderr(), "highwater: {text}")) else {
        return;
    };
    let began = Instant::now();
    while !writing.is_finished() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(50));
    }
}
