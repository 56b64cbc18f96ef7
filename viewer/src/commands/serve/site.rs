//! The served content: the page, its scripts, and the recordings by number; and the check of who may read it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_snapshots::format::TAIL_MARKER;

use super::request::Request;
use super::response::{Body, Response};
use super::token;
use crate::browser::{self, Listed, SCRIPT};

/// A file that was not changed for so long is no longer being written.
const FRESH: Duration = Duration::from_secs(600);

/// A recording that is served.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// Its name in the page.
    pub(super) name: String,
    /// The .snap file.
    pub(super) path: PathBuf,
    /// Whether it is still being written.
    pub(super) is_growing: bool,
}

/// The pages of one server.
#[derive(Debug)]
pub(super) struct Site {
    token: String,
    /// Names by which browsers may address this server, beside IP addresses and `localhost`.
    hosts: Vec<String>,
    recordings: Vec<Served>,
}

impl Site {
    pub(super) fn new(token: String, hosts: Vec<String>, recordings: Vec<Served>) -> Self {
        Self { token, hosts, recordings }
    }

    /// The secret part of every path.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Answers a request.
    pub(super) fn respond(&self, request: &Request) -> Response {
        if !self.is_known(&request.host) {
            return Response::explained(403, "unknown host name: use the address that highwater serve printed\n");
        }
        let path = request.path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let Some((_, path)) = path.filter(|(given, _)| token::is_same(given, &self.token)) else {
            return Response::refusal(404);
        };
        // Other sites may link to the page, and use nothing of it.
        if !path.is_empty() && request.fetch_site.as_deref() == Some("cross-site") {
            return Response::refusal(403);
        }
        let mut response = self.find(path, request).unwrap_or_else(|| Response::refusal(404));
        response.is_head = request.is_head;
        response
    }

    /// Whether `host`, as a request names it, is a name of this server. A name that somebody else made resolve to this
    /// address (DNS rebinding) is not.
    fn is_known(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').unwrap_or_default(),
            None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
        };
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        if !is_port {
            return false;
        }
        let mut known = self.hosts.iter().map(String::as_str).chain(["localhost"]);
        name.parse::<IpAddr>().is_ok() || known.any(|known| known.eq_ignore_ascii_case(name))
    }

    fn find(&self, path: &str, request: &Request) -> Option<Response> {
        let script = "text/javascript; charset=utf-8";
        let module = || browser::module().ok();
        let packed = |kind: &str, part: &'static [u8]| {
            Response::new(200, kind, Body::Static(part)).kept().with("Content-Encoding", "gzip")
        };
        Some(match path {
            "" => {
                let page = browser::served_page(&self.listed()).into_bytes();
                Response::new(200, "text/html; charset=utf-8", Body::Bytes(page))
            }
            "page.js" => Response::new(200, script, Body::Static(SCRIPT.as_bytes())).kept(),
            "app.js" => packed(script, module()?.loader),
            "app.wasm" => packed("application/wasm", module()?.wasm),
            _ => {
                let number: usize = path.strip_prefix("recording/")?.parse().ok()?;
                let served = self.recordings.get(number)?;
                // A file that was deleted meanwhile.
                send_part(served, request).unwrap_or_else(|_| Response::refusal(404))
            }
        })
    }

    fn listed(&self) -> Vec<Listed> {
        let listed = |(row, served): (usize, &Served)| Listed {
            name: served.name.clone(),
            url: Some(format!("recording/{row}")),
            element: None,
            growing: served.is_growing,
        };
        self.recordings.iter().enumerate().map(listed).collect()
    }
}

/// Answers with the bytes of a recording from the range's first on, as far as they are written.
fn send_part(served: &Served, request: &Request) -> io::Result<Response> {
    let mut file = File::open(&served.path)?;
    // Before the length: what is written in between makes it grow once more.
    let is_growing = served.is_growing && !is_finished(&served.path)? && is_fresh(&served.path);
    let length = file.metadata()?.len();
    let (identity, known) = (identity_of(&mut file, START)?, request.file.as_deref());
    if let Some(known) = known.filter(|_| request.range.is_some_and(|(first, _)| first > 0)) {
        let bytes = known.split('-').nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(START);
        let is_shorter = request.range.is_some_and(|(first, _)| first > length);
        if is_shorter || identity_of(&mut file, bytes)? != known {
            return Ok(Response::explained(409, "the file was replaced or truncated\n"));
        }
    }
    let kind = "application/octet-stream";
    let response = match request.range {
        None => {
            file.seek(SeekFrom::Start(0))?;
            Response::new(200, kind, Body::File(file, length))
        }
        Some((first, _)) if first >= length => Response::refusal(204),
        Some((first, last)) => {
            let end = last.map_or(length, |last| last.saturating_add(1).min(length)).max(first);
            file.seek(SeekFrom::Start(first))?;
            let part = format!("bytes {first}-{}/{length}", end.saturating_sub(1));
            Response::new(206, kind, Body::File(file, end - first)).with("Content-Range", part)
        }
    };
    let growing = if is_growing { "yes" } else { "no" };
    Ok(response.with("Accept-Ranges", "bytes").with("Highwater-Growing", growing).with("Highwater-File", identity))
}

/// First bytes of a file by which it is recognized.
const START: u64 = 4096;

/// Names the file: device and number where the system has them, and the checksum of its first bytes, at most `most`.
fn identity_of(file: &mut File, most: u64) -> io::Result<String> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(most.min(START)).read_to_end(&mut start)?;
    #[cfg(unix)]
    let (device, number) = {
        use std::os::unix::fs::MetadataExt as _;
        let facts = file.metadata()?;
        (facts.dev(), facts.ino())
    };
    #[cfg(not(unix))]
    let (device, number) = (0, 0);
    Ok(format!("{device}-{number}-{}-{}", start.len(), crc32fast::hash(&start)))
}

/// Whether the file was changed so lately that its program may still write it.
pub(super) fn is_fresh(path: &Path) -> bool {
    let changed = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    changed.is_some_and(|time| time.elapsed().is_ok_and(|age| age < FRESH))
}

/// Whether the file ends as complete recordings do.
fn is_finished(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(highwater_snapshots::format::TAIL_BYTES as u64)))?;
    file.read_to_end(&mut tail)?;
    Ok(tail.windows(TAIL_MARKER.len()).any(|part| part == TAIL_MARKER))
}
