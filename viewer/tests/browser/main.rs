//! Tests the app in a web page, in Chromium and Firefox. The tests are skipped if the browser is missing or the build
//! does not include the app for browsers.

mod connection;
mod page;
#[cfg(target_os = "linux")]
mod screen;
mod chromium;
#[cfg(target_os = "linux")]
mod firefox;
#[cfg(target_os = "linux")]
mod times;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;
use serde_json::Value;

use chromium::Chromium;
use connection::PATIENCE;
use page::Page as _;

/// Recordings of PyTorch, if there are any.
const SAMPLES: &str = "HIGHWATER_TORCH_SAMPLES";

/// If set, the tests in Chromium are not skipped.
const REQUIRED: &str = "HIGHWATER_REQUIRE_BROWSER";

/// If set, the test in Firefox is not skipped.
#[cfg(target_os = "linux")]
const FIREFOX_REQUIRED: &str = "HIGHWATER_REQUIRE_FIREFOX";

/// A training step of two layers, whose peak is in backward.
const STEP: &str = "
    baseline w 40000000 parameter
    step 0
    phase forward
    alloc x 8000000 activation #linear @net.0 < forward net.py:7 < main train.py:3
    alloc y 9000000 activation #relu @net.1 < forward net.py:8 < main train.py:3
    phase backward
    alloc g 40000000 gradient #linear @net.0
    free y
    alloc t 1000000 temporary
    free t
    free x
    phase optimizer
    free g
";

fn highwater(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater")).current_dir(folder).args(words).output().unwrap()
}

fn json(folder: &Path, words: &[&str]) -> Value {
    let output = highwater(folder, words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(path: &Path, text: &str) -> Vec<u8> {
    let bytes = write_trace(Vec::new(), &trace_from_text(text).unwrap()).unwrap();
    std::fs::write(path, &bytes).unwrap();
    bytes
}

/// Reports that a test was skipped, and why, which is a failure where `required` is set.
#[expect(clippy::print_stderr, reason = "tells that a test was skipped, and why")]
fn skip(required: &str, why: &str) {
    assert!(std::env::var_os(required).is_none(), "{why}");
    eprintln!("skipped: {why}");
}

/// A folder with `step.snap` and `step.html`; `None` in a build without the app for browsers.
fn folder(required: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("step.snap"), STEP);
    let probe = highwater(folder.path(), &["convert", "step.snap", "step.html"]);
    if !probe.status.success() {
        skip(required, &String::from_utf8_lossy(&probe.stderr));
        return None;
    }
    Some(folder)
}

/// The same, and a browser.
fn begin() -> Option<(tempfile::TempDir, Chromium)> {
    let folder = folder(REQUIRED)?;
    let Some(program) = chromium::program() else {
        skip(REQUIRED, "there is no Chromium");
        return None;
    };
    Some((folder, Chromium::start(&program, &[])))
}

/// A running `highwater serve`.
struct Server {
    child: Child,
    _out: BufReader<ChildStdout>,
    url: String,
}

impl Server {
    fn start(folder: &Path, files: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.current_dir(folder).arg("serve").args(files).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ctrl-C") {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "it ended: {said}");
        }
        let url = said.lines().find_map(|line| line.trim().strip_prefix("http").map(|rest| format!("http{rest}")));
        Self { child, _out: out, url: url.unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The share of a picture's pixels that are nearly of this colour.
fn share_of(png: &[u8], colour: [u8; 3]) -> f64 {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let facts = reader.next_frame(&mut pixels).unwrap();
    let samples = facts.color_type.samples();
    let is_near = |pixel: &&[u8]| pixel.iter().zip(colour).all(|(one, other)| one.abs_diff(other) < 24);
    let count = pixels[..facts.buffer_size()].chunks(samples).filter(is_near).count();
    count as f64 * samples as f64 / facts.buffer_size() as f64
}

#[test]
fn a_served_recording_is_shown_searched_compared_and_predicted() {
    let Some((folder, mut browser)) = begin() else { return };
    let other = folder.path().join("other.snap");
    write(&other, &STEP.replace("alloc y 9000000", "alloc y 19000000"));
    let server = Server::start(folder.path(), &["step.snap"]);
    browser.open(&server.url);
    let state = browser.rested();
    let peak = json(folder.path(), &["peak", "step.snap", "--json"]);
    assert_eq!(state["front"]["peak_bytes"], peak["bytes"]);
    assert_eq!(state["front"]["peak_event"], peak["event"]);
    // Parameters are blue, gradients orange, in every theme.
    let picture = browser.screenshot();
    let (blue, orange) = (share_of(&picture, [0, 114, 178]), share_of(&picture, [230, 159, 0]));
    assert!((0.1..0.6).contains(&blue) && (0.02..0.4).contains(&orange), "{blue} {orange}");
    browser.press('p', 0);
    let zoomed = browser.state(|now| now["front"]["x"] != state["front"]["x"]);
    assert!(zoomed["front"]["x"][0].as_f64() > state["front"]["x"][0].as_f64(), "{zoomed}");
    let link = browser.value("location.hash");
    assert!(link.as_str().unwrap().starts_with("#recording=step.snap&events="), "{link}");
    browser.press('f', 0);
    browser.state(|now| now["front"]["x"] == state["front"]["x"]);
    browser.wheel([500, 400], 5);
    browser.state(|now| now["front"]["x"] != state["front"]["x"]);
    // Below the timeline: segments, events, the explanation, what-if, and the plan.
    for key in ['4', '5', '6', '7', 'b'] {
        browser.press(key, 2);
        browser.rested();
    }
    browser.press('6', 2);
    browser.rested();
    let table = browser.table("explain");
    assert!(table.contains("gradient"), "{table}");
    browser.drop_files(&[&other]);
    let both = browser.rested_with(2);
    assert_eq!(both["front"]["name"], "other.snap");
    assert_eq!(both["front"]["peak_bytes"], json(folder.path(), &["peak", "other.snap", "--json"])["bytes"]);
    browser.press('c', 0);
    browser.state(|now| now["is_comparing"] == true && now["is_busy"] == false);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_page_alone_opens_without_any_network() {
    let Some((folder, mut browser)) = begin() else { return };
    write(&folder.path().join("other.snap"), &STEP.replace("alloc y 9000000", "alloc y 19000000"));
    assert!(highwater(folder.path(), &["convert", "step.snap", "other.snap", "both.html"]).status.success());
    browser.call(
        "Network.emulateNetworkConditions",
        &serde_json::json!({
            "offline": true, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0,
        }),
    );
    browser.open(&format!("file://{}/step.html", folder.path().display()));
    let state = browser.rested();
    assert_eq!(state["front"]["peak_bytes"], json(folder.path(), &["peak", "step.snap", "--json"])["bytes"]);
    browser.open(&format!("file://{}/both.html", folder.path().display()));
    browser.state(|now| now["is_comparing"] == true && now["is_busy"] == false);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_notebook_shows_a_page_within_a_cell() {
    let Some((folder, mut browser)) = begin() else { return };
    let page = std::fs::read_to_string(folder.path().join("step.html")).unwrap();
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let cell = format!("<iframe srcdoc=\"{page}\" width=\"1200\" height=\"700\"></iframe>");
    std::fs::write(folder.path().join("notebook.html"), cell).unwrap();
    browser.open(&format!("file://{}/notebook.html", folder.path().display()));
    let begun = Instant::now();
    loop {
        let state = browser.value("frames[0]?.highwater?.state() ?? null");
        if state["front"]["has_picture"] == true {
            let peak = json(folder.path(), &["peak", "step.snap", "--json"]);
            assert_eq!(state["front"]["peak_bytes"], peak["bytes"]);
            break;
        }
        let text = browser.value("frames[0]?.document.getElementById('status')?.textContent");
        assert!(begun.elapsed() < PATIENCE, "no picture; the page says {text}; {:?}", browser.complaints());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_recording_that_is_being_written_grows_in_the_page() {
    let Some((folder, mut browser)) = begin() else { return };
    let (live, whole) = (folder.path().join("live.snap"), folder.path().join("whole.snap"));
    // Two sections of events, so that the first half can be shown alone.
    let text: String = (0..70_000).map(|number| format!("alloc b{number} {}\n", 100 + number % 7)).collect();
    let bytes = write(&whole, &text);
    let (start, end) = bytes.split_at(bytes.len() * 19 / 20);
    std::fs::write(&live, start).unwrap();
    let server = Server::start(folder.path(), &["live.snap"]);
    browser.open(&server.url);
    let first = browser.state(|now| now["front"]["has_picture"] == true);
    assert_eq!(first["front"]["is_growing"], true, "{first}");
    let before = first["front"]["events"].as_u64().unwrap();
    std::fs::OpenOptions::new().append(true).open(&live).unwrap().write_all(end).unwrap();
    let last = browser.state(|now| now["front"]["is_growing"] == false && now["is_busy"] == false);
    assert!(before < 70_000 && last["front"]["events"] == 70_000, "{before} {last}");
    assert_eq!(last["front"]["peak_bytes"], json(folder.path(), &["peak", "whole.snap", "--json"])["bytes"]);
    // A page that is opened after the program has ended has nothing to wait for.
    browser.reload();
    browser.state(|now| now["front"]["events"] == 70_000 && now["front"]["is_growing"] == false);
    assert_eq!(browser.value("document.getElementById('status').textContent"), "");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_ranks_of_a_folder_appear_grow_and_are_followed_through_a_rotation() {
    let Some((folder, mut browser)) = begin() else { return };
    let ranks = folder.path().join("ranks");
    std::fs::create_dir(&ranks).unwrap();
    write(&ranks.join("rank0.snap"), STEP);
    let grown = STEP.replace("alloc y 9000000", "alloc y 19000000");
    write(&ranks.join("rank1.snap"), &grown);
    let server = Server::start(folder.path(), &["ranks"]);
    browser.open(&server.url);
    let has = |count: usize| move |now: &Value| now["ranks"].as_array().is_some_and(|all| all.len() == count);
    let shown = browser.state(has(2));
    assert_eq!(shown["recordings"], serde_json::json!([]), "only summaries are fetched: {shown}");
    // Another rank appears, whose recorder rotates its files.
    write(&ranks.join("rank2.0001.snap"), STEP);
    let shown = browser.state(has(3));
    let peaks = json(folder.path(), &["info", "ranks", "--json"])["ranks"].clone();
    for (row, rank) in peaks.as_array().unwrap().iter().enumerate() {
        assert_eq!(shown["ranks"][row][1], rank["peaks"]["allocated"]["bytes"], "{shown} {rank}");
    }
    write(&ranks.join("rank0.snap"), &grown);
    browser.state(|now| now["ranks"][0][1] == now["ranks"][1][1]);
    // A rank is opened, and its newest file is shown as soon as it is there.
    browser.open(&format!("{}#recording=rank/2/rank2.snap", server.url));
    let first = browser.state(|now| now["front"]["has_picture"] == true);
    assert_eq!(first["front"]["name"], "rank2.snap");
    write(&ranks.join("rank2.0002.snap"), &grown);
    let next = browser.state(|now| now["front"]["peak_bytes"] != first["front"]["peak_bytes"]);
    let peak = json(folder.path(), &["peak", "ranks/rank2.0002.snap", "--json"]);
    assert_eq!(
        (&next["front"]["peak_bytes"], &next["recordings"]),
        (&peak["bytes"], &serde_json::json!(["rank2.snap"]))
    );
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn what_is_no_recording_is_refused_and_the_page_goes_on() {
    let Some((folder, mut browser)) = begin() else { return };
    let letter = folder.path().join("letter.txt");
    std::fs::write(&letter, "Dear all").unwrap();
    let server = Server::start(folder.path(), &["step.snap"]);
    browser.open(&server.url);
    browser.rested();
    browser.drop_files(&[&letter]);
    let state = browser.state(|now| now["failures"].as_array().is_some_and(|all| !all.is_empty()));
    assert!(state["failures"][0][1].as_str().unwrap().contains("not a recording"), "{state}");
    assert_eq!(state["recordings"].as_array().unwrap().len(), 1);
    browser.press('p', 0);
    browser.rested();
    assert_eq!(browser.complaints(), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn firefox_shows_and_opens_recordings() {
    let Some(folder) = folder(FIREFOX_REQUIRED) else { return };
    let Some(mut browser) = firefox::Firefox::start() else {
        return skip(FIREFOX_REQUIRED, "there is no Firefox, or no Xvfb");
    };
    let other = folder.path().join("other.snap");
    write(&other, &STEP.replace("alloc y 9000000", "alloc y 19000000"));
    let server = Server::start(folder.path(), &["step.snap"]);
    browser.open(&server.url);
    let state = browser.rested();
    assert_eq!(state["front"]["peak_bytes"], json(folder.path(), &["peak", "step.snap", "--json"])["bytes"]);
    browser.choose(&other);
    let both = browser.rested_with(2);
    assert_eq!(both["front"]["peak_bytes"], json(folder.path(), &["peak", "other.snap", "--json"])["bytes"]);
    browser.open(&format!("file://{}/step.html", folder.path().display()));
    assert_eq!(browser.rested()["front"]["peak_bytes"], state["front"]["peak_bytes"]);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The lines of a table without its header, as cells.
fn cells(csv: &str) -> Vec<Vec<String>> {
    csv.lines().skip(1).map(|line| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "tells that a test was skipped, and why")]
fn figures_of_pytorchs_snapshots_are_those_of_the_command_line() {
    let Some((_, mut browser)) = begin() else { return };
    let Some(samples) = std::env::var_os(SAMPLES).map(PathBuf::from).filter(|folder| folder.is_dir()) else {
        return eprintln!("skipped: {SAMPLES} names no folder of samples");
    };
    let is_snapshot = |name: &String| name.ends_with(".pickle") || name.ends_with(".html");
    let entries = std::fs::read_dir(&samples).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(is_snapshot);
    names.sort();
    for name in &names {
        let path = samples.join(name);
        // The page reads the snapshot itself: it is dropped on one that has no recording.
        let server = Server::start(&samples, &[name]);
        browser.open(&server.url);
        browser.rested();
        browser.drop_files(&[&path]);
        let begun = Instant::now();
        let state = browser
            .state(|now| now["recordings"].as_array().is_some_and(|all| !all.is_empty()) && now["is_busy"] == false);
        assert!(begun.elapsed() < Duration::from_secs(60));
        let peak = json(&samples, &["peak", name, "--json", "--by", "category", "--top", "100"]);
        assert_eq!(state["front"]["peak_bytes"], peak["bytes"], "{name}");
        assert_eq!(state["front"]["peak_event"], peak["event"], "{name}");
        let table = browser.table("moment");
        let shown: Vec<(String, String)> =
            cells(&table).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        for group in peak["groups"].as_array().unwrap() {
            let expected = (group["key"].as_str().unwrap().to_owned(), group["bytes"].to_string());
            assert!(shown.contains(&expected), "{name}: {expected:?} in {shown:?}");
        }
        browser.press('6', 2);
        browser.rested();
        let explained = json(&samples, &["explain", name, "--json", "--by", "category,phase", "--top", "100"]);
        let table = browser.table("explain");
        for group in explained["groups"].as_array().unwrap() {
            for figure in ["bytes_at_peak", "peak_without"] {
                assert!(table.contains(&group[figure].to_string()), "{name}: {group} in {table}");
            }
        }
    }
    assert!(!names.is_empty());
}
