//! The served content, and access control: the page, its scripts, the recordings by index, and the ranks of folders.

use std::net::IpAddr;
use std::path::PathBuf;

use super::folder::Folder;
use super::part::{is_being_written, send_part};
use super::request::Request;
use super::response::{Body, Response};
use crate::browser::{self, Listed, SCRIPT};
use crate::output::Failure;

#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_growing: bool,
}

#[derive(Debug)]
pub(super) struct Site {
    /// The secret component of all paths.
    pub(super) token: String,
    /// Names by which browsers may address this server, in addition to IP addresses and `localhost`.
    pub(super) hosts: Vec<String>,
    pub(super) recordings: Vec<Served>,
    pub(super) folder: Option<Folder>,
}

impl Site {
    /// Responds to a request, after checking its host, path and token.
    pub(super) fn respond(&self, request: &Request) -> Response {
        if !self.is_known(&request.host) {
            return Response::explained(403, "unknown host name: use the address that highwater serve printed\n");
        }
        let path = request.path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let Some((_, path)) = path.filter(|(given, _)| is_same(given, &self.token)) else {
            return Response::refusal(404);
        };
        // Other sites may link to the page, but not load anything below it.
        if !path.is_empty() && request.fetch_site.as_deref() == Some("cross-site") {
            return Response::refusal(403);
        }
        let mut response = self.find(path, request).unwrap_or_else(|| Response::refusal(404));
        response.is_head = request.is_head;
        response
    }

    /// Returns whether `host`, the host name in a request, is a name of this server. Names that others made resolve to
    /// this address (DNS rebinding) are rejected.
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
            Response::new(200, kind, Body::Static(part)).cacheable().with("Content-Encoding", "gzip")
        };
        Some(match path {
            "" => {
                let page = browser::served_page(&self.listed(), self.folder.is_some()).into_bytes();
                Response::new(200, "text/html; charset=utf-8", Body::Bytes(page))
            }
            "page.js" => Response::new(200, script, Body::Static(SCRIPT.as_bytes())).cacheable(),
            "app.js" => packed(script, module()?.loader),
            "app.wasm" => packed("application/wasm", module()?.wasm),
            _ if let Some(number) = path.strip_prefix("recording/") => {
                let served = self.recordings.get(number.parse::<usize>().ok()?)?;
                let is_growing = served.is_growing && is_being_written(&served.path);
                send_part(&served.path, is_growing, request).unwrap_or_else(|why| Response::failed(&why))
            }
            _ => self.folder.as_ref()?.find(path, request)?,
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

const BYTES: usize = 16;

/// Returns a new token of hexadecimal digits.
pub(super) fn random_token() -> Result<String, Failure> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|why| Failure::Usage(format!("cannot create the secret address: {why}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares two tokens in constant time, so that the position of a difference is not revealed.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let [one, other] = [random_token().unwrap(), random_token().unwrap()];
        assert!(one != other && one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(is_same(&one, &one.clone()) && !is_same(&one, &other));
        assert!(!is_same(&one, &one[..31]) && !is_same("", &one) && !is_same(&one, &format!("{one}0")));
    }
}
