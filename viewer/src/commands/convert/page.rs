//! `highwater convert` to a page for browsers.

use std::ops::ControlFlow;

use highwater_app::figures::moment::count_of;
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::report::Facts;
use highwater_snapshots::units::format_bytes;

use crate::browser::{name_of, whole_page};
use crate::commands::convert::ConvertArguments;
use crate::commands::convert::out_is_missing;
use crate::commands::convert::read_and;
use crate::input::source::Input;
use crate::output::caveats;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// Reads one recording, or two to compare, writes a page with them, and prints the result.
///
/// # Errors
///
/// Fails if a recording cannot be read or the page cannot be written, and in a build without the app for browsers.
pub fn convert(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (files, out) = arguments.files_and_out().ok_or_else(out_is_missing)?;
    if files.len() > 2 {
        let text = "a page shows one recording, or compares two; serve shows several: `highwater serve FILE…`";
        return Err(Failure::Usage(text.to_owned()));
    }
    if let Some(file) = files.iter().find(|file| same(file, out)) {
        return Err(Failure::Usage(format!("{} would be replaced by the page; name another OUT", file.display())));
    }
    if arguments.table.is_some() {
        return Err(Failure::Usage("--table is for an OUT with the ending .parquet".to_owned()));
    }
    crate::browser::module()?;
    let (mut recordings, mut inputs): (Vec<(String, Vec<u8>)>, Vec<Input>) = Default::default();
    for file in files {
        let (input, content) = read_and(file, arguments, !arguments.no_stacks, |input| {
            let written = input.source.write(Vec::new(), &mut |_| ControlFlow::Continue(()));
            Ok((input.clone(), written.map_err(|why| input.unreadable(why))?))
        })?;
        let names: Vec<&str> = recordings.iter().map(|(name, _)| name.as_str()).collect();
        recordings.push((name_of(file, &names), content));
        inputs.push(input);
    }
    let html = whole_page(&recordings)?;
    let ((), bytes) = write_whole(out, |file| file.write_all(html.as_bytes()).map_err(io_error))?;
    let events: u64 = inputs.iter().map(|input| input.source.count_events()).sum();
    if arguments.json {
        page.json(&Facts::new([
            ("file", out.into()),
            ("events", events.into()),
            ("bytes", bytes.into()),
            ("lost", Vec::<String>::new().into()),
        ]))?;
        return Ok(Status::Fine);
    }
    for input in &inputs {
        caveats::lead(input.facts(), "", page)?;
    }
    let (events, size) = (count_of(events, "event"), format_bytes(bytes));
    page.headline(&format!("Wrote {} ({size}): {events}.", out.display()))?;
    page.gap()?;
    let what = if inputs.len() == 1 { "the recording" } else { "both recordings" };
    page.line(&format!("It contains the app and {what}, and opens in a browser without a server or network."))?;
    for input in &inputs {
        caveats::print(input.facts(), page)?;
    }
    Ok(Status::Fine)
}
