//! Tests of the tables, read again by Parquet's own reader and compared with the recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes_of_file::{numbers_of, rows_of};
use highwater_analysis::{LiveIndex, Metric, Series};
use highwater_notation::trace_from_text;
use highwater_snapshots::format::{Windows, write_trace};
use highwater_snapshots::{DeviceId, EventId};

use super::*;

/// Two devices, a baseline, a block that waits for a stream, marks, a failed request, samples, and frees without a
/// block.
const TEXT: &str = "
    baseline w 400/512 parameter @net.fc1 < new < main
    baseline v 50/512 waiting
    baseline_segment 0x0 2097152
    step 0
    phase forward
    alloc a 300/512 activation #linear @net.fc1 < forward < main
    alloc x 5000/5120 input device=1 stream=7
    mark half of it
    alloc b 700/1024 activation #relu @net.fc2 < forward < main
    free_requested z
    phase backward
    segment_alloc 0x200000 2097152
    free_requested a
    alloc g 400/512 gradient #linear @net.fc1 < backward < main
    free_completed a
    free v
    step 1
    free x
    free b
";

/// Reads a table again.
mod bytes_of_file {
    use std::collections::BTreeMap;
    use std::io::Write as _;

    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::{Field, RowAccessor as _};
    use parquet::schema::parser::parse_message_type;

    /// The rows of the table in `bytes`, by column.
    pub(super) fn rows_of(bytes: &[u8]) -> Vec<BTreeMap<String, Field>> {
        let reader = reader(bytes);
        let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
        rows.map(|row| row.into_columns().into_iter().collect()).collect()
    }

    /// Returns the number of rows in each group of the table in `bytes`, and the values of the column `name`, which has
    /// no nulls.
    pub(super) fn numbers_of(bytes: &[u8], name: &str) -> (Vec<i64>, Vec<i64>) {
        let reader = reader(bytes);
        let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        let columns = parse_message_type(&format!("message schema {{ required int64 {name}; }}")).unwrap();
        let rows = reader.get_row_iter(Some(columns)).unwrap().map(Result::unwrap);
        (groups, rows.map(|row| row.get_long(0).unwrap()).collect())
    }

    fn reader(bytes: &[u8]) -> SerializedFileReader<std::fs::File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        SerializedFileReader::new(file).unwrap()
    }
}

use parquet::record::Field;

/// Returns both tables of `trace`.
fn tables(trace: &Trace) -> [Vec<BTreeMap<String, Field>>; 2] {
    tables_of(&Source::in_memory(trace))
}

/// Returns both tables of a recording.
fn tables_of(source: &Source<'_>) -> [Vec<BTreeMap<String, Field>>; 2] {
    let identity = Identity::of("step.snap", Some((3, Origin::Recorded)), source.facts());
    let tables = Tables { source, identity: &identity, has_rank: true };
    let (mut events_file, mut blocks_file) = (Vec::new(), Vec::new());
    tables.write_events(&mut events_file).unwrap();
    tables.write_blocks(&mut blocks_file).unwrap();
    [rows_of(&events_file), rows_of(&blocks_file)]
}

/// Returns both tables of `trace`, written from windows of `events` events.
fn tables_of_windows(trace: &Trace, events: u64) -> [Vec<BTreeMap<String, Field>>; 2] {
    let file: Arc<[u8]> = write_trace(Vec::new(), trace).unwrap().into();
    let windows = Windows::open(Arc::new(file), &mut |_| ControlFlow::Continue(())).unwrap();
    tables_of(&Source::in_windows(windows).unwrap().in_windows_of(events))
}

fn long(row: &BTreeMap<String, Field>, name: &str) -> Option<i64> {
    match &row[name] {
        Field::Long(value) => Some(*value),
        Field::Null => None,
        other => panic!("{name}: {other:?}"),
    }
}

fn text<'a>(row: &'a BTreeMap<String, Field>, name: &str) -> &'a str {
    match &row[name] {
        Field::Str(value) => value,
        Field::Null => "",
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_recording_read_in_windows_has_the_tables_of_the_whole() {
    let uses = "alloc a 100 < f\nalloc b 50\nused a\nfree b\nalloc c 10\nused a\nfree a\nalloc d 7\nused d\n";
    let steps: String = (0..9).map(|step| format!("step {step}\n{uses}free c\nfree d\n")).collect();
    for text in [TEXT, uses, &steps] {
        let trace = trace_from_text(text).unwrap();
        let expected = tables(&trace);
        for events in [1, 2, 5, 1000] {
            let found = tables_of_windows(&trace, events);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(expected) {
                    assert_eq!(found, expected, "in windows of {events} events");
                }
            }
        }
    }
}

#[test]
fn every_event_stands_in_its_table_with_the_totals_after_it() {
    let trace = trace_from_text(TEXT).unwrap();
    let [rows, _] = tables(&trace);
    assert_eq!(rows.len(), trace.events.len() + 2, "one before the first for each device");
    let series = [0, 1].map(|device| Series::build(&trace, DeviceId(device)));
    for (row, start) in rows.iter().zip([0, 1]) {
        assert_eq!((text(row, "kind"), long(row, "event"), long(row, "device")), ("start", Some(-1), Some(start)));
        let totals = series[start as usize].baseline();
        assert_eq!(long(row, "active_bytes"), Some(totals.active as i64));
    }
    for (row, id) in rows[2..].iter().zip(trace.events.ids()) {
        assert_eq!(long(row, "event"), Some(i64::from(id.0)));
        assert_eq!(text(row, "kind"), trace.events.kind[id.0 as usize].name());
        assert_eq!(long(row, "rank"), Some(3));
        if trace.is_everywhere(id) {
            assert_eq!((long(row, "device"), long(row, "allocated_bytes")), (None, None));
            continue;
        }
        let device = trace.events.device[id.0 as usize];
        let totals = series[usize::from(device.0)].after(&trace, id);
        for metric in Metric::ALL {
            let name = format!("{}_bytes", metric.name());
            assert_eq!(long(row, &name), Some(totals.get(metric) as i64), "{name} after event {}", id.0);
        }
    }
}

#[test]
fn the_blocks_that_a_query_finds_live_at_an_event_sum_to_its_totals() {
    let trace = trace_from_text(TEXT).unwrap();
    let [events, blocks] = tables(&trace);
    assert_eq!(blocks.len(), trace.blocks.len());
    for event in &events {
        let (Some(device), Some(at)) = (long(event, "device"), long(event, "event")) else { continue };
        let is_live = |block: &&BTreeMap<String, Field>| {
            let freed = long(block, "free_event");
            long(block, "device") == Some(device)
                && long(block, "alloc_event").unwrap() <= at
                && freed.is_none_or(|freed| freed > at)
        };
        for name in ["requested_bytes", "allocated_bytes"] {
            let sum: i64 = blocks.iter().filter(is_live).filter_map(|block| long(block, name)).sum();
            assert_eq!(Some(sum), long(event, name), "{name} at event {at} of device {device}");
        }
        let live = LiveIndex::build(&trace, DeviceId(device as u16));
        if let Ok(at) = u32::try_from(at) {
            let expected = live.after(&trace, Metric::Requested, EventId(at)).len();
            assert_eq!(blocks.iter().filter(is_live).count(), expected);
        }
    }
}

#[test]
fn names_stacks_and_lives_are_reported_in_words() {
    let trace = trace_from_text(TEXT).unwrap().edited(|trace| trace.header.started_unix_us = 1_000_000);
    let [events, blocks] = tables(&trace);
    let a = &blocks[2];
    let told = ["category", "op", "scope", "phase", "lifetime", "stack", "pool"].map(|name| text(a, name));
    assert_eq!(told, ["activation", "linear", "net.fc1", "forward", "step", "main;forward", "large"]);
    assert_eq!(
        (long(a, "step"), long(a, "requested_bytes"), long(a, "allocated_bytes")),
        (Some(0), Some(300), Some(512))
    );
    assert!(long(a, "alloc_time_ns").unwrap() >= 1_000_000_000);
    assert_eq!(long(a, "lifetime_ns"), Some(long(a, "free_time_ns").unwrap() - long(a, "alloc_time_ns").unwrap()));
    assert!(long(a, "free_completed_event") > long(a, "free_event"));
    let waiting = &blocks[1];
    assert_eq!((long(waiting, "alloc_event"), long(waiting, "free_event")), (Some(-1), Some(-1)));
    assert_eq!(long(&blocks[0], "free_event"), None);
    assert_eq!((text(&blocks[0], "lifetime"), text(&blocks[0], "phase")), ("always", "before"));
    let mark = events.iter().find(|row| text(row, "kind") == "mark").unwrap();
    assert_eq!(text(mark, "mark"), "half of it");
    let unmatched = events.iter().find(|row| text(row, "kind") == "free_requested").unwrap();
    assert_eq!((long(unmatched, "block"), text(unmatched, "category")), (None, ""));
    let segment = events.iter().find(|row| text(row, "kind") == "segment_alloc").unwrap();
    assert_eq!((long(segment, "size_bytes"), long(segment, "reserved_bytes")), (Some(2 << 20), Some(4 << 20)));
}

#[test]
fn more_rows_than_a_group_has_come_back_in_order() {
    let pairs = table::GROUP / 2 + 1000;
    let text: String = (0..pairs).map(|_| "alloc b 1\nfree b\n").collect();
    let trace = trace_from_text(&text).unwrap();
    let identity = Identity::of("step.snap", None, &trace);
    let mut file = Vec::new();
    let tables = Tables { source: &Source::in_memory(&trace), identity: &identity, has_rank: false };
    tables.write_events(&mut file).unwrap();
    let (groups, events) = numbers_of(&file, "event");
    assert_eq!(groups, [table::GROUP as i64, (trace.events.len() + 1 - table::GROUP) as i64]);
    assert!(events.into_iter().eq(-1..trace.events.len() as i64));
}

#[test]
fn what_the_tables_do_not_have_is_stated() {
    assert!(lost(&trace_from_text("alloc a 1").unwrap()).is_empty());
    let lost = lost(&trace_from_text(TEXT).unwrap());
    assert!(lost.len() == 1 && lost[0].contains("segments reserved at the start"), "{lost:?}");
}

#[test]
fn the_documents_have_the_tables_as_they_are() {
    let page = include_str!("../../../../../docs/ranks.md");
    for line in schema_page().lines() {
        assert!(page.lines().any(|other| other == line), "docs/ranks.md lacks this line of its schema:\n{line}");
    }
}
