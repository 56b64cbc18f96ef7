//! The facts of `highwater diff`.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_analysis::{Comparison, Moment, PhasePair, UnmatchedBlocks};
use highwater_app::figures::moment::moment_facts;
use highwater_app::report::{Column, Fact, Facts, Field, Table, Value};
use highwater_snapshots::{Phase, Trace, count_of, format_bytes};

use crate::commands::diff::DiffArguments;
use crate::output::{block_columns, problem_texts, trust};

/// Returns the facts of a comparison, with individual blocks if requested. The differences of groups and rest sum to
/// `delta_bytes`, or with a filter to `filtered_delta_bytes`.
pub(super) fn facts<'a>(
    traces: [&Trace; 2],
    arguments: &DiffArguments,
    comparison: &'a Comparison,
    groups: Table<'a>,
    lone: Option<&'a UnmatchedBlocks>,
) -> Facts<'a> {
    let diff = &comparison.diff;
    let filter = arguments.blocks.filter.stated();
    let file_b = arguments.b.as_ref().unwrap_or(&arguments.a);
    let differing = comparison.settings.iter().filter(|setting| setting.differs());
    let totals =
        comparison.totals.iter().map(|(metric, bytes)| (metric.name(), Value::Map(both(*bytes).into()).into()));
    let peaks: BTreeMap<&'static str, Field> = totals.collect();
    let [rest_a, rest_b, rest_delta] = both(diff.rest_bytes).map(|(_, value)| value.into());
    Facts::new([
        ("a", side_facts(traces[0], &arguments.a, &diff.a).into()),
        ("b", side_facts(traces[1], file_b, &diff.b).into()),
        ("delta_bytes", difference([diff.a.bytes, diff.b.bytes]).into()),
        ("filter", Fact::or_absent(filter)),
        ("filtered_delta_bytes", Fact::or_absent(filter.map(|_| diff.delta()))),
        ("groups", groups.into()),
        ("rest_a_bytes", rest_a),
        ("rest_b_bytes", rest_b),
        ("rest_delta_bytes", rest_delta),
        ("rest_groups", diff.rest_groups.into()),
        ("settings", differing.map(Value::of).collect::<Vec<_>>().into()),
        ("peaks", Value::Map(peaks.into_iter().collect()).into()),
        ("phases", phases(&comparison.phases).into()),
        ("blocks", Fact::or_absent(lone.map(blocks_table))),
        ("lone_a_bytes", Fact::or_absent(lone.map(|lone| lone.bytes[0]))),
        ("lone_b_bytes", Fact::or_absent(lone.map(|lone| lone.bytes[1]))),
    ])
}

/// Returns B minus A.
pub(super) fn difference([a, b]: [u64; 2]) -> i128 {
    i128::from(b) - i128::from(a)
}

fn both(bytes: [u64; 2]) -> [(&'static str, Field); 3] {
    [("a_bytes", bytes[0].into()), ("b_bytes", bytes[1].into()), ("delta_bytes", difference(bytes).into())]
}

fn side_facts(trace: &Trace, file: &Path, moment: &Moment) -> Facts<'static> {
    let side = Facts::new([
        ("file", file.into()),
        ("device", moment.device.0.into()),
        ("metric", Value::of(moment.metric).into()),
    ]);
    side.and(moment_facts(&trace.header, moment).into())
        .and(Facts::new([("trust", trust(trace).into()), ("problems", problem_texts(trace).into())]))
}

fn phases(pairs: &[PhasePair]) -> Table<'_> {
    let columns = [
        Column::number("a_step", "step in A", |row| pairs[row].a.and_then(|side| side.step)),
        Column::number("b_step", "step in B", |row| pairs[row].b.and_then(|side| side.step)),
        Column::text("phase", "phase", |row| pairs[row].phase().map_or("", Phase::name)),
        Column::bytes("a_peak_bytes", "A", |row| pairs[row].a.map(|side| side.peak_bytes)),
        Column::bytes("b_peak_bytes", "B", |row| pairs[row].b.map(|side| side.peak_bytes)),
        Column::difference("delta_bytes", "difference", |row| pairs[row].delta()),
    ];
    Table::new(pairs.len(), columns)
}

/// Formats the heading, such as `Blocks on one side only: 3 blocks of 1 GiB in A, none in B.`
pub(crate) fn blocks_heading(lone: &UnmatchedBlocks) -> String {
    let side = |side: usize| match lone.counts[side] {
        0 => format!("none in {}", ["A", "B"][side]),
        count => format!("{} of {} in {}", count_of(count, "block"), format_bytes(lone.bytes[side]), ["A", "B"][side]),
    };
    format!("Blocks on one side only: {}, {}.", side(0), side(1))
}

/// The last row sums up the blocks that are not listed, if there are any.
pub(crate) fn blocks_table(lone: &UnmatchedBlocks) -> Table<'_> {
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
