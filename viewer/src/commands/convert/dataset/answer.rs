//! The report of a conversion to Parquet.

use std::io;
use std::path::{Path, PathBuf};

use highwater_app::figures::ranks::passed_by;
use highwater_app::report::{Column, Facts, Table};
use highwater_snapshots::{count_of, format_bytes};

use crate::commands::convert::{ConvertArguments, ConvertTable};
use crate::commands::info::ranks::unread_facts;
use crate::commands::next_command::quoted;
use crate::output::{Page, Report};

const MAX_LISTED: usize = 8;

#[derive(Debug)]
pub(super) struct Written {
    pub(super) rank: Option<u32>,
    pub(super) file: PathBuf,
    pub(super) events: u64,
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) arguments: &'a ConvertArguments,
    pub(super) out: &'a Path,
    pub(super) written: Vec<Written>,
    pub(super) unread: Vec<(PathBuf, String)>,
    pub(super) skipped: usize,
    pub(super) lost: Vec<String>,
}

impl Answer<'_> {
    fn sum(&self, of: impl Fn(&Written) -> u64) -> u64 {
        self.written.iter().map(of).sum()
    }

    fn bytes(&self) -> u64 {
        self.sum(|written| written.bytes)
    }

    fn recordings(&self, shown: usize) -> Table<'_> {
        let rows = &self.written;
        let rank = |row: usize| rows[row].rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let columns = [
            Column::number("rank", "rank", |row| rows[row].rank).shown(rank),
            Column::text("file", "file", |row| rows[row].file.as_path()).cut(),
            Column::count("events", "events", |row| rows[row].events),
            Column::count("blocks", "blocks", |row| rows[row].blocks),
            Column::bytes("bytes", "size", |row| rows[row].bytes),
        ];
        Table::new(shown, columns)
    }
}

impl Report for Answer<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("file", self.out.into()),
            ("events", self.sum(|written| written.events).into()),
            ("blocks", self.sum(|written| written.blocks).into()),
            ("bytes", self.bytes().into()),
            ("recordings", self.table().into()),
            ("unread", unread_facts(&self.unread).into()),
            ("skipped", self.skipped.into()),
            ("lost", self.lost.clone().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        self.recordings(self.written.len())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let out = self.out.display().to_string();
        let [events, blocks] = [self.sum(|written| written.events), self.sum(|written| written.blocks)];
        let what = format!("{}, {}", count_of(events, "event"), count_of(blocks, "block"));
        let of = if self.arguments.to.is_some() {
            format!(" of {}", count_of(self.written.len() as u64, "recording"))
        } else {
            String::new()
        };
        page.headline(&format!("Wrote {out} ({}): {what}{of}.", format_bytes(self.bytes())))?;
        page.gap()?.table(&self.recordings(self.written.len().min(MAX_LISTED)))?;
        if self.written.len() > MAX_LISTED {
            page.line(&format!("  … and {}", count_of((self.written.len() - MAX_LISTED) as u64, "more recording")))?;
        }
        page.gap()?;
        for what in &self.lost {
            page.warning(&format!("Lost: {what}."))?;
        }
        for (path, why) in self.unread.iter().take(MAX_LISTED) {
            page.warning(&format!("Not read: {}: {why}", path.display()))?;
        }
        if self.unread.len() > MAX_LISTED {
            page.warning(&format!(
                "Not read: … and {}",
                count_of((self.unread.len() - MAX_LISTED) as u64, "more file")
            ))?;
        }
        if self.skipped > 0 {
            page.line(&passed_by(self.skipped))?;
        }
        if self.lost.is_empty() && self.unread.is_empty() {
            page.line("Nothing was lost.")?;
        }
        page.gap()?;
        let from = match self.arguments.to {
            Some(_) if self.arguments.table == Some(ConvertTable::Blocks) => format!("{out}/blocks/*/*.parquet"),
            Some(_) => format!("{out}/events/*/*.parquet"),
            None => out.clone(),
        };
        // Names that a shell would interpret are left for the user to quote.
        let from = if quoted(&out) == out { from } else { "OUT".to_owned() };
        let hint = "or any engine that reads Parquet";
        page.hint(&format!("Next: duckdb -c \"from '{from}' limit 5\"   {hint}"))
    }
}
