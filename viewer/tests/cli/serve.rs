//! Tests the contents of pages for browsers, and which requests `serve` answers over real connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::binary::{folder, highwater, names, refused, stderr, stdout};
use crate::sample::trace;

/// A running `highwater serve`.
struct Server {
    child: Child,
    _out: BufReader<ChildStdout>,
    port: u16,
    token: String,
    said: String,
}

impl Server {
    /// Starts it in `folder`; `None` in a build without the app for browsers.
    fn start(folder: &Path, words: &str) -> Option<Self> {
        if is_without_page(folder) {
            return None;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.current_dir(folder).arg("serve").args(words.split(' ')).stdout(Stdio::piped());
        command.stdin(if words.contains("--stop-at-eof") { Stdio::piped() } else { Stdio::null() });
        command.env("USER", "ada").env("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.1 22").env("TMPDIR", folder);
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ctrl-C") {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "it ended: {said}");
        }
        let url = said.split("http://").nth(1).unwrap().lines().next().unwrap();
        let (host, token) = url.split_once('/').unwrap();
        let port = host.rsplit_once(':').unwrap().1.parse().unwrap();
        Some(Self { child, _out: out, port, token: token.trim_end_matches('/').to_owned(), said })
    }

    /// Sends `request` as it is, and returns what comes back until the server closes the connection.
    fn send(&self, request: &[u8]) -> Vec<u8> {
        let mut client = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A refused request may not be read to its end.
        let _ = client.write_all(request);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        answer
    }

    /// The status, the head and the body of the answer to a request for `path` below the token, with more header
    /// fields.
    fn get(&self, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
        self.ask("GET", &format!("/{}/{path}", self.token), &format!("Host: 127.0.0.1:{}\r\n{fields}", self.port))
    }

    fn ask(&self, method: &str, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
        let answer = self.send(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n").as_bytes());
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, answer[end + 4..].to_vec())
    }

    fn status(&self, path: &str, fields: &str) -> u16 {
        self.ask("GET", path, fields).0
    }

    /// Waits until the program ends, and returns its status.
    fn status_at_end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this build has no app for browsers, which `cargo page` builds. Then it says so.
#[expect(clippy::print_stderr, reason = "tells that a test was skipped")]
fn is_without_page(folder: &Path) -> bool {
    let output = highwater(folder, "convert step.snap probe.html");
    if output.status.success() {
        std::fs::remove_file(folder.join("probe.html")).unwrap();
        return false;
    }
    let why = stderr(&output);
    assert!(why.contains("this build does not include the browser app") && why.contains("`cargo page`"), "{why}");
    assert!(std::env::var_os("HIGHWATER_REQUIRE_PAGE").is_none(), "{why}");
    eprintln!("skipped: {why}");
    true
}

#[test]
fn the_page_and_the_recordings_are_served_and_the_way_there_is_printed() {
    let (folder, bytes) = folder();
    let pickle = highwater(folder.path(), "convert step.snap step.pickle");
    assert!(pickle.status.success());
    let Some(server) = Server::start(folder.path(), "step.snap step.pickle") else { return };
    let port = server.port;
    assert!(server.said.contains(&format!("http://127.0.0.1:{port}/{}/", server.token)), "{}", server.said);
    assert!(server.said.contains(&format!("ssh -N -L {port}:127.0.0.1:{port} ada@10.0.0.1")), "{}", server.said);
    let (status, head, page) = server.get("", "");
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    assert!(page.contains(r#"[{"name":"step.snap","url":"recording/0","growing":false},"#), "{page}");
    for field in
        ["Content-Security-Policy: default-src 'none'", "Referrer-Policy: no-referrer", "Cache-Control: no-store"]
    {
        assert!(head.contains(field), "{head}");
    }
    assert!(!head.contains("Access-Control"), "other sites may read nothing: {head}");
    let (status, head, _) = server.get("app.wasm", "");
    assert!(status == 200 && head.contains("application/wasm") && head.contains("Content-Encoding: gzip"), "{head}");
    assert!(head.contains("Cache-Control: private"), "a reload does not transfer it again: {head}");
    assert_eq!(server.get("page.js", "").0, 200);
    assert_eq!(server.get("recording/0", "").2, bytes);
    // A pickle is sent as a recording.
    let (_, head, converted) = server.get("recording/1", "");
    assert!(converted.starts_with(&bytes[..8]) && head.contains("Highwater-Growing: no"), "{head}");
    assert!(head.contains("Cache-Control: no-store"), "recordings are kept nowhere: {head}");
    let (status, head, part) = server.get("recording/0", "Range: bytes=10-19\r\n");
    assert_eq!((status, part.as_slice()), (206, &bytes[10..20]));
    assert!(head.contains(&format!("Content-Range: bytes 10-19/{}", bytes.len())), "{head}");
    assert_eq!(server.get("recording/0", &format!("Range: bytes={}-\r\n", bytes.len())).0, 204);
    let (status, head, body) = server.ask("HEAD", &format!("/{}/", server.token), "Host: localhost\r\n");
    assert!(status == 200 && body.is_empty() && head.contains(&format!("Content-Length: {}", page.len())), "{head}");
}

#[test]
fn the_ranks_of_a_folder_are_served_as_they_appear_and_a_rotation_file_by_file() {
    let (folder, bytes) = folder();
    let ranks = folder.path().join("ranks");
    std::fs::create_dir(&ranks).unwrap();
    std::fs::copy(folder.path().join("step.snap"), ranks.join("rank0.snap")).unwrap();
    let Some(server) = Server::start(folder.path(), "ranks") else { return };
    assert!(String::from_utf8(server.get("", "").2).unwrap().contains("data-ranks"));
    let (status, head, first) = server.get("ranks/", "");
    let first: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert!(status == 200 && head.contains("Highwater-Version: 1"), "{head}");
    assert_eq!(first["ranks"][0]["path"], "rank/0/rank0.snap", "an address, not a path");
    assert_eq!(server.get("ranks/1", "").0, 204, "nothing has changed");
    assert!(highwater(folder.path(), "convert step.snap ranks/rank1.pickle").status.success());
    let (start, end) = bytes.split_at(bytes.len() - highwater_snapshots::format::TAIL_BYTES);
    std::fs::write(ranks.join("rank2.0001.snap"), start).unwrap();
    let begun = Instant::now();
    while server.get("ranks/1", "").0 == 204 {
        assert!(begun.elapsed() < Duration::from_secs(60), "what appears is found");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.get("rank/0/rank0.snap", "").2, bytes);
    assert_eq!(server.get("rank/1/rank1.pickle", "").2[..8], bytes[..8], "a pickle is sent as a recording");
    let (_, head, part) = server.get("rank/2/rank2.snap", "");
    assert!(part == start && head.contains("Highwater-Growing: yes"), "it is not finished: {head}");
    let file_of = |head: &str| head.lines().find(|line| line.starts_with("Highwater-File: ")).unwrap().to_owned();
    let rest = format!("Range: bytes={}-\r\n{}\r\n", start.len(), file_of(&head));
    let (status, head, _) = server.get("rank/2/rank2.snap", &rest);
    assert!(status == 204 && !head.contains("Highwater-Next"), "{head}");
    let later = trace().edited(|later| "a later run".clone_into(&mut later.header.program));
    let second = highwater_snapshots::format::write_trace(Vec::new(), &later).unwrap();
    std::fs::write(ranks.join("rank2.0002.snap"), &second).unwrap();
    let (status, head, _) = server.get("rank/2/rank2.snap", &rest);
    assert!(status == 204 && !head.contains("Highwater-Next"), "the recorder completes it in the background: {head}");
    let mut first = std::fs::OpenOptions::new().append(true).open(ranks.join("rank2.0001.snap")).unwrap();
    first.write_all(end).unwrap();
    drop(first);
    let (status, head, last) = server.get("rank/2/rank2.snap", &rest);
    assert!(status == 206 && last == end && head.contains("Highwater-Next: yes"), "{head}");
    let (_, newest, first) = server.get("rank/2/rank2.snap", "");
    assert_eq!(first, second, "the newest file is the first that a page fetches");
    std::fs::remove_file(ranks.join("rank2.0001.snap")).unwrap();
    let (status, head, _) = server.get("rank/2/rank2.snap", &rest);
    assert!(status == 204 && head.contains("Highwater-Next: yes"), "removed within a budget: {head}");
    // When nothing more is expected, its files are one recording.
    std::fs::copy(folder.path().join("step.snap"), ranks.join("rank2.0001.snap")).unwrap();
    for name in ["rank2.0001.snap", "rank2.0002.snap"] {
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::options().write(true).open(ranks.join(name)).unwrap().set_modified(hour_ago).unwrap();
    }
    let (_, head, whole) = server.get("rank/2/rank2.snap", "");
    assert!(head.contains("Highwater-Growing: no") && file_of(&head) != file_of(&newest), "{head}");
    std::fs::write(folder.path().join("whole.snap"), whole).unwrap();
    let (_, again, _) = server.get("rank/2/rank2.snap", "");
    assert_eq!(file_of(&again), file_of(&head), "it is not written again");
    let facts = |file: &str| stdout(&highwater(folder.path(), &format!("info {file} --csv")));
    assert_eq!(facts("whole.snap"), facts("ranks/rank2.snap"));
    for path in ["rank/3/x", "rank/x", "rank/-1/x"] {
        assert_eq!(server.get(path, "").0, 404, "{path}");
    }
    // What cannot be converted is not taken for deleted.
    let pickle = ranks.join("rank1.pickle");
    std::fs::write(&pickle, "Dear all").unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(10);
    std::fs::File::options().write(true).open(&pickle).unwrap().set_modified(later).unwrap();
    let (status, _, why) = server.get("rank/1/rank1.pickle", "");
    let why = String::from_utf8(why).unwrap();
    assert!(status == 500 && why.contains("rank1.pickle"), "{status} {why}");
    std::fs::remove_file(&pickle).unwrap();
    assert_eq!(server.get("rank/1/rank1.pickle", "").0, 404);
}

#[test]
fn a_recording_without_events_is_announced_and_an_empty_file_refused() {
    let (folder, _) = folder();
    std::fs::write(folder.path().join("empty.snap"), "").unwrap();
    let Some(server) = Server::start(folder.path(), "empty.snap") else { return };
    assert!(server.said.starts_with("empty.snap has no events yet"), "{}", server.said);
    std::fs::write(folder.path().join("empty.txt"), "").unwrap();
    let empty = highwater(folder.path(), "serve empty.txt");
    assert!(stderr(&empty).contains("empty.txt: the file is empty"), "{}", stderr(&empty));
}

#[test]
fn strangers_and_tricks_get_nothing() {
    let (folder, _) = folder();
    std::fs::write(folder.path().join("secret.txt"), "secret").unwrap();
    let Some(server) = Server::start(folder.path(), "step.snap") else { return };
    let (host, token) = (format!("Host: 127.0.0.1:{}\r\n", server.port), server.token.clone());
    let wrong = token.replace(|c: char| c.is_ascii_digit(), "x");
    let shorter = &token[1..];
    for path in
        ["/", "/recording/0", "//recording/0", &format!("/{wrong}/"), &format!("/{shorter}/"), &format!("/{token}")]
    {
        assert_eq!(server.status(path, &host), 404, "{path}");
    }
    for path in [
        "secret.txt",
        "../secret.txt",
        "recording/../secret.txt",
        "recording/%2e%2e/secret.txt",
        "recording/1",
        "recording/-1",
        "recording/0/../0",
        "recording/18446744073709551616",
        "recording/",
        "/etc/passwd",
        "step.snap",
        "app.js/",
    ] {
        assert_eq!(server.get(path, "").0, 404, "{path}");
    }
    let page = format!("/{token}/");
    for foreign in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
        "localhost.evil.example:1",
        "[::1]evil.example",
        "localhost:80@evil.example",
        "127.0.0.1:evil",
    ] {
        assert_eq!(server.status(&page, &format!("Host: {foreign}\r\n")), 403, "{foreign}");
    }
    for known in ["localhost", "127.0.0.1:9", "[::1]:80", "LOCALHOST:8000"] {
        assert_eq!(server.status(&page, &format!("Host: {known}\r\n")), 200, "{known}");
    }
    assert_eq!(server.get("recording/0", "Sec-Fetch-Site: cross-site\r\n").0, 403);
    assert_eq!(server.get("recording/0", "Sec-Fetch-Site: same-origin\r\n").0, 200);
    for method in ["POST", "PUT", "OPTIONS", "DELETE", "CONNECT"] {
        assert_eq!(server.ask(method, &page, &host).0, 405, "{method}");
    }
}

#[test]
fn malformed_requests_and_stalled_clients_harm_nobody() {
    let (folder, bytes) = folder();
    let Some(server) = Server::start(folder.path(), "step.snap") else { return };
    // Clients that never finish their request.
    let stalled: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            client.write_all(b"GET / HT").unwrap();
            client
        })
        .collect();
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let whole = format!("GET /{}/recording/0 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-\r\n\r\n", server.token);
    for round in 0..1000 {
        let mut request = whole.clone().into_bytes();
        match round % 4 {
            0 => request = (0..random() % 300).map(|_| random() as u8).collect(),
            1 => request.truncate(random() % whole.len()),
            2 => (0..8).for_each(|_| request[random() % whole.len()] = random() as u8),
            _ => request.splice(4..4, std::iter::repeat_n(b'a', 40_000)).for_each(drop),
        }
        let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let _ = client.write_all(&request);
        // It goes away without listening.
    }
    assert_eq!(server.get("recording/0", "").2, bytes);
    drop(stalled);
    let endless = server.send(&b"GET / HTTP/1.1\r\nA: ".iter().copied().chain([b'a'; 40_000]).collect::<Vec<u8>>());
    assert!(endless.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&endless));
}

#[test]
fn a_recording_that_is_being_written_grows() {
    let (folder, bytes) = folder();
    let (start, end) = bytes.split_at(bytes.len() / 2);
    let path = folder.path().join("live.snap");
    std::fs::write(&path, start).unwrap();
    let Some(server) = Server::start(folder.path(), "live.snap") else { return };
    let page = String::from_utf8(server.get("", "").2).unwrap();
    assert!(page.contains(r#"[{"name":"live.snap","url":"recording/0","growing":true}]"#), "{page}");
    let (_, head, first) = server.get("recording/0", "Range: bytes=0-\r\n");
    assert!(first == start && head.contains("Highwater-Growing: yes"), "{head}");
    let more = format!("Range: bytes={}-\r\n", first.len());
    let (status, head, _) = server.get("recording/0", &more);
    assert!(status == 204 && head.contains("Highwater-Growing: yes"), "{head}");
    let file = head.lines().find(|line| line.starts_with("Highwater-File: ")).unwrap().to_owned();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(end).unwrap();
    let more = format!("{more}{file}\r\n");
    let (status, head, rest) = server.get("recording/0", &more);
    assert!(status == 206 && rest == end && head.contains("Highwater-Growing: no"), "{head}");
    // Another recording under the same name, and in the same file.
    let mut other = bytes.clone();
    other[40] ^= 1;
    std::fs::write(&path, &other).unwrap();
    assert_eq!(server.get("recording/0", &more).0, 409);
    assert_eq!(server.get("recording/0", &format!("Range: bytes=0-\r\n{file}\r\n")).0, 206, "from the start");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_and_leaves_no_files() {
    let (folder, _) = folder();
    assert!(highwater(folder.path(), "convert step.snap step.json").status.success());
    let Some(mut server) = Server::start(folder.path(), "step.json") else { return };
    let is_there = |names: &[String]| names.iter().any(|name| name.starts_with("highwater-serve-"));
    assert!(is_there(&names(folder.path())));
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let status = server.status_at_end();
    assert!(status.success() && !is_there(&names(folder.path())), "{status}");
}

#[test]
fn the_end_of_standard_input_ends_it_if_asked_for() {
    let (folder, _) = folder();
    let Some(mut server) = Server::start(folder.path(), "step.snap --stop-at-eof --host 0.0.0.0") else { return };
    assert_eq!(server.get("", "").0, 200);
    drop(server.child.stdin.take());
    assert!(server.status_at_end().success());
    let Some(server) = Server::start(folder.path(), "step.snap") else { return };
    assert_eq!(server.get("", "").0, 200, "it goes on without the option, though its input has ended");
    refused(folder.path(), "serve - --stop-at-eof", "name a file instead of `-`");
}

#[test]
fn a_page_is_one_file_with_everything_in_it() {
    let (folder, _) = folder();
    if is_without_page(folder.path()) {
        return;
    }
    let output = highwater(folder.path(), "convert step.snap step.snap out.html");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(stdout(&output).starts_with("Wrote out.html ("), "{}", stdout(&output));
    let page = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(page.contains("Content-Security-Policy") && !page.contains("src=\"") && !page.contains("href=\"http"));
    assert!(page.contains("id=\"recording-1\"") && page.ends_with("</html>\n"));
    refused(folder.path(), "convert step.snap step.snap step.snap out.html", "`highwater serve FILE…`");
    refused(folder.path(), "serve gone.snap", "gone.snap");
    refused(folder.path(), "serve", "FILE");
    refused(folder.path(), "serve step.snap --host 192.0.2.1", "cannot listen on 192.0.2.1");
    let json = highwater(folder.path(), "convert step.snap out.html --json");
    let told: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(told["events"], trace().events.len());
}
