//! Prints the report about one recording, as one JSON object or as text.

use std::io;

use highwater_snapshots::Trace;
use serde::Serialize;

use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// Prints the report about `trace`: its figures as JSON if `is_json`, else what is incomplete, and then the text.
///
/// # Errors
///
/// Fails if standard output cannot be written.
pub fn answer<F: Serialize>(
    trace: &Trace,
    is_json: bool,
    page: &mut Page<'_>,
    figures: impl FnOnce() -> F,
    print: impl FnOnce(&mut Page<'_>) -> io::Result<()>,
) -> Result<Status, Failure> {
    if is_json {
        page.json(&figures())?;
    } else {
        caveats::lead(trace, "", page)?;
        print(page)?;
    }
    Ok(Status::Fine)
}
