//! An HTTP response: a status, header fields, and a body from memory or from a file.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The time limit for sending the response to a client, in addition to the time for its length.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum rate at which a client must receive the response, in bytes per second.
const MIN_RATE: u64 = 50_000;

/// The content security policy of the page. Permits its own scripts, and requests to this server.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

#[derive(Debug)]
pub(super) enum Body {
    Bytes(Vec<u8>),
    Static(&'static [u8]),
    /// The next bytes of a file, and their number.
    File(File, u64),
}

#[derive(Debug)]
pub(super) struct Response {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Body,
    caching: &'static str,
    /// Whether to omit the body, but still send its length.
    pub(super) is_head: bool,
}

impl Response {
    pub(super) fn new(status: u16, content_type: &str, body: Body) -> Self {
        let fields = vec![("Content-Type", content_type.to_owned())];
        Self { status, fields, body, caching: "no-store", is_head: false }
    }

    pub(super) fn refusal(status: u16) -> Self {
        Self { status, fields: Vec::new(), body: Body::Static(&[]), caching: "no-store", is_head: false }
    }

    pub(super) fn explained(status: u16, reason: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", Body::Bytes(reason.into().into_bytes()))
    }

    /// The response for a file that cannot be sent, or was deleted in the meantime.
    pub(super) fn failed(why: &io::Error) -> Self {
        match why.kind() {
            io::ErrorKind::NotFound => Self::refusal(404),
            _ => Self::explained(500, format!("{why}\n")),
        }
    }

    /// Lets the client cache the response for a long time. It never changes, because a restarted server has other URLs.
    pub(super) fn cacheable(mut self) -> Self {
        self.caching = "private, max-age=604800, immutable";
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Sends the response.
    ///
    /// # Errors
    /// Fails if the client disconnects, or is too slow.
    pub(super) fn send(self, client: &TcpStream) -> io::Result<()> {
        let length = match &self.body {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Static(bytes) => bytes.len() as u64,
            Body::File(_, length) => *length,
        };
        let deadline = Instant::now() + REQUEST_TIMEOUT + Duration::from_secs(length / MIN_RATE);
        let mut out = BufWriter::with_capacity(1 << 16, Timed { client, deadline });
        write!(
            out,
            "HTTP/1.1 {} {}\r\nContent-Length: {length}\r\nConnection: close\r\n",
            self.status,
            reason(self.status)
        )?;
        write!(out, "Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n")?;
        write!(out, "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n")?;
        write!(out, "Cross-Origin-Opener-Policy: same-origin\r\nCache-Control: {}\r\n", self.caching)?;
        for (name, value) in &self.fields {
            write!(out, "{name}: {value}\r\n")?;
        }
        out.write_all(b"\r\n")?;
        if !self.is_head {
            match self.body {
                Body::Bytes(bytes) => out.write_all(&bytes)?,
                Body::Static(bytes) => out.write_all(bytes)?,
                Body::File(file, length) => {
                    io::copy(&mut file.take(length), &mut out)?;
                }
            }
        }
        out.flush()
    }
}

/// A connection that must be finished by a deadline.
struct Timed<'a> {
    client: &'a TcpStream,
    deadline: Instant,
}

impl io::Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.client.set_write_timeout(Some(left))?;
        self.client.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.client.flush()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    }
}
