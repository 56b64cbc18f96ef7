//! Compares two recordings, ignoring times and addresses, and reports the first difference. Prints one JSON object;
//! exits with status 1 if they differ.
//!
//!     same_events ONE.snap OTHER.snap
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use highwater_snapshots::format::read_file;
use highwater_tests::same_events::{difference, lines};
use serde_json::json;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [one, other] = &files[..] else { return Err("give two recordings".into()) };
    let [one, other] = [one, other].map(|file| read_file(Path::new(file)).map(|trace| lines(&trace)));
    let (one, other) = (one?, other?);
    let first = difference(&one, &other);
    let events =
        first.as_ref().map(|first| json!({"after": first.same, "one": first.lines[0], "other": first.lines[1]}));
    println!("{}", json!({"events": [one.len(), other.len()], "first_difference": events}));
    Ok(if first.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
