//! The part of an explanation about blocks that are live at the peak but not used again.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::explain::Idle;
use highwater_analysis::{Breakdown, Moment};
use highwater_app::figures::moment::{count_of, moment_value, when};
use highwater_app::report::{Column, Table, Value};
use highwater_snapshots::Trace;
use highwater_snapshots::units::format_bytes;
use serde::Serialize;

use crate::cli::output::page::Page;
use crate::cli::output::table::{bar, percent};

/// Prints the memory that is live at `peak` but not used again.
pub(super) fn print(idle: &Idle, peak: &Moment, page: &mut Page<'_>) -> io::Result<()> {
    page.gap()?;
    if idle.blocks.is_empty() {
        return page
            .line("All memory that is live at the peak is used again later, or may be used after the recording.");
    }
    page.line(&format!(
        "Held at the peak but not used again: {} ({}), {}. Were all blocks freed after their last use, the peak would be \
         {}, {} less, {}.",
        format_bytes(idle.bytes()),
        percent(idle.bytes(), peak.bytes),
        idle.categories(),
        format_bytes(idle.without.bytes),
        format_bytes(peak.bytes - idle.without.bytes),
        when(&idle.without),
    ))?;
    page.report(&table(idle))
}

fn table(idle: &Idle) -> Table<'_> {
    let Breakdown { total, groups, rest_bytes, rest_groups } = &idle.breakdown;
    let rest = usize::from(*rest_groups > 0);
    let name =
        |row: usize| groups.get(row).map_or_else(|| count_of(*rest_groups, "more group"), |group| group.key[0].clone());
    let bytes = |row: usize| groups.get(row).map_or(*rest_bytes, |group| group.bytes);
    let columns = [
        Column::text("category", "category", name),
        Column::text("scope", "scope", |row| groups.get(row).map(|group| group.key[1].clone())).cut(),
        Column::bytes("bytes", "held", bytes),
        Column::shown_alone("share", true, move |row| percent(bytes(row), *total)),
        Column::shown_alone("", false, move |row| bar(bytes(row), *total, 12)),
        Column::count("blocks", "blocks", |row| groups.get(row).map(|group| group.blocks)),
    ];
    Table::new(groups.len() + rest, columns).with_sums(rest)
}

/// Memory that is live at the peak but not used again: the groups and the rest sum to `bytes`.
#[derive(Debug, Serialize)]
pub(super) struct IdleFigures<'a> {
    bytes: u64,
    blocks: usize,
    by_category: BTreeMap<String, u64>,
    groups: Table<'a>,
    rest_bytes: u64,
    rest_groups: u64,
    /// The peak if every block were freed after its last use.
    peak: Value,
}

impl<'a> IdleFigures<'a> {
    /// Returns the figures of `idle`.
    pub(super) fn of(idle: &'a Idle, trace: &Trace) -> Self {
        let by_category = idle.by_category.groups.iter().map(|group| (group.key.join(""), group.bytes));
        Self {
            bytes: idle.bytes(),
            blocks: idle.blocks.len(),
            by_category: by_category.collect(),
            groups: table(idle),
            rest_bytes: idle.breakdown.rest_bytes,
            rest_groups: idle.breakdown.rest_groups,
            peak: moment_value(&trace.header, &idle.without),
        }
    }
}
