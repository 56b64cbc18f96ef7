//! Fills `corpus` with the small recordings of `testdata`, uncompressed, so that every changed byte affects the parser.

use std::error::Error;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use highwater_fuzz::go;
use highwater_snapshots::format::{Found, PREAMBLE_BYTES, SectionHeader, Walker, write_trace};
use highwater_pytorch::open::open_bytes;
use highwater_pytorch::export::write_json;

/// Larger files would slow the fuzzer down more than they would teach it.
const MAX_BYTES: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = folder.join("corpus");
    let mut seeds = 0;
    let recordings = [folder.join("../testdata"), folder.join("../pytorch/testdata")];
    for path in recordings.iter().map(|folder| files(folder)).collect::<Result<Vec<_>, _>>()?.concat() {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let bytes = fs::read(&path)?;
        let Ok(opened) = open_bytes(&bytes, &mut go) else { continue };
        let plain = if name.ends_with(".gz") { gunzipped(&bytes)? } else { bytes.clone() };
        let kind = match opened.format.name().as_str() {
            "snap" => "snap",
            name if name.starts_with("json") => "json",
            name if name.starts_with("pickle") => "pickle",
            _ => "open",
        };
        let mut put = |target: &str, name: &str, bytes: &[u8]| {
            if bytes.len() > MAX_BYTES {
                return Ok(());
            }
            seeds += 1;
            fs::create_dir_all(corpus.join(target))?;
            fs::write(corpus.join(target).join(name), bytes)
        };
        put("open", name, &bytes)?;
        put(kind, &format!("{name}.plain"), if kind == "snap" { bare(&plain)? } else { plain }.as_slice())?;
        if kind != "snap" {
            put("snap", name, &bare(&write_trace(Vec::new(), &opened.trace)?)?)?;
        }
        let mut json = Vec::new();
        write_json(&mut json, &opened.trace, &mut go)?;
        put("json", name, &json)?;
    }
    println!("{seeds} seeds lie in {}", corpus.display());
    Ok(())
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn gunzipped(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out)?;
    Ok(out)
}

/// A `.snap` file with every section stored as it is. The footer's offsets are wrong then, as the fuzzer's would be.
fn bare(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = bytes[..PREAMBLE_BYTES].to_vec();
    for found in Walker::new(bytes, PREAMBLE_BYTES) {
        let Found::Section(section) = found else { continue };
        let raw = section.header.raw as usize;
        let payload = match section.header.compression {
            0 => section.stored.to_vec(),
            _ => zstd::bulk::decompress(section.stored, raw)?,
        };
        let mut crc = flate2::Crc::new();
        crc.update(&payload);
        let stored = payload.len() as u32;
        let header = SectionHeader { compression: 0, stored, raw: stored, payload_crc: crc.sum(), ..section.header };
        out.extend(header.to_bytes());
        out.extend(payload);
    }
    Ok(out)
}
