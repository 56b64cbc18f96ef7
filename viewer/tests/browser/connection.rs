//! A connection to a browser, for calls of methods and the events between the answers.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// The longest that anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the path of the first of these programs that is installed.
pub(crate) fn find(programs: &[&str]) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .flat_map(|folder| programs.iter().map(move |name| folder.join(name)))
        .find(|path| path.is_file())
}

/// A connection over a web socket, as Chromium's debugging protocol and WebDriver BiDi have it.
pub(crate) struct Connection {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    sent: u64,
    /// Events that came while an answer was waited for.
    pub(crate) events: Vec<Value>,
}

impl Connection {
    pub(crate) fn open(address: &str) -> Self {
        let (socket, _) = tungstenite::connect(address).unwrap();
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        Self { socket, sent: 0, events: Vec::new() }
    }

    /// Sends `message`, an object with a method and its parameters, and returns the result.
    pub(crate) fn call(&mut self, mut message: Value) -> Value {
        self.sent += 1;
        message["id"] = self.sent.into();
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().expect("the browser answers") else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] != self.sent {
                self.events.push(answer);
                continue;
            }
            assert!(answer.get("error").is_none(), "{message}: {answer}");
            return answer["result"].clone();
        }
    }

    /// Waits for an event of this name after the first `known` events.
    pub(crate) fn wait_for(&mut self, name: &str, known: usize) {
        while self.events[known..].iter().all(|event| event["method"] != name) {
            let Message::Text(text) = self.socket.read().expect("the browser reports it") else { continue };
            self.events.push(serde_json::from_str(&text).unwrap());
        }
    }
}
