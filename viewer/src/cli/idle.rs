//! The part of an explanation about blocks that are live at the peak but not used again.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::explain::Idle;
use highwater_analysis::{Breakdown, Group, Moment};
use highwater_app::figures::moment::{MomentFigures, count_of, when};
use highwater_snapshots::Trace;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use crate::cli::output::page::Page;
use crate::cli::output::table::{Column, Table, bytes_cells, percent};

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

fn table(idle: &Idle) -> Table {
    let mut table = Table::new(vec![
        Column::text("category"),
        Column::text("scope").cut(),
        Column::number("held"),
        Column::number("share"),
        Column::text(""),
        Column::number("blocks"),
    ]);
    let Breakdown { total, groups, rest_bytes, rest_groups } = &idle.breakdown;
    for group in groups {
        let mut row = group.key.clone();
        row.extend(bytes_cells(group.bytes, *total));
        row.push(format_count(group.blocks));
        table.push(row);
    }
    if *rest_groups > 0 {
        let mut row = vec![count_of(*rest_groups, "more group"), String::new()];
        row.extend(bytes_cells(*rest_bytes, *total));
        row.push(String::new());
        table.push(row);
    }
    table
}

/// Memory that is live at the peak but not used again: the groups and the rest sum to `bytes`.
#[derive(Debug, Serialize)]
pub(super) struct IdleFigures {
    bytes: u64,
    blocks: usize,
    by_category: BTreeMap<String, u64>,
    groups: Vec<IdleGroupFigures>,
    rest_bytes: u64,
    rest_groups: u64,
    /// The peak if every block were freed after its last use.
    peak: MomentFigures,
}

#[derive(Debug, Serialize)]
struct IdleGroupFigures {
    category: String,
    scope: String,
    bytes: u64,
    blocks: u64,
}

impl IdleFigures {
    /// Returns the figures of `idle`.
    pub(super) fn of(idle: &Idle, trace: &Trace) -> Self {
        let group = |group: &Group| IdleGroupFigures {
            category: group.key[0].clone(),
            scope: group.key[1].clone(),
            bytes: group.bytes,
            blocks: group.blocks,
        };
        let by_category = idle.by_category.groups.iter().map(|group| (group.key.join(""), group.bytes));
        Self {
            bytes: idle.bytes(),
            blocks: idle.blocks.len(),
            by_category: by_category.collect(),
            groups: idle.breakdown.groups.iter().map(group).collect(),
            rest_bytes: idle.breakdown.rest_bytes,
            rest_groups: idle.breakdown.rest_groups,
            peak: MomentFigures::of(trace, &idle.without),
        }
    }
}
