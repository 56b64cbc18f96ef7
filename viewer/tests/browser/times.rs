//! Prints how long a large recording takes in browsers, in the desktop app, and in PyTorch's own page; see docs/web.md.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::chromium::{self, Chromium};
use super::firefox::Firefox;
use super::page::Page;
use super::screen::Screen;
use super::{Server, begin, highwater};

/// A snapshot of PyTorch to measure; without it, the recording is converted to one.
const PICKLE: &str = "HIGHWATER_LARGE_PICKLE";

/// A folder with PyTorch's page as `index.html`, with its scripts.
const PYTORCH_PAGE: &str = "HIGHWATER_PYTORCH_PAGE";

/// Number of runs whose median is printed.
const RUNS: usize = 7;

/// Measures the scripts of each frame from now on, in milliseconds.
const MEASURE_FRAMES: &str = "window.spent = []; const raf = requestAnimationFrame; window.requestAnimationFrame = (call) => raf((time) => { const begun = performance.now(); call(time); spent.push(performance.now() - begun); }); 0";
/// The median, the 95th percentile and the maximum of these times, and their number.
const FRAMES: &str = "spent.sort((a, b) => a - b); `${[0.5, 0.95, 1].map(part => spent[Math.min(spent.length - 1, Math.floor(spent.length * part))].toFixed(1))} of ${spent.length}`";

/// Waits until the page has shown what it has drawn.
const TWO_FRAMES: &str = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// From the start of the desktop app until its window is complete.
fn desktop_time(folder: &Path, file: &str, screen: &Screen) -> Duration {
    let run = || {
        let begun = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.current_dir(folder).arg(file).env("DISPLAY", screen.display()).env_remove("WAYLAND_DISPLAY");
        command.env("HOME", folder).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let time = screen.rested(begun);
        child.kill().unwrap();
        child.wait().unwrap();
        time
    };
    median((0..RUNS).map(|_| run()).collect())
}

/// From the request of the page until it is complete and shown.
fn page_time(browser: &mut impl Page, url: &str) -> Duration {
    let mut run = || {
        browser.open("about:blank");
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        browser.open(url);
        browser.rested();
        browser.value(TWO_FRAMES);
        begun.elapsed()
    };
    median((0..RUNS).map(|_| run()).collect())
}

/// Private memory of the page's process, in bytes: the largest of all processes that browsers run for pages.
fn page_memory() -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let memory = processes.filter_map(|process| {
        let words = std::fs::read(process.join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let is_page = words.contains("--type=renderer") || words.contains("-isForBrowser");
        let facts = is_page.then(|| std::fs::read_to_string(process.join("status")).ok()).flatten()?;
        let line = facts.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    1024 * memory.max().unwrap_or_default()
}

/// The time from dropping `file` on PyTorch's page until it has drawn its blocks, the page's text about their number,
/// and its memory in bytes.
fn pytorch_page_time(program: &Path, page: &Path, file: &Path) -> (Duration, Value, u64) {
    // Its scripts are modules, which a page from the disk may not load otherwise.
    let mut browser = Chromium::start(program, &["--allow-file-access-from-files"]);
    browser.open(&format!("file://{}/index.html", page.display()));
    while browser.value("document.querySelectorAll('input[type=file]').length") == 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    browser.drop_files(&[file]);
    while browser.value("document.querySelectorAll('svg polygon').length").as_u64().unwrap_or_default() < 1000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    browser.value(TWO_FRAMES);
    let time = begun.elapsed();
    let detail = browser.value("document.body.innerText.match(/Detail: .*/)?.[0]");
    (time, detail, page_memory())
}

#[test]
#[ignore = "a measurement: run it alone, in release"]
#[expect(clippy::print_stdout, reason = "its output is its purpose")]
fn times_of_a_large_recording() {
    let Some((folder, mut browser)) = begin() else { return };
    let folder = folder.path();
    let pickle = std::env::var_os(PICKLE).map_or_else(|| folder.join("large.pickle"), PathBuf::from);
    let recorded = highwater(folder, &["record", "vit-l-16", "--steps", "322", "--out", "large.snap"]);
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    for words in [["large.snap", "large.pickle"], ["large.snap", "large.html"]] {
        assert!(highwater(folder, &["convert", words[0], words[1]]).status.success());
    }
    for path in [folder.join("large.snap"), pickle.clone(), folder.join("large.html"), folder.join("step.html")] {
        println!("{}: {} bytes", path.file_name().unwrap().display(), path.metadata().unwrap().len());
    }
    let server = Server::start(folder, &["large.snap"]);
    let screen = Screen::start();
    println!("until large.snap is shown, all of the window; medians of {RUNS}:");
    let native = screen.as_ref().map(|screen| desktop_time(folder, "large.snap", screen));
    println!("  desktop app: {native:?}");
    let file = format!("file://{}/large.html", folder.display());
    for (what, url) in [("served", &server.url), ("as one file", &file)] {
        let time = page_time(&mut browser, url);
        let times = native.map(|native| time.as_secs_f64() / native.as_secs_f64());
        println!("  Chromium, {what}: {time:?}, {times:.2?} times the desktop app; page of {} bytes", page_memory());
    }
    browser.open(&server.url);
    browser.rested();
    browser.value(MEASURE_FRAMES);
    for notches in [1; 30].into_iter().chain([-1; 30]) {
        browser.wheel([500, 400], notches);
        browser.value("new Promise((done) => setTimeout(done, 50))");
    }
    println!("scripts in a frame while zooming, ms: median, 95 %, longest of how many: {}", browser.value(FRAMES));
    println!("until {} is shown, dropped on the page:", pickle.display());
    let begun = Instant::now();
    browser.drop_files(&[&pickle]);
    browser.rested_with(2);
    browser.value(TWO_FRAMES);
    println!("  Chromium: {:?}; page of {} bytes", begun.elapsed(), page_memory());
    drop(browser);
    if let Some(mut firefox) = Firefox::start() {
        println!("  Firefox, large.snap served: {:?}", page_time(&mut firefox, &server.url));
        let begun = Instant::now();
        firefox.choose(&pickle);
        firefox.rested_with(2);
        firefox.value(TWO_FRAMES);
        println!("  Firefox, dropped: {:?}", begun.elapsed());
    }
    let page = std::env::var_os(PYTORCH_PAGE).map(PathBuf::from);
    if let (Some(page), Some(program)) = (page, chromium::program()) {
        let (time, detail, memory) = pytorch_page_time(&program, &page, &pickle);
        println!("  PyTorch's page in Chromium: {time:?}; page of {memory} bytes; {detail}");
    }
}
