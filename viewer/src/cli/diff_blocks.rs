//! The single blocks of `highwater diff`, as a table and as figures.

use highwater_analysis::diff::{LoneBlock, LoneBlocks};
use highwater_app::figures::moment::count_of;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use crate::cli::output::table::{Column, Table};

/// Formats the heading: `Blocks on one side only: 3 blocks of 1 GiB in A, none in B.`
pub fn heading(lone: &LoneBlocks) -> String {
    let side = |side: usize| match lone.counts[side] {
        0 => format!("none in {}", ["A", "B"][side]),
        count => format!("{} of {} in {}", count_of(count, "block"), format_bytes(lone.bytes[side]), ["A", "B"][side]),
    };
    format!("Blocks on one side only: {}, {}.", side(0), side(1))
}

/// Returns the listed blocks as a table, with the number of further ones.
pub fn table(lone: &LoneBlocks) -> Table {
    let mut table = Table::new(vec![
        Column::text("only in"),
        Column::number("size"),
        Column::text("category"),
        Column::text("op").cut(),
        Column::text("scope").cut(),
        Column::number("allocated at event"),
        Column::text("line").source_lines(),
    ]);
    for one in &lone.blocks {
        let made = one.made.map_or_else(|| "before".to_owned(), |event| format_count(u64::from(event.0)));
        let [category, op, scope] = [&one.category, &one.op, &one.scope].map(String::clone);
        let side = ["A", "B"][one.side].to_owned();
        table.push(vec![side, format_bytes(one.bytes), category, op, scope, made, one.frame.clone()]);
    }
    let more = lone.counts.iter().sum::<u64>() - lone.blocks.len() as u64;
    if more > 0 {
        let listed: u64 = lone.blocks.iter().map(|one| one.bytes).sum();
        let rest = lone.bytes.iter().sum::<u64>() - listed;
        table.push(vec![String::new(), format_bytes(rest), format!("{} more blocks", format_count(more))]);
    }
    table
}

/// A block in the JSON object.
#[derive(Debug, Serialize)]
pub struct LoneBlockFigures {
    only_in: &'static str,
    block: u32,
    bytes: u64,
    category: String,
    op: String,
    scope: String,
    frame: String,
    event: Option<u32>,
}

impl LoneBlockFigures {
    /// Returns the figures of `one`.
    pub fn of(one: &LoneBlock) -> Self {
        Self {
            only_in: ["a", "b"][one.side],
            block: one.block.0,
            bytes: one.bytes,
            category: one.category.clone(),
            op: one.op.clone(),
            scope: one.scope.clone(),
            frame: one.frame.clone(),
            event: one.made.map(|event| event.0),
        }
    }
}
