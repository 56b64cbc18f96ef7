//! Tests that snapshots made by PyTorch can be opened, from the folder given in HIGHWATER_TORCH_SAMPLES.

use highwater_pytorch::open::open_file;

use crate::made::go;

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn real_snapshots_open() {
    let Some(folder) = std::env::var_os("HIGHWATER_TORCH_SAMPLES") else {
        println!("skipped: HIGHWATER_TORCH_SAMPLES names no folder of PyTorch's snapshots");
        return;
    };
    let mut opened = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(kind) = ["pickle", "html"].iter().find(|kind| name.ends_with(**kind)) else { continue };
        let recording = open_file(&path, &mut go).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(recording.format.name(), *kind, "{name}");
        assert!(!recording.trace.events.is_empty(), "{name}");
        opened += 1;
    }
    assert!(opened > 0, "the folder has snapshots");
}
