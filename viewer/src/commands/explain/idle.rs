//! The part of an explanation about blocks that are live at the peak but not used again.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::explain::Idle;
use highwater_analysis::{Breakdown, Moment};
use highwater_app::figures::moment::{count_of, moment_value, when};
use highwater_app::report::{Column, Facts, Table, Value, bar, percent};
use highwater_snapshots::Trace;
use highwater_snapshots::units::format_bytes;

use crate::output::page::Page;

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
    page.table(&table(idle))
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
pub(super) fn facts<'a>(idle: &'a Idle, trace: &Trace) -> Facts<'a> {
    let groups = idle.by_category.groups.iter().map(|group| (group.key.join(""), group.bytes));
    let by_category: BTreeMap<String, u64> = groups.collect();
    Facts::new([
        ("bytes", idle.bytes().into()),
        ("blocks", idle.blocks.len().into()),
        ("by_category", Value::of(by_category).into()),
        ("groups", table(idle).into()),
        ("rest_bytes", idle.breakdown.rest_bytes.into()),
        ("rest_groups", idle.breakdown.rest_groups.into()),
        // The peak if every block were freed after its last use.
        ("peak", moment_value(&trace.header, &idle.without).into()),
    ])
}
