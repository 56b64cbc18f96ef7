//! Checks crate dependencies, the top level, file sizes, and which files contain unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each package of ours and what it may depend on.
const ARROWS: [(&str, &str, &[&str]); 16] = [
    ("snapshots", "highwater-snapshots", &[]),
    ("snapshots/analysis", "highwater-analysis", &["highwater-snapshots"]),
    ("snapshots/pytorch", "highwater-pytorch", &["highwater-snapshots"]),
    ("recorder", "highwater-recorder", &["highwater-snapshots"]),
    ("recorder/inject", "highwater-inject", &["highwater-recorder"]),
    ("recorder/inject/library", "highwater-inject-library", &["highwater-inject"]),
    ("recorder/simulate", "highwater-simulate", &[]),
    ("recorder/simulate/library", "highwater-simulate-library", &["highwater-simulate"]),
    ("tests/notation", "highwater-notation", &["highwater-snapshots"]),
    ("tests/stand-in", "highwater-stand-in", &[]),
    ("kernels", "highwater-kernels", &[]),
    ("engine/allocator", "highwater-allocator", &["highwater-recorder", "highwater-snapshots"]),
    ("engine", "highwater-engine", &["highwater-allocator", "highwater-kernels", "highwater-recorder"]),
    (
        "viewer/app",
        "highwater-app",
        &["highwater-allocator", "highwater-analysis", "highwater-pytorch", "highwater-snapshots"],
    ),
    (
        "viewer",
        "highwater",
        &[
            "highwater-analysis",
            "highwater-app",
            "highwater-engine",
            "highwater-inject-library",
            "highwater-pytorch",
            "highwater-simulate-library",
            "highwater-snapshots",
        ],
    ),
    (
        "tests",
        "highwater-tests",
        &["highwater", "highwater-analysis", "highwater-engine", "highwater-recorder", "highwater-snapshots"],
    ),
];

/// What tests, benchmarks and examples of some packages read recordings with.
const FOR_TESTS: [(&str, &[&str]); 5] = [
    ("snapshots/analysis", &["highwater-pytorch"]),
    ("snapshots/pytorch", &["highwater-analysis"]),
    ("recorder", &["highwater-analysis"]),
    ("engine", &["highwater-analysis", "highwater-pytorch"]),
    ("viewer", &["highwater-recorder"]),
];

/// In which the tests of every package may write traces, and nothing that runs outside of tests.
const NOTATION: &str = "highwater-notation";

/// Stands in for CUDA's libraries in the tests of these packages, and in nothing that runs outside of tests.
const STAND_IN: (&str, [&str; 4]) = ("highwater-stand-in", ["kernels", "engine", "viewer", "tests"]);

/// What stands beside the packages, dotfiles aside.
const BESIDE_PACKAGES: [&str; 11] = [
    "AGENTS.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "docs",
];

/// The libraries that are put into programs: the viewer carries them as files, and its own code knows nothing of them.
const CARRIED: ([&str; 2], &str) = (["highwater-inject-library", "highwater-simulate-library"], "[build-dependencies]");

/// The files of the viewer that may use the engine or its allocator: recording scenarios and replaying recordings.
const ENGINE_USERS: [&str; 10] = [
    "viewer/src/commands/record.rs",
    "viewer/src/commands/record/step_options.rs",
    "viewer/src/commands/plan/rerun.rs",
    "viewer/src/commands/plan/rust_program.rs",
    "viewer/app/src/answers/replays/capacity.rs",
    "viewer/app/src/answers/replays/replayed.rs",
    "viewer/app/src/answers/replays/replayer.rs",
    "viewer/app/src/answers/replays.rs",
    "viewer/app/src/answers/replays/block_changes.rs",
    "viewer/app/src/answers/replays/trials.rs",
];

/// A file has at most so many lines.
const MAX_LINES: usize = 500;

pub(crate) fn root() -> PathBuf {
    highwater_tests::workspace_root()
}

/// Every file below `folder` with one of the endings `kinds`, with its path from the root, sorted.
pub(crate) fn sources(folder: &Path, kinds: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        for entry in entries {
            let path = entry.expect("a folder lists its entries").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if kinds.iter().any(|kind| name.ends_with(kind)) {
                let shown = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                found.push((shown, std::fs::read_to_string(&path).expect("sources are text")));
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn rust_sources() -> Vec<(String, String)> {
    // A package within another's folder is seen twice.
    let files: BTreeMap<String, String> =
        ARROWS.iter().flat_map(|(folder, ..)| sources(&root().join(folder), &[".rs"])).collect();
    files.into_iter().collect()
}

/// The folder of each package of ours.
pub(crate) fn packages() -> impl Iterator<Item = &'static str> {
    ARROWS.iter().map(|(folder, ..)| *folder)
}

/// The lines that are neither comments nor tests.
pub(crate) fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let tests = text.match_indices("#[cfg(test)]\nmod ").find(|(at, test)| {
        // A file of tests is declared and not included.
        !text[at + test.len()..].lines().next().unwrap_or_default().ends_with(';')
    });
    let code = tests.map_or(text, |(at, _)| &text[..at]);
    code.lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn packages_depend_only_along_the_arrows() {
    for (folder, package, allowed) in ARROWS {
        let manifest =
            std::fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("each package has a manifest");
        assert!(manifest.contains(&format!("name = \"{package}\"")), "{folder} holds {package}");
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !name.starts_with("highwater") || !line.contains("workspace") && !line.contains("path =") {
                continue;
            }
            let (stand_in, its_users) = STAND_IN;
            let is_for_tests = section == "[dev-dependencies]" || folder == "tests";
            let is_stand_in = name == stand_in && its_users.contains(&folder) && is_for_tests;
            let is_notation = name == NOTATION && is_for_tests;
            let is_carried = CARRIED.0.contains(&name);
            assert!(!is_carried || section == CARRIED.1, "{package} may not depend on {name} in {section}");
            let of_tests = FOR_TESTS.iter().find(|(of, _)| *of == folder).map_or(&[][..], |(_, names)| *names);
            let is_reader = section == "[dev-dependencies]" && of_tests.contains(&name);
            assert!(
                is_stand_in || is_notation || is_reader || allowed.contains(&name),
                "{package} may not depend on {name} in {section}"
            );
        }
    }
}

#[test]
fn the_viewer_uses_the_engine_only_to_record_and_to_replay() {
    let files = ["viewer/src", "viewer/app/src"].map(|folder| sources(&root().join(folder), &[".rs"]));
    for (path, text) in files.into_iter().flatten() {
        let uses = code_lines(&text)
            .any(|line| ["highwater_allocator::", "highwater_engine::"].iter().any(|path| line.contains(path)));
        assert!(!uses || ENGINE_USERS.contains(&path.as_str()), "{path} may not use the engine");
    }
}

/// The names at the top level of what git tracks; none where the sources are no git checkout, or there is no git.
fn tracked_at_the_top() -> Option<BTreeSet<String>> {
    let listing = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().ok()?;
    let text = String::from_utf8_lossy(&listing.stdout).into_owned();
    let names = text.split('\0').filter_map(|path| path.split('/').next()).filter(|name| !name.is_empty());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    (listing.status.success() && names.contains("Cargo.toml")).then_some(names)
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn the_top_level_holds_the_packages_and_the_usual_documents() {
    // Only tracked files count: users leave recordings in their checkout.
    let Some(names) = tracked_at_the_top() else {
        eprintln!("skipped: not a git checkout, or git is not installed");
        return;
    };
    let known: BTreeSet<&str> = ARROWS.iter().map(|(folder, ..)| *folder).chain(BESIDE_PACKAGES).collect();
    for name in names {
        assert!(name.starts_with('.') || known.contains(name.as_str()), "'{name}' does not belong at the top level");
    }
}

/// The modules that a file declares, in order, without those for tests.
pub(crate) fn declared_modules(text: &str) -> Vec<String> {
    let mut is_for_tests = false;
    code_lines(text)
        .filter(|line| !std::mem::replace(&mut is_for_tests, *line == "#[cfg(test)]"))
        .filter_map(|line| {
            let line = line.trim().strip_suffix(';')?;
            let (visibility, name) = line.split_once("mod ")?;
            ["", "pub ", "pub(crate) ", "pub(super) "].contains(&visibility).then(|| name.to_owned())
        })
        .collect()
}

#[test]
fn every_file_of_kernels_says_what_it_is_for_and_ends_before_its_limit() {
    let mut files = sources(&root().join("kernels/cuda"), &[".cu", ".cuh"]);
    files.extend(sources(&root().join("tests/stand-in/src/shim"), &[".h"]));
    assert!(files.len() > 10, "kernels and what they run on are there");
    for (path, text) in files {
        assert!(text.starts_with("// "), "{path}: the first line says what the file is for");
        assert!(text.lines().count() <= MAX_LINES, "{path}: more than {MAX_LINES} lines");
    }
}

#[test]
fn every_file_says_what_it_is_for_and_ends_before_its_limit() {
    let mut broken = Vec::new();
    for (path, text) in rust_sources() {
        if !text.starts_with("//! ") {
            broken.push(format!("{path}: the first line says what the file is for"));
        }
        if text.lines().count() > MAX_LINES {
            broken.push(format!("{path}: {} lines, {MAX_LINES} is the limit", text.lines().count()));
        }
        let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if ["utils", "util", "common", "base", "types", "helpers", "misc"].contains(&name.as_str()) {
            broken.push(format!("{path}: a file is named for the noun it holds"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The wheel and `cargo install` build with the release profile; `highwater record` shows the stacks of its own models.
#[test]
fn installed_binaries_keep_the_lines_of_code_that_is_on_recorded_stacks() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("it is part of the project");
    let (manifest, wheel) = (read("Cargo.toml"), read("recorder/python/pyproject.toml"));
    let release = manifest.split_once("[profile.release]\n").map(|(_, rest)| rest).unwrap_or_default();
    assert!(release.starts_with("debug = \"line-tables-only\"\n\n"), "lines, and nothing is stripped: {release}");
    for package in ["highwater", "highwater-allocator", "highwater-engine", "highwater-kernels", "highwater-recorder"] {
        assert!(!manifest.contains(&format!("[profile.release.package.{package}]")), "{package}");
    }
    assert!(wheel.lines().any(|line| line == "strip = false"), "{wheel}");
}

/// Where `text` has unsafe code: the keyword before a block, a function, an implementation, a trait, or an attribute.
fn unsafe_count(text: &str) -> usize {
    let forms = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait", "unsafe("];
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| forms.iter().map(|form| line.matches(form).count()).sum::<usize>())
        .sum()
}

#[test]
fn unsafe_code_lives_in_named_files_each_with_its_reasons() {
    let listed = include_str!("unsafe_files.txt");
    let listed: BTreeSet<&str> = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for (path, text) in rust_sources().into_iter().filter(|(path, _)| !path.starts_with("tests/")) {
        if unsafe_count(&text) > 0 {
            assert!(text.contains("SAFETY:"), "{path} has unsafe code without a SAFETY reason");
            found.insert(path, unsafe_count(&text));
        }
    }
    let found: BTreeSet<&str> = found.keys().map(String::as_str).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty(), "unsafe code in files that tests/unsafe_files.txt does not name: {new:?}");
    assert!(gone.is_empty(), "tests/unsafe_files.txt names files without unsafe code: {gone:?}");
}

#[test]
fn declared_modules_and_unsafe_code_are_counted_outside_of_comments() {
    assert_eq!(declared_modules("pub mod a;\nmod b;\n// mod c;\npub mod d { }"), ["a", "b"]);
    assert_eq!(unsafe_count("// unsafe {\nunsafe { f() }\nlet unsafe_count = 1;\n#[unsafe(naked)]"), 2);
}

#[test]
fn limits_are_called_max_and_min() {
    let words = |line: &str| {
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned).collect::<Vec<_>>()
    };
    let is_limit = |word: &String| {
        word.contains('_')
            && word.chars().all(|c| !c.is_ascii_lowercase())
            && word.split('_').any(|part| matches!(part, "MOST" | "LEAST"))
    };
    for (path, text) in rust_sources() {
        let found: Vec<String> = code_lines(&text).flat_map(words).filter(is_limit).collect();
        assert!(found.is_empty() || path.ends_with("tests/layering.rs"), "{path}: {found:?}: rename to MAX and MIN");
    }
}
