//! Firefox, driven over WebDriver BiDi. Without a graphics card, Firefox supports WebGL only in a window, so it gets a
//! virtual screen.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::connection::{Connection, find};
use super::page::Page;
use super::screen::Screen;

/// Settings that keep it from talking to anybody or asking anything.
const SETTINGS: &str = r#"
user_pref("app.normandy.enabled", false);
user_pref("app.update.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.page", 0);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("toolkit.telemetry.reportingpolicy.firstRun", false);
"#;

/// A browser with one page.
pub(crate) struct Firefox {
    child: Child,
    connection: Connection,
    context: Value,
    _profile: tempfile::TempDir,
    _screen: Screen,
}

impl Firefox {
    /// Starts the browser on its own screen; `None` if either is not installed.
    pub(crate) fn start() -> Option<Self> {
        let program = find(&["firefox-esr", "firefox"])?;
        let screen = Screen::start()?;
        let profile = tempfile::tempdir().unwrap();
        std::fs::write(profile.path().join("user.js"), SETTINGS).unwrap();
        let mut command = Command::new(program);
        command.env("DISPLAY", screen.display()).env_remove("WAYLAND_DISPLAY");
        command.args(["--no-remote", "--remote-debugging-port=0", "--profile"]).arg(profile.path()).arg("about:blank");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.split("BiDi listening on ").nth(1).map(str::to_owned));
        // What it writes later must not fill the pipe.
        std::thread::Builder::new().name("firefox-output".to_owned()).spawn(move || lines.for_each(drop)).unwrap();
        let address = address.expect("the browser says where it listens");
        let connection = Connection::open(&format!("{}/session", address.trim()));
        let mut browser = Self { child, connection, context: Value::Null, _profile: profile, _screen: screen };
        browser.call("session.new", &json!({"capabilities": {}}));
        browser.call("session.subscribe", &json!({"events": ["log.entryAdded"]}));
        browser.context = browser.call("browsingContext.getTree", &json!({}))["contexts"][0]["context"].clone();
        let size = json!({"context": browser.context, "viewport": {"width": 1440, "height": 900}});
        browser.call("browsingContext.setViewport", &size);
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.connection.call(json!({"method": method, "params": parameters}))
    }

    /// Opens a file in the page, as if it was chosen there.
    pub(crate) fn choose(&mut self, file: &Path) {
        let place =
            "document.body.append(Object.assign(document.createElement('input'), { type: 'file', id: 'file' }))";
        self.value(place);
        let locator = json!({"context": self.context, "locator": {"type": "css", "value": "#file"}});
        let element = self.call("browsingContext.locateNodes", &locator)["nodes"][0]["sharedId"].clone();
        let files = json!({"context": self.context, "element": {"sharedId": element}, "files": [file]});
        self.call("input.setFiles", &files);
        self.value("(() => { const field = document.getElementById('file'); highwater.open_file(field.files[0]); field.remove() })()");
    }
}

impl Page for Firefox {
    fn open(&mut self, url: &str) {
        self.call("browsingContext.navigate", &json!({"context": self.context, "url": url, "wait": "interactive"}));
    }

    fn value(&mut self, expression: &str) -> Value {
        // Values as JSON: the protocol's own form of objects is another.
        let expression = format!("Promise.resolve({expression}).then((value) => JSON.stringify(value ?? null))");
        let target = json!({"context": self.context});
        let parameters = json!({"expression": expression, "target": target, "awaitPromise": true});
        let answer = self.call("script.evaluate", &parameters);
        assert_eq!(answer["type"], "success", "{expression}: {answer}");
        serde_json::from_str(answer["result"]["value"].as_str().unwrap()).unwrap()
    }

    fn complaints(&mut self) -> Vec<String> {
        self.value("0");
        let is_complaint = |event: &&Value| ["error", "warn"].iter().any(|level| event["params"]["level"] == *level);
        self.connection.events.iter().filter(is_complaint).map(ToString::to_string).collect()
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
