//! The columns of tables of single blocks.

use highwater_analysis::listed_blocks::ListedBlock;
use highwater_app::figures::moment::count_of;
use highwater_app::report::Column;
use highwater_snapshots::units::format_count;

/// The columns of a table with a block in each row, and in the row after them the `rest`: a number of blocks and their
/// bytes.
pub(crate) fn block_columns<'a>(
    of: impl Fn(usize) -> Option<&'a ListedBlock> + Copy + 'a,
    (rest_blocks, rest_bytes): (u64, u64),
) -> Vec<Column<'a>> {
    let category =
        move |row: usize| of(row).map_or_else(|| count_of(rest_blocks, "more block"), |one| one.category.clone());
    let made = move |row: usize| {
        of(row).map_or_else(String::new, |one| one.made.map_or_else(|| "before".to_owned(), format_count))
    };
    vec![
        Column::number("block", "", move |row| of(row).map(|one| one.block.0)).in_files(),
        Column::bytes("bytes", "size", move |row| of(row).map_or(rest_bytes, |one| one.bytes)),
        Column::text("category", "category", category),
        Column::text("shape", "shape", move |row| of(row).map(|one| one.shape.clone())).optional(),
        Column::text("op", "op", move |row| of(row).map(|one| one.op.clone())).cut(),
        Column::text("scope", "scope", move |row| of(row).map(|one| one.scope.clone())).cut(),
        Column::number("event", "allocated at event", move |row| of(row).map(|one| one.made)).shown(made),
        Column::text("frame", "line", move |row| of(row).map(|one| one.frame.clone())).source_lines(),
    ]
}
