//! Builds a small C library with an inlined function and a chosen build id for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_snapshots::symbols::{Binary, Line, Request, Symbolizer};

/// Lines 2 and 5 are part of the tests.
pub(crate) const SOURCE: &str = "static inline __attribute__((always_inline)) int inner(volatile int *place) {
    return *place += 1;
}
__attribute__((noinline)) int outer(volatile int *place) {
    return inner(place) * 3;
}
";

/// The build id that [`Library::new`] asks for.
pub(crate) const BUILD_ID: [u8; 4] = [0x01, 0x23, 0xab, 0xcd];

/// A library in its own folder, and an address in its inlined function.
pub(crate) struct Library {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) address: u64,
}

impl Library {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lib/libouter.so");
        build(&path, &BUILD_ID);
        let address = address_in_inner(&path);
        Self { folder, path, address }
    }

    /// A path in the folder, below folders that are there.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder above")).expect("a folder");
        path
    }

    /// Strips the library where it is, and puts its lines to `debug`.
    pub(crate) fn strip_to(&self, debug: &Path) {
        run("objcopy", &["--only-keep-debug".as_ref(), &self.path, debug]);
        run("objcopy", &["--strip-debug".as_ref(), &self.path]);
    }

    /// Makes the library name `debug` as the file that has its lines.
    pub(crate) fn link_to(&self, debug: &Path) {
        run("objcopy", &[Path::new(&format!("--add-gnu-debuglink={}", debug.display())), &self.path]);
    }
}

/// Builds the library at `path`, without a build id if that is empty.
pub(crate) fn build(path: &Path, build_id: &[u8]) {
    let folder = path.parent().expect("a folder above");
    std::fs::create_dir_all(folder).expect("a folder");
    let source = folder.join("outer.c");
    std::fs::write(&source, SOURCE).expect("a source file");
    let text: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let build_id = if text.is_empty() { "-Wl,--build-id=none".to_owned() } else { format!("-Wl,--build-id=0x{text}") };
    let flags = ["-O2", "-g", "-shared", "-fPIC", &build_id, "-o"].map(Path::new);
    run("cc", &[&flags[..], &[path, &source]].concat());
}

fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}");
}

/// An address that the library's own debug information has in the inlined function.
fn address_in_inner(path: &Path) -> u64 {
    let addresses: Vec<u64> = (0x1000..0x1400).collect();
    let binary = Binary { path: path.to_owned(), build_id: BUILD_ID.to_vec() };
    let found = Symbolizer::new(Vec::new()).resolve(&[Request { binary, addresses: addresses.clone() }]);
    let is_inner = |lines: &&Vec<Line>| lines.first().is_some_and(|line| line.function == "inner");
    let at = found[0].iter().position(|lines| is_inner(&lines)).expect("the function was inlined");
    addresses[at]
}
