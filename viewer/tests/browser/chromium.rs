//! Chromium without a window, driven over its debugging protocol.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::connection::{Connection, find};
use super::page::Page;

/// Returns the path of the browser; `None` if there is none.
pub(crate) fn program() -> Option<PathBuf> {
    find(&["chromium", "chromium-browser", "google-chrome"])
}

/// A browser with one page.
pub(crate) struct Chromium {
    child: Child,
    connection: Connection,
    session: String,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts `program` with these arguments in addition.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.args(["--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0", "--disable-quic"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--window-size=1440,900"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).args(arguments).arg("about:blank");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.into_iter().find_map(|line| line.split("listening on ").nth(1).map(str::to_owned));
        let connection = Connection::open(address.expect("the browser says where it listens").trim());
        let mut browser = Self { child, connection, session: String::new(), _profile: profile };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach);
        session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the protocol, and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let mut message = json!({"method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.connection.call(message)
    }

    /// Loads the page again, and waits until the former one is left.
    pub(crate) fn reload(&mut self) {
        let known = self.connection.events.len();
        self.call("Page.reload", &json!({}));
        self.connection.wait_for("Page.frameNavigated", known);
    }

    /// Presses a key with a character, as on a keyboard; `modifiers`: 2 for Ctrl.
    pub(crate) fn press(&mut self, key: char, modifiers: u32) {
        let code = match key {
            'a'..='z' => format!("Key{}", key.to_ascii_uppercase()),
            '0'..='9' => format!("Digit{key}"),
            _ => String::new(),
        };
        let number = u32::from(key.to_ascii_uppercase());
        let mut event = json!({
            "type": "keyDown", "key": key.to_string(), "code": code, "modifiers": modifiers,
            "windowsVirtualKeyCode": number,
        });
        if modifiers == 0 {
            event["text"] = key.to_string().into();
        }
        self.call("Input.dispatchKeyEvent", &event);
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", &event);
        // The app handles what comes within a frame together.
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }

    /// Turns the wheel `notches` times at a place: above 0 zooms in.
    pub(crate) fn wheel(&mut self, [x, y]: [u32; 2], notches: i32) {
        self.call("Input.dispatchMouseEvent", &json!({"type": "mouseMoved", "x": x, "y": y}));
        for _ in 0..notches.abs() {
            let delta = -120 * notches.signum();
            let event = json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": delta});
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Drops files on the page.
    pub(crate) fn drop_files(&mut self, files: &[&Path]) {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let data = json!({"items": [], "files": files, "dragOperationsMask": 1});
        for kind in ["dragEnter", "dragOver", "drop"] {
            let event = json!({"type": kind, "x": 500, "y": 400, "data": data.clone()});
            self.call("Input.dispatchDragEvent", &event);
        }
    }

    /// A picture of the page, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", &json!({"format": "png"}));
        BASE64_STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }
}

impl Page for Chromium {
    fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({"url": url}));
    }

    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    fn complaints(&mut self) -> Vec<String> {
        // Whatever was reported before this call has arrived with its answer.
        self.value("0");
        let is_complaint = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            // A page that is left cancels its own requests.
            "Network.loadingFailed" => event["params"]["canceled"] != true,
            "Runtime.consoleAPICalled" => {
                ["error", "warning", "assert"].iter().any(|kind| event["params"]["type"] == *kind)
            }
            "Log.entryAdded" => ["error", "warning"].iter().any(|level| event["params"]["entry"]["level"] == *level),
            _ => false,
        };
        self.connection.events.iter().filter(is_complaint).map(ToString::to_string).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
