//! `highwater convert` to a page for browsers.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::report::{Column, Facts, Table};
use highwater_snapshots::{count_of, format_bytes};

use crate::browser::{name_of, whole_page};
use crate::commands::convert::{ConvertArguments, read_and};
use crate::input::Input;
use crate::output::{Failure, Page, Report, Status, caveats};

/// Writes a page with one recording, or with two to compare, and prints the result.
///
/// # Errors
/// Fails if the options are invalid, a recording cannot be read or the page cannot be written, and in a build without
/// the app for browsers.
pub(crate) fn convert(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (files, out) = arguments.files_and_out()?;
    if files.len() > 2 {
        let text = "a page shows one recording, or compares two; use `highwater serve FILE…` for several";
        return Err(Failure::Usage(text.to_owned()));
    }
    if let Some(file) = files.iter().find(|file| same(file, out)) {
        return Err(Failure::Usage(format!("{} would be replaced by the page; name another OUT", file.display())));
    }
    if arguments.table.is_some() {
        return Err(Failure::Usage("--table needs an OUT with the extension .parquet".to_owned()));
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
    let report = PageReport { out, bytes, inputs };
    report.write(arguments.form, page)?;
    Ok(Status::Fine)
}

struct PageReport<'a> {
    out: &'a Path,
    bytes: u64,
    inputs: Vec<Input>,
}

impl PageReport<'_> {
    fn events(&self) -> u64 {
        self.inputs.iter().map(|input| input.source.count_events()).sum()
    }
}

impl Report for PageReport<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("file", self.out.into()),
            ("events", self.events().into()),
            ("bytes", self.bytes.into()),
            ("lost", Vec::<String>::new().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let columns = [
            Column::text("file", "file", |_| self.out),
            Column::count("events", "events", |_| self.events()),
            Column::bytes("bytes", "size", |_| self.bytes),
        ];
        Table::new(1, columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        self.inputs.iter().try_for_each(|input| caveats::lead(input.facts(), "", page))?;
        let (events, size) = (count_of(self.events(), "event"), format_bytes(self.bytes));
        page.headline(&format!("Wrote {} ({size}): {events}.", self.out.display()))?;
        page.gap()?;
        let what = if self.inputs.len() == 1 { "the recording" } else { "both recordings" };
        page.line(&format!("It contains the app and {what}, and opens in a browser without a server or network."))?;
        self.inputs.iter().try_for_each(|input| caveats::print(input.facts(), page))
    }
}
