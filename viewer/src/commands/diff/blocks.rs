//! The single blocks of `highwater diff`, as a table.

use highwater_analysis::diff::UnmatchedBlocks;
use highwater_app::figures::moment::count_of;
use highwater_app::report::{Column, Table};
use highwater_snapshots::units::format_bytes;

use crate::output::block_columns::block_columns;

/// Formats the heading: `Blocks on one side only: 3 blocks of 1 GiB in A, none in B.`
pub(crate) fn heading(lone: &UnmatchedBlocks) -> String {
    let side = |side: usize| match lone.counts[side] {
        0 => format!("none in {}", ["A", "B"][side]),
        count => format!("{} of {} in {}", count_of(count, "block"), format_bytes(lone.bytes[side]), ["A", "B"][side]),
    };
    format!("Blocks on one side only: {}, {}.", side(0), side(1))
}

/// The listed blocks, with the number and bytes of further ones.
pub(crate) fn table(lone: &UnmatchedBlocks) -> Table<'_> {
    let blocks = &lone.blocks;
    let more = lone.counts.iter().sum::<u64>() - blocks.len() as u64;
    let rest = lone.bytes.iter().sum::<u64>() - blocks.iter().map(|one| one.listed.bytes).sum::<u64>();
    let of = move |row: usize| blocks.get(row);
    let side = Column::text("only_in", "only in", move |row| of(row).map(|one| ["a", "b"][one.side]))
        .shown(move |row| of(row).map_or("", |one| ["A", "B"][one.side]).to_owned());
    let mut columns = vec![side];
    columns.extend(block_columns(move |row| of(row).map(|one| &one.listed), (more, rest)));
    let sums = usize::from(more > 0);
    Table::new(blocks.len() + sums, columns).with_sums(sums)
}
