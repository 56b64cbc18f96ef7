//! Checks that no package exceeds its budget of source lines or of types with the same name; the budgets may only fall.
//! Also checks identifiers for meaningless names.

use std::collections::{BTreeMap, BTreeSet};

use crate::layering::{code_lines, packages, rust_sources};

/// What a package may have at most. Lower the numbers when there is less; raise one only for a new ability, and say so.
struct Budget {
    folder: &'static str,
    /// Lines of source files, tests apart.
    lines: usize,
    /// Public types whose name another public type of the package has too.
    homonyms: usize,
}

const BUDGETS: [Budget; 15] = [
    Budget { folder: "engine", lines: 24_430, homonyms: 0 },
    Budget { folder: "engine/allocator", lines: 6_320, homonyms: 0 },
    Budget { folder: "kernels", lines: 2_600, homonyms: 0 },
    Budget { folder: "recorder", lines: 7_520, homonyms: 0 },
    Budget { folder: "recorder/inject", lines: 1_920, homonyms: 0 },
    Budget { folder: "recorder/inject/library", lines: 50, homonyms: 0 },
    Budget { folder: "recorder/simulate", lines: 3_090, homonyms: 0 },
    Budget { folder: "recorder/simulate/library", lines: 50, homonyms: 0 },
    Budget { folder: "snapshots", lines: 13_680, homonyms: 0 },
    Budget { folder: "snapshots/analysis", lines: 24_235, homonyms: 2 },
    Budget { folder: "snapshots/pytorch", lines: 11_830, homonyms: 0 },
    Budget { folder: "tests/notation", lines: 550, homonyms: 0 },
    Budget { folder: "tests/stand-in", lines: 3_950, homonyms: 0 },
    Budget { folder: "viewer", lines: 19_730, homonyms: 2 },
    Budget { folder: "viewer/app", lines: 37_310, homonyms: 6 },
];

/// Below its budget by more than this, a package has to lower it.
const SLACK: usize = 250;

/// Parts of identifiers that say nothing of what is meant; a term of the field is in place of each.
const VAGUE: [&str; 14] = [
    "told",
    "said",
    "unsaid",
    "held",
    "strange",
    "stranger",
    "strangers",
    "settle",
    "settles",
    "homeless",
    "likeness",
    "unite",
    "pile",
    "kin",
];

/// What a package has.
#[derive(Debug, Default)]
struct Use {
    lines: usize,
    vague: BTreeMap<String, usize>,
    types: BTreeMap<String, usize>,
}

/// Source files, tests, benchmarks and examples apart.
fn is_source(path: &str) -> bool {
    let is_test_file = path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.ends_with("_test.rs");
    !is_test_file && !["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder))
}

/// The identifiers of a line of code, without the text of its strings.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split('"').step_by(2);
    code.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
}

/// The parts of an identifier, in small letters: `HeldOps` and `held_ops` have `held` and `ops`.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in identifier.chars() {
        if c == '_' || c.is_ascii_uppercase() {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("one part at least").push(c.to_ascii_lowercase());
        }
    }
    parts
}

/// The name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
}

fn used() -> BTreeMap<&'static str, Use> {
    let mut used: BTreeMap<&str, Use> = BTreeMap::new();
    for (path, text) in rust_sources().into_iter().filter(|(path, _)| is_source(path)) {
        // A package within another's folder has its own lines.
        let of = packages().filter(|folder| path.starts_with(&format!("{folder}/"))).max_by_key(|folder| folder.len());
        let Some(of) = of.filter(|folder| *folder != "tests") else { continue };
        let used = used.entry(of).or_default();
        used.lines += text.split("#[cfg(test)]\nmod ").next().unwrap_or(&text).lines().count();
        for line in code_lines(&text) {
            for identifier in identifiers(line).filter(|word| parts(word).iter().any(|part| VAGUE.contains(&&**part))) {
                *used.vague.entry(identifier.to_owned()).or_default() += 1;
            }
            if let Some(name) = public_type(line).filter(|_| line.starts_with("pub ")) {
                *used.types.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    used
}

#[test]
fn no_package_grows_beyond_its_budget() {
    let mut broken = Vec::new();
    let used = used();
    let listed: BTreeSet<&str> = BUDGETS.iter().map(|budget| budget.folder).collect();
    broken.extend(used.keys().filter(|folder| !listed.contains(*folder)).map(|folder| format!("{folder}: no budget")));
    for Budget { folder, lines, homonyms } in &BUDGETS {
        let Some(used) = used.get(folder) else {
            broken.push(format!("{folder}: no package"));
            continue;
        };
        let types: Vec<&str> = used.types.iter().filter(|(_, count)| **count > 1).map(|(name, _)| &**name).collect();
        if used.lines > *lines || used.lines + SLACK < *lines {
            broken.push(format!("{folder}: {} source lines, the budget is {lines}", used.lines));
        }
        if !used.vague.is_empty() {
            broken.push(format!("{folder}: identifiers that say nothing: {:?}", used.vague));
        }
        if types.len() != *homonyms {
            broken.push(format!("{folder}: {} types share a name, the budget is {homonyms}: {types:?}", types.len()));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn identifiers_are_split_into_their_parts_and_strings_are_not_code() {
    let vague = |line: &str| identifiers(line).any(|word| parts(word).iter().any(|part| VAGUE.contains(&&**part)));
    assert!(vague("let HeldOps { first } = is_told;") && vague("let told = 1;"));
    assert!(!vague("fail(\"what is held\"); unfolded.shelf();"));
    assert_eq!(public_type("pub struct Held<T>(T);"), Some("Held"));
    assert_eq!(public_type("pub(crate) struct Held;"), None);
}
