//! Recognizes common files that are not recordings by their first bytes, for error messages with advice.

use crate::error::Error;

/// A description of a file that is not a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The kind of the file, such as `a PNG picture`.
    pub found: String,
    /// The advice to the user.
    pub advice: &'static str,
}

const SUPPORTED: &str = "open a .snap file (written by `highwater record`), a PyTorch memory snapshot as pickle, as \
                         JSON or as a page saved by trace_plot, a memory profile of JAX, an SQLite export of Nsight \
                         Systems, or a log of RMM or NCCL, each optionally gzipped";
/// The advice for a file with another structure than a memory snapshot.
pub const SNAPSHOT: &str = "open a file written by torch.cuda.memory._dump_snapshot, which is a dict with the keys \
                            'segments' and 'device_traces', or a list of segments";
const RECORD: &str = "call torch.cuda.memory._record_memory_history() at the start of the program, and after some \
                      steps torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")";
const SAVE: &str = "save a memory snapshot with torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")";
const PULL: &str = "run `git lfs pull` in its repository";
const DECOMPRESS: &str = "decompress it first";
const UNPACK: &str = "unpack it, and open the file in it";
const SOURCE: &str = "open the recording that it was made from";

/// Number of leading bytes that are examined.
const START_BYTES: usize = 4096;

/// The first bytes of files of each kind, the kind's name, and advice.
const STARTS: [(&[u8], &str, &str); 18] = [
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, whose file was not downloaded", PULL),
    (b"/annex/objects/", "a git-annex pointer, whose file was not downloaded", "run `git annex get` on it"),
    (b"\x89PNG", "a PNG picture", SUPPORTED),
    (b"\xff\xd8\xff", "a JPEG picture", SUPPORTED),
    (b"%PDF", "a PDF document", SUPPORTED),
    (b"\x7fELF", "an ELF program or library", "record a CUDA program with `highwater run -- PROGRAM`"),
    (b"\x1f\x8b", "gzip-compressed data", DECOMPRESS),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data", DECOMPRESS),
    (b"\x04\x22\x4d\x18", "LZ4-compressed data", DECOMPRESS),
    (b"BZh", "bzip2-compressed data", DECOMPRESS),
    (b"\xfd7zXZ", "xz-compressed data", DECOMPRESS),
    (b"\x89HDF\r\n", "an HDF5 file", SUPPORTED),
    (b"\x93NUMPY", "a NumPy array (.npy)", SUPPORTED),
    (b"GGUF", "the weights of a model (GGUF)", RECORD),
    // The magic number of files that torch.save wrote before PyTorch 1.6.
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "a file written by torch.save, such as a checkpoint", SAVE),
    (b"PAR1", "a Parquet file, which `highwater convert` writes but cannot read back", SOURCE),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
];

impl Foreign {
    fn new(found: impl Into<String>, advice: &'static str) -> Self {
        Self { found: found.into(), advice }
    }

    /// Recognizes a file that begins with `bytes` and could not be read as a recording; `None` if its kind is unknown.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let bytes = &bytes[..bytes.len().min(START_BYTES)];
        let by_start = || STARTS.iter().find(|(start, ..)| bytes.starts_with(start));
        let text = text_of(bytes);
        zip_archive(bytes)
            .or_else(|| by_start().map(|(_, found, advice)| Self::new(*found, advice)))
            .or_else(|| binary(bytes))
            .or_else(|| text.filter(|text| text.starts_with('<')).map(page))
            .or_else(|| text.filter(|text| text.starts_with(['{', '['])).and_then(json))
    }

    /// Describes a file like [`Foreign::of`], or by its first characters or bytes if its kind is unknown.
    pub fn or_unknown(bytes: &[u8]) -> Self {
        Self::of(bytes).unwrap_or_else(|| Self::new(first_bytes(bytes), SUPPORTED))
    }

    /// Returns the error for a file of this kind.
    pub fn error(self) -> Error {
        Error::NotRecording { found: self.found, advice: self.advice }
    }

    /// Returns the description for content found inside gzip data.
    #[must_use]
    pub fn in_gzip(self) -> Self {
        Self { found: format!("gzip data that contains {}", self.found), ..self }
    }
}

/// Describes a pickle by its protocol, text by its first characters, and other data by its first bytes.
fn first_bytes(bytes: &[u8]) -> String {
    if let [0x80, protocol @ 2..=5, ..] = bytes {
        return format!("a Python pickle of protocol {protocol}");
    }
    let is_text = |text: &&str| !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_whitespace());
    match text_of(&bytes[..bytes.len().min(64)]).filter(is_text) {
        Some(text) => {
            let line: String = text.lines().next().unwrap_or("").chars().take(24).collect();
            format!("text (\"{line}\")")
        }
        None => {
            let shown: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("data that begins with the bytes {}", shown.join(" "))
        }
    }
}

/// Decodes `bytes` as text, without leading white space. The last character may be incomplete. `None` if not text.
fn text_of(bytes: &[u8]) -> Option<&str> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if bytes.len() - error.valid_up_to() < 4 => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return None,
    };
    Some(text.trim_start())
}

/// Describes a zip archive by its first file.
fn zip_archive(bytes: &[u8]) -> Option<Foreign> {
    let header = bytes.strip_prefix(b"PK\x03\x04")?;
    let length = header.get(22..24).map_or(0, |length| usize::from(u16::from_le_bytes([length[0], length[1]])));
    let name = String::from_utf8_lossy(header.get(26..26 + length).unwrap_or_default());
    Some(match &*name {
        name if name.ends_with("/data.pkl") || name.ends_with("/.format_version") => {
            Foreign::new("a file written by torch.save, such as a checkpoint", SAVE)
        }
        name if name.ends_with(".npy") => Foreign::new("NumPy arrays (.npz)", SUPPORTED),
        "" => Foreign::new("a zip archive", UNPACK),
        name => Foreign::new(format!("a zip archive that begins with '{name}'"), UNPACK),
    })
}

/// Recognizes binary formats by their structure, because they have no magic number.
fn binary(bytes: &[u8]) -> Option<Foreign> {
    if bytes.get(257..262) == Some(b"ustar") {
        return Some(Foreign::new("a tar archive", UNPACK));
    }
    // The length of a JSON dict, then the dict.
    let length = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    if (2..1 << 27).contains(&length) && bytes.get(8..10) == Some(b"{\"") {
        return Some(Foreign::new("the weights of a model (safetensors)", RECORD));
    }
    None
}

fn page(text: &str) -> Foreign {
    const DRAWN: &str = "which contains a picture but no snapshot";
    if text.contains("let alloc_data = ") {
        let found = format!("a page of trace_plot of PyTorch 2.0 or before, {DRAWN}");
        return Foreign::new(found, SAVE);
    }
    if text.contains("Memory Timeline") && text.contains("data:image/png") {
        return Foreign::new(format!("a page of export_memory_timeline, {DRAWN}"), RECORD);
    }
    if text.contains("<title>Highwater</title>") {
        return Foreign::new("a page written by `highwater convert`", SOURCE);
    }
    if text.contains("MemoryViz.js") {
        let advice = "open the snapshot that was dropped on it";
        return Foreign::new("the page of PyTorch's viewer, without a snapshot", advice);
    }
    let advice = "from a web site, download the raw file; otherwise open a page saved by PyTorch's trace_plot or \
                  segment_plot, which contains the snapshot as base64";
    let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    match title.map(|(title, _)| title.split_whitespace().collect::<Vec<_>>().join(" ")) {
        Some(title) if !title.is_empty() => Foreign::new(format!("a web page titled '{title:.60}'"), advice),
        _ => Foreign::new("HTML or XML without a snapshot", advice),
    }
}

fn json(text: &str) -> Option<Foreign> {
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    let inside = text[1..].trim_start();
    if has("traceEvents") || has("schemaVersion") && has("deviceProperties") {
        return Some(Foreign::new(
            "a trace of torch.profiler or of another profiler, without a memory snapshot",
            RECORD,
        ));
    }
    if text.starts_with('[') && inside.starts_with('{') && has("ph") && has("ts") {
        return Some(Foreign::new("a list of a profiler's events, without a memory snapshot", RECORD));
    }
    if text.starts_with('[') && inside.starts_with('[') {
        let found = "JSON with a list of lists, as export_memory_timeline writes, which has no blocks and no stacks";
        return Some(Foreign::new(found, RECORD));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: &[u8]) -> String {
        let Foreign { found, advice } = Foreign::of(bytes).unwrap_or_else(|| panic!("{bytes:?} is not recognized"));
        format!("{found}; {advice}")
    }

    #[test]
    fn files_that_are_opened_by_mistake_are_named_with_what_to_do() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let zip = |name: &str| {
            let mut bytes = b"PK\x03\x04".to_vec();
            bytes.extend([0; 22]);
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend(name.as_bytes());
            bytes
        };
        let weights = [&64_u64.to_le_bytes()[..], b"{\"__metadata__\":{}"].concat();
        let cases: &[(&[u8], &[&str])] = &[
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", &["Git LFS", "git lfs pull"]),
            (&zip("archive/data.pkl"), &["torch.save", "_dump_snapshot"]),
            (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M", &["torch.save", "_dump_snapshot"]),
            (&zip("arr_0.npy"), &["NumPy"]),
            (&zip("snapshot.pickle"), &["zip archive that begins with 'snapshot.pickle'", "unpack"]),
            (b"PK\x03\x04", &["a zip archive;"]),
            (&weights, &["safetensors"]),
            (&tar, &["tar archive", "unpack"]),
            (
                b"<html><head><title>GPU Memory Timeline HTML</title></head><img src='data:image/png;base64,iVBO'>",
                &["export_memory_timeline"],
            ),
            (b"\n<!DOCTYPE html>\nlet alloc_data = {\"elements\": []}", &["PyTorch 2.0", "no snapshot"]),
            (b"<script>import \"/MemoryViz.js\"", &["viewer"]),
            (
                b"<html><title>\n a at main \xc2\xb7 me/run \xc2\xb7 GitHub</title>",
                &["'a at main \u{b7} me/run", "raw file"],
            ),
            (b"<svg>", &["HTML or XML"]),
            (b"{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [", &["torch.profiler", "_record_memory_history"]),
            (b"[{\"ph\": \"X\", \"ts\": 1}]", &["profiler's events"]),
            (b"[[1, 2], [[0, 1], [2, 3]]]", &["export_memory_timeline"]),
        ];
        for (bytes, parts) in cases {
            let told = found(bytes);
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
    }

    #[test]
    fn what_may_be_a_recording_is_not_taken_for_another_file() {
        for bytes in
            [&b"\x89HWS\r\n\x1a\n"[..], b"{\"segments\": []}", b"[{\"address\": 1}]", b"[]", b"", b"Dear all", b"\x0a"]
        {
            assert_eq!(Foreign::of(bytes), None, "{bytes:?}");
        }
    }
}
