//! What is served: the page, its scripts, and the recordings by number; to whom, and nothing else.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
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
    /// The device and the number of the file when it was served first.
    pub(super) identity: OnceLock<Option<(u64, u64)>>,
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
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let mut known = self.hosts.iter().map(String::as_str).chain(["localhost"]);
        name.parse::<IpAddr>().is_ok() || known.any(|known| known.eq_ignore_ascii_case(name))
    }

    fn find(&self, path: &str, request: &Request) -> Option<Response> {
        let script = "text/javascript; charset=utf-8";
        let module = || browser::module().ok();
        Some(match path {
            "" => {
                let page = browser::served_page(&self.listed()).into_bytes();
                Response::new(200, "text/html; charset=utf-8", Body::Bytes(page))
            }
            "page.js" => Response::new(200, script, Body::Bytes(format!("{SCRIPT}highwater.start();\n").into_bytes())),
            "app.js" => Response::new(200, script, Body::Static(module()?.loader)).with("Content-Encoding", "gzip"),
            "app.wasm" => {
                Response::new(200, "application/wasm", Body::Static(module()?.wasm)).with("Content-Encoding", "gzip")
            }
            _ => {
                let number: usize = path.strip_prefix("recording/")?.parse().ok()?;
                let served = self.recordings.get(number)?;
                // A file that was deleted meanwhile.
                send_part(served, request.range).unwrap_or_else(|_| Response::refusal(404))
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

/// Answers with the bytes of a recording from `range` on, as far as they are written.
fn send_part(served: &Served, range: Option<(u64, Option<u64>)>) -> io::Result<Response> {
    let mut file = File::open(&served.path)?;
    // Before the length: what is written in between makes it grow once more.
    let is_growing = served.is_growing && !is_finished(&served.path)? && is_fresh(&served.path);
    let length = file.metadata()?.len();
    let kind = "application/octet-stream";
    let response = match range {
        None => Response::new(200, kind, Body::File(file, length)),
        // What was sent is no longer part of the file.
        Some((first, _)) if first > length || !is_same_file(&file, served) => Response::refusal(409),
        Some((first, _)) if first == length => {
            Response::refusal(416).with("Content-Range", format!("bytes */{length}"))
        }
        Some((first, last)) => {
            let end = last.map_or(length, |last| last.saturating_add(1).min(length)).max(first);
            file.seek(SeekFrom::Start(first))?;
            let part = format!("bytes {first}-{}/{length}", end.saturating_sub(1));
            Response::new(206, kind, Body::File(file, end - first)).with("Content-Range", part)
        }
    };
    Ok(response.with("Accept-Ranges", "bytes").with("Highwater-Growing", if is_growing { "yes" } else { "no" }))
}

/// Whether this is still the file that was served first.
#[cfg(unix)]
fn is_same_file(file: &File, served: &Served) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = file.metadata().map(|facts| (facts.dev(), facts.ino())).ok();
    *served.identity.get_or_init(|| identity) == identity
}

#[cfg(not(unix))]
fn is_same_file(_file: &File, _served: &Served) -> bool {
    true
}

/// Whether the file was changed so lately that its program may still write it.
pub(super) fn is_fresh(path: &Path) -> bool {
    let changed = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    changed.is_some_and(|time| time.elapsed().is_ok_and(|age| age < FRESH))
}

/// Whether the file ends as complete recordings do.
fn is_finished(path: &Path) -> io::Result<bool> {
    use std::io::Read as _;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(highwater_snapshots::format::TAIL_BYTES as u64)))?;
    file.read_to_end(&mut tail)?;
    Ok(tail.windows(TAIL_MARKER.len()).any(|part| part == TAIL_MARKER))
}
