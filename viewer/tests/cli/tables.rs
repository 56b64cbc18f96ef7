//! Tests the files and messages of `highwater convert` to Parquet; the contents of the tables are tested next to the
//! code.

use std::fs;
use std::path::Path;

use highwater_snapshots::format::write_trace;
use serde_json::Value;

use crate::binary::{folder, highwater, names, refused, stderr, stdout};
use crate::sample::trace;

/// Adds recordings of ranks 3 and 11, and one that does not say its rank, in `ranks`.
fn add_ranks(folder: &Path) {
    fs::create_dir(folder.join("ranks")).unwrap();
    for (name, rank) in [("a.snap", Some(3)), ("b.snap", Some(11)), ("c.snap", None)] {
        let trace = trace().edited(|trace| trace.header.rank = rank);
        fs::write(folder.join("ranks").join(name), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    }
}

fn object(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_folder_becomes_two_tables_partitioned_by_rank() {
    let (folder, _) = folder();
    add_ranks(folder.path());
    let told = object(folder.path(), "convert ranks step.snap set --to parquet --json");
    assert_eq!((&told["events"], &told["blocks"]), (&(4 * 22).into(), &(4 * 7).into()));
    let ranks: Vec<Option<u64>> =
        told["recordings"].as_array().unwrap().iter().map(|one| one["rank"].as_u64()).collect();
    assert_eq!(ranks, [Some(1), Some(3), Some(11), None], "the one whose rank is unknown comes last");
    let mut bytes = 0;
    for table in ["events", "blocks"] {
        let place = folder.path().join("set").join(table);
        assert_eq!(names(&place), ["rank=1", "rank=11", "rank=3", "rank=__HIVE_DEFAULT_PARTITION__"]);
        for rank in names(&place) {
            assert_eq!(names(&place.join(&rank)), ["part-0.parquet"]);
            let file = fs::read(place.join(&rank).join("part-0.parquet")).unwrap();
            assert_eq!((&file[..4], &file[file.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
            bytes += file.len();
        }
    }
    assert_eq!(told["bytes"], bytes);
    assert_eq!(names(folder.path()), ["ranks", "set", "step.snap"], "nothing is left beside it");
}

#[test]
fn several_recordings_of_a_rank_are_parts_of_it() {
    let (folder, bytes) = folder();
    fs::write(folder.path().join("again.snap"), bytes).unwrap();
    object(folder.path(), "convert step.snap again.snap set --to parquet --json");
    assert_eq!(names(&folder.path().join("set/events/rank=1")), ["part-0.parquet", "part-1.parquet"]);
}

#[test]
fn one_table_of_one_recording_is_a_file() {
    let (folder, _) = folder();
    let events = object(folder.path(), "convert step.snap step.parquet --json");
    let blocks = object(folder.path(), "convert step.snap blocks.parquet --table blocks --json");
    assert_eq!((&events["events"], &blocks["blocks"]), (&22.into(), &7.into()));
    assert_ne!(events["bytes"], blocks["bytes"]);
    let told = stdout(&highwater(folder.path(), "convert step.snap step.parquet"));
    assert!(told.starts_with("Wrote step.parquet (") && told.contains("22 events, 7 blocks."), "{told}");
    assert!(told.contains("Next: duckdb -c \"from 'step.parquet' limit 5\""), "{told}");
}

#[test]
fn what_cannot_be_read_is_reported_and_the_others_are_written() {
    let (folder, bytes) = folder();
    add_ranks(folder.path());
    fs::write(folder.path().join("ranks/cut.snap"), &bytes[..20]).unwrap();
    fs::write(folder.path().join("ranks/log.txt"), "step 1").unwrap();
    let output = highwater(folder.path(), "convert ranks set --to parquet");
    assert_eq!(output.status.code(), Some(2));
    let told = stdout(&output);
    assert!(told.contains("of 3 recordings") && told.contains("Not read: ranks/cut.snap: "), "{told}");
    assert!(told.contains("Skipped: 1 file that is not a recording"), "{told}");
    assert_eq!(names(&folder.path().join("set/blocks")), ["rank=11", "rank=3", "rank=__HIVE_DEFAULT_PARTITION__"]);
}

#[test]
fn a_folder_may_have_one_table_only() {
    let (folder, _) = folder();
    for (table, other) in [("blocks", "events"), ("events", "blocks")] {
        let told =
            stdout(&highwater(folder.path(), &format!("convert step.snap {table} --to parquet --table {table}")));
        assert!(told.contains(&format!("from '{table}/{table}/*/*.parquet'")), "{told}");
        assert_eq!(names(&folder.path().join(table)), [table], "{other} is not written");
    }
}

#[test]
fn what_should_not_be_written_is_refused() {
    let (folder, _) = folder();
    add_ranks(folder.path());
    let cases = [
        ("convert ranks ranks --to parquet", "exists and is not an empty folder"),
        ("convert step.snap step.snap --to parquet", "exists and is not an empty folder"),
        ("convert - set --to parquet", "standard input"),
        ("convert gone.snap set --to parquet", "gone.snap"),
        ("convert step.snap none/there/set --to parquet", "cannot write none/there/set"),
        ("convert ranks one.parquet", "--to parquet OUTDIR"),
        ("convert step.snap ranks/a.snap two.parquet", "--to parquet"),
        ("convert step.snap ranks/a.snap two.snap", "only --to parquet (into a folder) and .html"),
        ("convert step.snap a.json --table blocks", ".parquet"),
        ("convert step.snap set --to csv", "parquet"),
    ];
    for (words, why) in cases {
        refused(folder.path(), words, why);
    }
    assert_eq!(names(folder.path()), ["ranks", "step.snap"]);
    fs::create_dir(folder.path().join("set")).unwrap();
    object(folder.path(), "convert step.snap set --to parquet --json");
}
