//! Reads the head of an HTTP request, which suffices to answer GET and HEAD.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum length of a head, in bytes.
const LONGEST_HEAD: usize = 32 << 10;

const MAX_FIELDS: usize = 128;

/// The parts of an HTTP request's head that determine the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// Whether only the head of the response is requested.
    pub(super) is_head: bool,
    /// The path, without a query.
    pub(super) path: String,
    pub(super) host: String,
    /// The first and the last requested byte, both included, from the field `Range`; without a last one, up to the end.
    pub(super) range: Option<(u64, Option<u64>)>,
    /// The field `Highwater-File`: identifies the file of earlier parts, as returned by the server.
    pub(super) file: Option<String>,
    /// The header `Sec-Fetch-Site`, which states whether another site caused the request.
    pub(super) fetch_site: Option<String>,
}

/// Reads a request, which must be complete within `patience`; `None` if the client disconnects without one. The error
/// is the HTTP status of the response.
pub(super) fn read(mut client: &TcpStream, patience: Duration) -> Result<Option<Request>, u16> {
    let deadline = Instant::now() + patience;
    let mut head = Vec::new();
    let mut part = [0; 2048];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(408);
        }
        client.set_read_timeout(Some(left)).map_err(|_| 500_u16)?;
        let taken = match client.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(taken) => taken,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(408),
        };
        head.extend_from_slice(&part[..taken]);
        if let Some(request) = parse(&head)? {
            return Ok(Some(request));
        }
        if head.len() > LONGEST_HEAD {
            return Err(431);
        }
    }
}

/// Parses `head`; `None` if it is incomplete. The error is the HTTP status of the response.
fn parse(head: &[u8]) -> Result<Option<Request>, u16> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    }
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(405),
    };
    let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    let mut request = Request { is_head, path, ..Request::default() };
    let mut hosts = 0;
    for field in parsed.headers.iter() {
        let value = || std::str::from_utf8(field.value).map_err(|_| 400_u16);
        match field.name.to_ascii_lowercase().as_str() {
            "host" => {
                hosts += 1;
                value()?.clone_into(&mut request.host);
            }
            "range" => request.range = range_of(value()?),
            "highwater-file" => request.file = Some(value()?.to_owned()),
            "sec-fetch-site" => request.fetch_site = Some(value()?.to_ascii_lowercase()),
            // Other fields are ignored, among them cookies of other programs on this computer.
            _ => {}
        }
    }
    if hosts == 1 { Ok(Some(request)) } else { Err(400) }
}

/// Parses a range with a start. Other kinds of ranges are ignored, so that the whole content is sent.
fn range_of(value: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    let first = first.parse().ok()?;
    last.is_none_or(|last| last >= first).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Request>, u16> {
        parse(text.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn requests_are_read_to_the_end_of_their_head() {
        let text = "GET /a/b?c=d HTTP/1.1\nHost: localhost:80\nRange: bytes=5-\nSec-Fetch-Site: none\n\n";
        let request = parsed(text).unwrap().unwrap();
        assert_eq!(
            (request.path.as_str(), request.host.as_str(), request.range),
            ("/a/b", "localhost:80", Some((5, None)))
        );
        assert_eq!(request.fetch_site.as_deref(), Some("none"));
        for end in 0..text.len() - 1 {
            assert_eq!(parsed(&text[..end]), Ok(None), "{end}");
        }
        assert!(parsed("HEAD / HTTP/1.1\nhost: a\n\n").unwrap().unwrap().is_head);
    }

    #[test]
    fn what_is_no_request_for_a_page_gets_its_status() {
        assert_eq!(parsed("POST / HTTP/1.1\nHost: a\n\n"), Err(405));
        assert_eq!(parsed("GET / HTTP/1.1\n\n"), Err(400));
        assert_eq!(parsed("GET / HTTP/1.1\nHost: a\nHost: b\n\n"), Err(400));
        assert_eq!(parsed("hello\n\n"), Err(400));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n"), Err(400));
        let many: String = (0..140).map(|number| format!("a{number}: b\n")).collect();
        assert_eq!(parsed(&format!("GET / HTTP/1.1\nHost: a\n{many}\n")), Err(431));
    }

    #[test]
    fn ranges_from_a_start_are_understood_and_others_ignored() {
        assert_eq!(range_of("bytes=0-9"), Some((0, Some(9))));
        assert_eq!(range_of("bytes=7-"), Some((7, None)));
        for other in ["bytes=-5", "bytes=5-3", "bytes=0-1,4-5", "lines=1-", "bytes=a-b", "bytes=99999999999999999999-"]
        {
            assert_eq!(range_of(other), None, "{other}");
        }
    }
}
