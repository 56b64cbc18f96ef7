//! Tests of a folder of ranks: outliers, and opening one rank.

use std::path::Path;

use eframe::egui::{Key, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;

use super::harness::{harness, open, press, run, wait_for_files};

/// Recordings of eight ranks of nine, of which rank 5 peaks 812 MiB above the others, and a truncated file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..8 {
        let bytes: u64 = if rank == 5 { 1812 } else { 1000 } << 20;
        let trace =
            trace_from_text(&format!("step 0\nphase forward\nalloc a {bytes}\nfree a\n")).unwrap().edited(|trace| {
                (trace.header.rank, trace.header.world_size) = (Some(rank), Some(9));
                trace.header.host = format!("node{}", rank / 4);
            });
        let bytes = write_trace(Vec::new(), &trace).unwrap();
        std::fs::write(folder.path().join(format!("step.rank{rank}.snap")), &bytes).unwrap();
        std::fs::write(folder.path().join("cut.snap"), &bytes[..20]).unwrap();
    }
    folder
}

fn opened(folder: &Path) -> Harness<'static, App> {
    let mut harness = harness(None);
    open(&mut harness, folder);
    harness
}

fn current(harness: &Harness<'_, App>) -> Option<String> {
    harness.state().current().map(|file| file.recording.name.clone())
}

#[test]
fn a_folder_opens_with_the_rank_that_stands_out_named() {
    let folder = folder();
    let harness = opened(folder.path());
    harness.get_by_label("Rank 5 has the highest peak: 1.77 GiB allocated, at event 2, step 0, forward.");
    harness.get_by_label_contains("Rank 5 stands out: it peaks at 1.77 GiB allocated (median of 8 ranks: ");
    harness.get_by_label("Missing of 9 ranks: 8.");
    let table = harness.get_by_label("Ranks of the folder: 8 rows").rect();
    let rule = harness.get_by_label_contains("A rank stands out if ").rect();
    assert!(table.bottom() <= rule.top(), "notes stand below the table: {table:?} {rule:?}");
    assert!(harness.query_by_label("Sort Ranks of the folder by Lost events").is_none(), "nothing was lost");
    harness.get_by_label_contains("Not read: ");
    harness.get_by_label("Ranks of the folder: 8 rows");
    harness.get_by_role_and_label(Role::Tab, "rank 5: peak 1.77 GiB");
    assert_eq!(current(&harness), None, "no trace is held");
    assert_eq!(harness.state().settings().recent, [folder.path()]);
}

#[test]
fn a_rank_chosen_in_the_strip_is_read_then_and_takes_the_place_of_the_one_before() {
    let folder = folder();
    let mut harness = opened(folder.path());
    harness.get_by_role_and_label(Role::Tab, "rank 5: peak 1.77 GiB").click();
    harness.run_steps(2);
    wait_for_files(&mut harness);
    assert_eq!(current(&harness).as_deref(), Some("step.rank5.snap"));
    harness.get_by_label("Ranks: 6 of 8");
    harness.get_by_role_and_label(Role::Tab, "rank 2: peak 1000 MiB").click();
    harness.run_steps(2);
    wait_for_files(&mut harness);
    assert_eq!(current(&harness).as_deref(), Some("step.rank2.snap"));
    assert!(harness.query_by_role_and_label(Role::Tab, "step.rank5.snap").is_none(), "only one of the strip's is open");
    press(&mut harness, Key::ArrowRight);
    wait_for_files(&mut harness);
    assert_eq!(current(&harness).as_deref(), Some("step.rank3.snap"), "the strip has the keyboard");
    run(&mut harness, Command::ShowRanks);
    harness.get_by_label("Ranks of the folder: 8 rows");
    run(&mut harness, Command::ShowRanks);
    assert!(harness.query_by_label_contains("Ranks of the folder").is_none());
}

#[test]
fn a_rank_opened_in_the_table_stays_beside_the_others() {
    let folder = folder();
    let mut harness = opened(folder.path());
    // The table has the keyboard focus, and the outlier is selected.
    for key in [Key::Enter, Key::ArrowUp, Key::Enter] {
        if harness.state().folder().is_none() {
            run(&mut harness, Command::ShowRanks);
            harness.get_by_label("Ranks of the folder: 8 rows").focus();
            harness.run_steps(2);
        }
        press(&mut harness, key);
        wait_for_files(&mut harness);
    }
    assert_eq!(current(&harness).as_deref(), Some("step.rank4.snap"));
    harness.get_by_role_and_label(Role::Tab, "step.rank5.snap");
}

#[test]
fn a_folder_is_closed_and_read_again_as_a_file_is() {
    let folder = folder();
    let mut harness = opened(folder.path());
    std::fs::remove_file(folder.path().join("cut.snap")).unwrap();
    run(&mut harness, Command::Reload);
    wait_for_files(&mut harness);
    assert!(harness.query_by_label_contains("Not read: ").is_none());
    assert!(!harness.state().can(Command::GoToPeak) && harness.state().can(Command::CopyTable));
    let csv = harness.state().folder().unwrap().csv();
    let line = csv.lines().nth(6).unwrap();
    assert!(line.starts_with("5,") && line.contains(",\"node1\",") && line.contains(",1900019712,"), "{csv}");
    run(&mut harness, Command::Close);
    harness.get_by_label("Open a recording…");
    assert!(harness.state().folder().is_none() && !harness.state().can(Command::ShowRanks));
}

#[test]
fn a_folder_without_recordings_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let harness = opened(folder.path());
    harness.get_by_label_contains("the folder contains no recording");
}
