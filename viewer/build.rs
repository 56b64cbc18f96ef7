//! Embeds in the binary the app for browsers, the libraries of `highwater run` and `highwater simulate`, which Cargo
//! has built for this script and which are copied from Cargo's output folder to where the sources include them, and the
//! Python package.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The app for browsers as `cargo page` leaves it.
const PAGE_FILES: [&str; 2] = ["app.wasm.gz", "app.js.gz"];

/// The libraries: the feature that needs the library, its file name as built by Cargo, and its file name as embedded.
const LIBRARIES: [(&str, &str, &str); 2] = [
    ("CARGO_FEATURE_RUN", "libhighwater_inject_library.so", "inject.so"),
    ("CARGO_FEATURE_SIMULATE", "libhighwater_simulate_library.so", "simulate.so"),
];

/// The Python package, in the folder of this crate's source.
const PACKAGE: &str = "../recorder/python/highwater";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR"));
    for (feature, name, embedded) in LIBRARIES {
        embed_library(&out, feature, name, embedded);
    }
    embed_package(&out);
    embed_page(&out);
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn embed_library(out: &Path, feature: &str, name: &str, embedded: &str) {
    let is_wanted = !variable(feature).is_empty()
        && variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let found = if is_wanted && variable("HOST") == variable("TARGET") { find(out, name) } else { None };
    if is_wanted && found.is_none() {
        // As when building for another machine than this one: the binary then looks beside itself.
        println!("cargo::warning={name} is not embedded in the binary, and must be next to it");
    }
    let library = found.map(|path| std::fs::read(path).expect("the built library cannot be read"));
    let library = library.unwrap_or_default();
    // Computed here, since it would take longer than what many programs do that are run with the library.
    let mut content = DefaultHasher::new();
    library.hash(&mut content);
    let name = format!("libhighwater-{:016x}-{embedded}", content.finish());
    std::fs::write(out.join(format!("{embedded}.name")), name)
        .and_then(|()| std::fs::write(out.join(embedded), library))
        .expect("Cargo's output folder is not writable");
}

/// Writes an array of the names and contents of the package's modules.
fn embed_package(out: &Path) {
    println!("cargo::rerun-if-changed={PACKAGE}");
    let folder = Path::new(&variable("CARGO_MANIFEST_DIR")).join(PACKAGE);
    let entries = std::fs::read_dir(&folder).expect("the Python package is not next to this crate");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".py"));
    names.sort();
    let row = |name: &String| format!("    ({name:?}, include_str!({:?})),\n", folder.join(name));
    let rows: String = names.iter().map(row).collect();
    std::fs::write(out.join("package.rs"), format!("[\n{rows}]")).expect("Cargo's output folder is not writable");
}

/// Embeds the app for browsers, if it was built. Releases set `HIGHWATER_REQUIRE_PAGE`.
fn embed_page(out: &Path) {
    println!("cargo::rerun-if-env-changed=HIGHWATER_REQUIRE_PAGE");
    // The target folder, perhaps below the triple of `--target`, the profile and `build`; else that of the sources.
    let near = out.ancestors().skip(4).take(2).map(|target| target.join("page"));
    let folders: Vec<PathBuf> = near.chain(["../target/page".into()]).collect();
    let found = folders.iter().find(|folder| folder.join(PAGE_FILES[0]).is_file());
    // A watched folder must exist, else Cargo runs this script every time.
    let watched = found.unwrap_or(&folders[0]);
    std::fs::create_dir_all(watched).expect("Cargo's output folder is not writable");
    println!("cargo::rerun-if-changed={}", watched.display());
    let is_required = std::env::var_os("HIGHWATER_REQUIRE_PAGE").is_some();
    assert!(found.is_some() || !is_required, "the app for browsers was not built: run `cargo page` first");
    for name in PAGE_FILES {
        let bytes = found.map(|folder| std::fs::read(folder.join(name)).expect("the built file cannot be read"));
        std::fs::write(out.join(name), bytes.unwrap_or_default()).expect("Cargo's output folder is not writable");
    }
}

/// Finds the newest library of this name in a folder `deps` around Cargo's folder for this script.
fn find(out: &Path, name: &str) -> Option<PathBuf> {
    let places = out.ancestors().skip(1).take(4).map(|folder| folder.join("deps").join(name));
    // With `--target`, libraries for the build machine are in a separate folder, two levels up.
    let profile = out.ancestors().nth(3)?;
    let apart = profile.parent()?.parent()?.join(profile.file_name()?).join("deps").join(name);
    let written = |path: &PathBuf| path.metadata().and_then(|facts| facts.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    places.chain([apart]).filter(|path| path.is_file()).max_by_key(written)
}
