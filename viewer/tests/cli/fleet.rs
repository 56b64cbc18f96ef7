//! Tests the output for a folder with one recording for each rank, and for two such folders.

use std::fs;
use std::path::Path;

use expect_test::expect;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;
use highwater_snapshots::format::{Index, SectionKind, write_trace};
use serde_json::Value;

use crate::binary::{highwater, refused, stderr, stdout};

/// A recording of `rank` of five, with activations of so many MiB.
fn trace(rank: Option<u32>, mebibytes: u64) -> Trace {
    let text = format!(
        "baseline w {0}/{0} parameter @net\nstep 0\nphase forward\nsegment_alloc 0x40000000 1073741824\n\
         alloc a {1}/{1} activation #linear @net.fc < forward < main\nfree a\n",
        100 << 20,
        mebibytes << 20
    );
    trace_from_text(&text).unwrap().edited(|trace| {
        (trace.header.rank, trace.header.host) = (rank, "box".to_owned());
        trace.header.world_size = rank.map(|_| 5);
    })
}

fn write(folder: &Path, name: &str, trace: &Trace) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(name), write_trace(Vec::new(), trace).unwrap()).unwrap();
}

/// A folder with `ranks`, of which rank 2 peaks 300 MiB above the others and rank 3 is missing, and what else lies
/// there.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().join("ranks");
    for rank in [0, 1, 2, 4] {
        write(&ranks, &format!("step.rank{rank}.snap"), &trace(Some(rank), if rank == 2 { 800 } else { 500 }));
    }
    let whole = fs::read(ranks.join("step.rank0.snap")).unwrap();
    fs::write(ranks.join("cut.snap"), &whole[..20]).unwrap();
    fs::write(ranks.join("log.txt"), "step 1").unwrap();
    folder
}

fn answer(folder: &Path, words: &str) -> String {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{words}");
    stdout(&output)
}

fn object(folder: &Path, words: &str) -> Value {
    serde_json::from_str(&answer(folder, words)).unwrap()
}

#[test]
fn a_folder_shows_which_rank_stands_out_which_is_missing_and_what_is_not_read() {
    let folder = folder();
    expect![[r#"
        Rank 2 has the highest peak: 900 MiB allocated, at event 3, step 0, forward.
        Rank 2 stands out: it peaks at 900 MiB allocated (median of 4 ranks: 600 MiB).
        Missing of 5 ranks: 3.
        A rank stands out if its peak differs from the median of the ranks with the same device capacity, at least 3, by more than 64 MiB, 5% and 5 times the median absolute deviation.
        Not read: ranks/cut.snap: at byte 20: the file ends within a section, after 4 of its bytes

          rank  file             host  events  allocated  reserved  at event  step  phase        end  lost  trust
             0  step.rank0.snap  box        6    600 MiB     1 GiB         3     0  forward  100 MiB     0  complete
             1  step.rank1.snap  box        6    600 MiB     1 GiB         3     0  forward  100 MiB     0  complete
             2  step.rank2.snap  box        6    900 MiB     1 GiB         3     0  forward  100 MiB     0  complete  ◀ +300 MiB allocated vs. median
             4  step.rank4.snap  box        6    600 MiB     1 GiB         3     0  forward  100 MiB     0  complete

        Skipped: 1 file that is not a recording.

        Next: highwater diff ranks   for the differences between ranks
    "#]]
    .assert_eq(&answer(folder.path(), "info ranks"));
    let told = object(folder.path(), "info ranks --json");
    assert_eq!((&told["highest"], &told["missing"], &told["skipped"]), (&2.into(), &serde_json::json!([3]), &1.into()));
    let [outlier] = told["outliers"].as_array().unwrap().as_slice() else { panic!("{}", told["outliers"]) };
    assert_eq!((&outlier["rank"], &outlier["distance_bytes"]), (&2.into(), &(300 << 20).into()));
    assert_eq!((&outlier["metric"], &outlier["median_bytes"]), (&"allocated".into(), &(600 << 20).into()));
    assert_eq!(told["median"]["allocated"]["median_bytes"], 600 << 20);
    assert_eq!(told["unread"][0]["file"], "ranks/cut.snap");
    // Every rank says of itself what its own file does.
    for rank in told["ranks"].as_array().unwrap() {
        let alone = object(folder.path(), &format!("info {} --json", rank["file"].as_str().unwrap()));
        for metric in ["requested", "allocated", "active", "reserved"] {
            let (ours, its) = (&rank["peaks"][metric], &alone["devices"][0]["peaks"][metric]);
            assert_eq!(
                (&ours["bytes"], &ours["event"], &ours["time_us"]),
                (&its["bytes"], &its["event"], &its["time_us"])
            );
        }
        assert_eq!((&rank["rank"], &rank["events"]), (&alone["rank"], &alone["events"]));
        assert_eq!((&rank["rank_from"], &rank["end"]), (&"header".into(), &alone["devices"][0]["end"]));
    }
}

#[test]
fn what_is_no_outlier_is_not_called_one() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..5 {
        write(folder.path(), &format!("{rank}.snap"), &trace(Some(rank), 500 + u64::from(rank)));
    }
    let told = answer(folder.path(), "info .");
    assert!(told.contains("No rank stands out: the median of 5 ranks is 602 MiB allocated."), "{told}");
    assert!(!told.contains("stands out:  its") && !told.contains('◀') && !told.contains("Missing"), "{told}");
    assert_eq!(object(folder.path(), "info . --json")["outliers"], serde_json::json!([]));
}

#[test]
fn a_rank_that_is_not_recorded_is_that_of_the_file_name_and_sentences_name_it() {
    let folder = tempfile::tempdir().unwrap();
    for (name, mebibytes) in [("rank10", 900), ("rank7", 500), ("rank2", 500), ("rank0", 500)] {
        write(folder.path(), &format!("{name}.snap"), &trace(None, mebibytes));
    }
    let told = answer(folder.path(), "info .");
    assert!(told.contains("Rank 10 stands out: it peaks at 1000 MiB"), "{told}");
    assert!(told.contains("\n     0  rank0.snap") && told.contains("\n    10  rank10.snap"), "{told}");
    let diff = answer(folder.path(), "diff .");
    assert!(diff.starts_with("Rank 10 stands out: ") && diff.contains("B is rank 10."), "{diff}");
    let ranks = object(folder.path(), "info . --json");
    let files: Vec<&str> =
        ranks["ranks"].as_array().unwrap().iter().map(|rank| rank["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["./rank0.snap", "./rank2.snap", "./rank7.snap", "./rank10.snap"]);
    assert_eq!((&ranks["ranks"][3]["rank"], &ranks["ranks"][3]["rank_from"]), (&10.into(), &"name".into()));
    assert_eq!(ranks["outliers"][0]["rank"], 10);
    // A name without a number stands for itself.
    write(folder.path(), "b.snap", &trace(None, 1500));
    let told = answer(folder.path(), "info .");
    assert!(told.starts_with("b.snap has the highest peak: ") && told.contains("\n     -  b.snap"), "{told}");
    assert_eq!(object(folder.path(), "info . --json")["highest"], Value::Null);
}

#[test]
fn the_rank_that_stands_out_is_compared_with_a_usual_one() {
    let folder = folder();
    let told = answer(folder.path(), "diff ranks");
    assert!(
        told.starts_with("Rank 2 stands out: it peaks 300 MiB above the median of 4 ranks, in requested.\n"),
        "{told}"
    );
    assert!(told.contains("A is rank 0, the nearest to the median; B is rank 2."), "{told}");
    assert!(told.contains("B takes 300 MiB more than A: 900 MiB requested against 600 MiB."), "{told}");
    let told = object(folder.path(), "diff ranks --json --by category");
    assert_eq!((&told["a_rank"], &told["b_rank"], &told["stands_out"]), (&0.into(), &2.into(), &true.into()));
    let mut alone = object(folder.path(), "diff ranks/step.rank0.snap ranks/step.rank2.snap --json --by category");
    alone.as_object_mut().unwrap().remove("schema_version");
    assert_eq!(told["diff"], alone);
}

#[test]
fn a_comparison_of_ranks_says_first_which_of_them_is_incomplete_and_what_could_not_be_read() {
    let folder = folder();
    write(&folder.path().join("after"), "step.rank2.snap", &trace(Some(2), 800));
    let file = folder.path().join("ranks/step.rank2.snap");
    let whole = fs::read(&file).unwrap();
    let index = Index::from_bytes(&whole).unwrap();
    let end = index.rows.iter().find(|row| row.kind == SectionKind::End.code()).unwrap();
    fs::write(&file, &whole[..end.offset as usize]).unwrap();
    for (words, lead) in
        [("diff ranks", "B, rank 2: Incomplete recording: "), ("diff ranks after", "A, rank 2: Incomplete recording: ")]
    {
        let told = answer(folder.path(), words);
        assert!(told.starts_with(lead), "{told}");
        assert!(told.contains("Problem: at byte ") && told.contains("(rank 2)."), "{told}");
        assert!(told.contains("Not read: ranks/cut.snap: "), "{told}");
        object(folder.path(), &format!("{words} --json"));
    }
}

#[test]
fn two_folders_are_compared_rank_by_rank() {
    let folder = folder();
    let after = folder.path().join("after");
    for rank in [0, 1, 2, 3] {
        write(&after, &format!("{rank}.snap"), &trace(Some(rank), if rank == 1 { 700 } else { 500 }));
    }
    let told = answer(folder.path(), "diff ranks after");
    let start: Vec<&str> = told.lines().take(17).collect();
    expect![[r#"
        Rank 1 grew most: its peak of requested bytes by +200 MiB.
        A: ranks; B: after.
        Only in A: 4.
        Only in B: 3.
        ranks: Not read: ranks/cut.snap: at byte 20: the file ends within a section, after 4 of its bytes

          rank        A        B  difference
             0  600 MiB  600 MiB         0 B
             1  600 MiB  800 MiB    +200 MiB  ◀ grew most
             2  900 MiB  600 MiB    −300 MiB
             3        -  600 MiB    +600 MiB
             4  600 MiB        -    −600 MiB

        Rank 1 in both:

        B takes 200 MiB more than A: 800 MiB requested against 600 MiB.
        A: ranks/step.rank1.snap, at event 3, step 0, forward."#]]
    .assert_eq(&start.join("\n"));
    let told = object(folder.path(), "diff ranks after --json");
    assert_eq!((&told["grown_most"], &told["ranks"][4]["b_bytes"]), (&1.into(), &Value::Null));
    assert_eq!(told["diff"]["delta_bytes"], 200 << 20);
}

#[test]
fn what_cannot_be_asked_of_folders_is_refused() {
    let folder = folder();
    fs::create_dir(folder.path().join("empty")).unwrap();
    fs::create_dir(folder.path().join("texts")).unwrap();
    fs::write(folder.path().join("texts/a.txt"), "a").unwrap();
    let cases = [
        ("info empty", "empty: the folder is empty"),
        ("info texts", "texts: contains 1 file, but no recording"),
        ("info ranks --device 1", "default device"),
        ("diff ranks ranks/step.rank0.snap", "compared with another folder"),
        ("diff empty", "the folder is empty"),
        ("convert ranks all.snap", "is a folder"),
        ("peak ranks", "is a folder"),
    ];
    for (words, why) in cases {
        let output = highwater(folder.path(), words);
        assert!(stderr(&output).to_lowercase().contains(&why.to_lowercase()), "{words}: {}", stderr(&output));
        refused(folder.path(), words, "");
    }
}

#[test]
fn without_a_display_a_folder_is_summarized_instead_of_opened() {
    let folder = folder();
    let output = highwater(folder.path(), "./ranks");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("summary instead of the app"));
    assert!(stdout(&output).starts_with("Rank 2 has the highest peak"), "{}", stdout(&output));
}
