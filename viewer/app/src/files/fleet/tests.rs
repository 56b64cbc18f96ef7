//! Tests of summaries of several recordings.

use std::fs;

use highwater_notation::trace_from_text;
use highwater_pytorch::open::open_file;
use highwater_snapshots::Trace;
use highwater_snapshots::format::write_trace;

use super::*;

/// A recording of `rank` that peaks at so many MiB.
fn recording(rank: Option<u32>, world_size: Option<u32>, mebibytes: u64) -> Vec<u8> {
    let trace = trace_from_text(&format!("baseline w 1000\nalloc a {}\nfree a\n", mebibytes << 20))
        .unwrap()
        .edited(|trace| (trace.header.rank, trace.header.world_size) = (rank, world_size));
    write_trace(Vec::new(), &trace).unwrap()
}

fn fleet_of(files: &[(&str, Vec<u8>)]) -> Fleet {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let inputs = Inputs::of_folder(folder.path()).unwrap();
    let open = |path: &Path, _: bool| {
        open_file(path, &mut |_| ControlFlow::Continue(())).map(|opened| Source::in_memory(opened.trace))
    };
    Fleet::read(&inputs, open, |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn ranks_stand_in_their_order_and_missing_ones_are_named() {
    let files: Vec<(String, Vec<u8>)> = [11, 2, 0, 4, 5]
        .map(|rank| (format!("{rank}.snap"), recording(Some(rank), Some(13), if rank == 4 { 900 } else { 100 })))
        .into();
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let fleet = fleet_of(&files);
    assert_eq!(fleet.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 2, 4, 5, 11]);
    assert_eq!(ranges_text(&fleet.missing()), "1, 3, 6 to 10, 12");
    assert_eq!((fleet.highest(Metric::Allocated), fleet.outlier(Metric::Allocated)), (Some(2), Some(2)));
    assert_eq!(fleet.usual(Metric::Allocated, 2), Some(0), "the first of those that are equally near");
    assert_eq!(fleet.problems(), Vec::<String>::new());
    assert!(fleet.ranks.iter().all(Rank::is_complete));
}

#[test]
fn a_rank_that_the_recording_does_not_say_is_that_of_its_file_name() {
    let files = ["rank0.pickle", "rank10.pickle", "rank2.pickle", "rank7.pickle"]
        .map(|name| (name, recording(None, None, 100)));
    let fleet = fleet_of(&files);
    let ranks: Vec<(Option<u32>, &str)> = fleet.ranks.iter().map(|rank| (rank.number(), rank.name.as_str())).collect();
    let expected = [(0, "rank0.pickle"), (2, "rank2.pickle"), (7, "rank7.pickle"), (10, "rank10.pickle")];
    assert_eq!(ranks, expected.map(|(rank, name)| (Some(rank), name)));
    assert_eq!(fleet.problems(), Vec::<String>::new());
    // Where two names say the same, or nothing, the file's name stands for the rank.
    let fleet = fleet_of(&["a1.snap", "b1.snap", "c.snap", "d2.snap"].map(|name| (name, recording(None, None, 100))));
    let labels: Vec<String> = fleet.ranks.iter().map(Rank::label).collect();
    assert_eq!(labels, ["a1.snap", "b1.snap", "c.snap", "d2.snap"], "a number of other names is no rank");
    assert!(fleet.problems()[0].starts_with("the rank of 4 of 4 recordings is unknown"), "{:?}", fleet.problems());
}

#[test]
fn a_recorded_rank_goes_before_that_of_a_file_name() {
    let fleet = fleet_of(&[
        ("r10.snap", recording(None, None, 100)),
        ("r9.snap", recording(None, None, 100)),
        ("a.snap", recording(Some(1), Some(2), 100)),
        ("b.snap", recording(Some(1), Some(4), 100)),
    ]);
    let ranks: Vec<(u32, &str)> = fleet.ranks.iter().map(|rank| (rank.rank, rank.name.as_str())).collect();
    assert_eq!(ranks, [(1, "a.snap"), (1, "b.snap"), (9, "r9.snap"), (10, "r10.snap")]);
    assert_eq!(
        fleet.problems(),
        [
            "rank 1 has 2 recordings: the folder may contain several runs",
            "the recordings have different world sizes: 2, 4"
        ]
    );
    assert_eq!(ranges_text(&fleet.missing()), "0, 2, 3");
}

#[test]
fn what_is_no_recording_is_counted_and_what_is_damaged_is_reported() {
    let whole = recording(Some(0), None, 100);
    let fleet = fleet_of(&[
        ("a.snap", whole.clone()),
        ("cut.snap", whole[..10].to_vec()),
        ("empty.snap", Vec::new()),
        ("config.json", b"{\"lr\": 0.1}".to_vec()),
        ("log.txt", b"step 1".to_vec()),
        ("page.html", b"<html></html>".to_vec()),
    ]);
    assert_eq!((fleet.ranks.len(), fleet.skipped), (1, 3));
    let names: Vec<_> = fleet.unread.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["cut.snap", "empty.snap"]);
    assert!(fleet.unread[0].1.contains("damaged at byte 10") && fleet.unread[1].1.contains("empty"));
}

#[test]
fn an_unfinished_recording_is_named_as_such_and_not_as_one_that_ends_within_a_section() {
    let whole = recording(Some(0), None, 100);
    let cut: Vec<(String, Vec<u8>)> =
        (0..whole.len()).step_by(3).map(|bytes| (format!("{bytes}.snap"), whole[..bytes].to_vec())).collect();
    let files: Vec<(&str, Vec<u8>)> = cut.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let unfinished: Vec<Rank> = fleet_of(&files).ranks.into_iter().filter(|rank| rank.trust.unfinished).collect();
    assert!(unfinished.len() > 1, "at several places");
    for rank in unfinished {
        assert!(!rank.is_complete() && rank.problem_count == rank.problems.len(), "{}", rank.name);
        assert!(!rank.problems.iter().any(|what| what.contains("ends within a section")), "{:?}", rank.problems);
    }
}

#[test]
fn a_world_size_out_of_all_proportion_costs_nothing() {
    let fleet = fleet_of(&[("a.snap", recording(Some(u32::MAX - 1), Some(u32::MAX), 1))]);
    assert_eq!(fleet.missing(), [0..=u32::MAX - 2]);
    assert_eq!(fleet_of(&[]).missing(), []);
}

#[test]
fn a_reading_that_is_stopped_gives_nothing() {
    let inputs =
        Inputs { files: vec![Input { path: "x".into(), name: "x".into(), is_named: true }; 100], ..Inputs::default() };
    let read = AtomicUsize::new(0);
    let open = |_: &Path, _: bool| {
        read.fetch_add(1, Ordering::Relaxed);
        Ok(Source::in_memory(Trace::default()))
    };
    assert!(Fleet::read(&inputs, open, |_| ControlFlow::Break(())).is_none());
    assert!(read.into_inner() <= worker_count());
}
