//! `highwater mcp`: answers questions of assistants through the Model Context Protocol, over standard input and output.

mod message;
mod bounds;
mod access;
mod tools;
mod call;

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use self::access::{Access, listed};
use self::bounds::{cut_message, cut_text};
use self::call::Unanswered;
use self::message::{Code, Refusal};
use self::tools::TOOLS;
use crate::output::{Failure, Page, Status};

/// Arguments of `highwater mcp`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Entry in the JSON configuration of an assistant:\n\n  \
                        {\"mcpServers\": {\"highwater\": {\"command\": \"highwater\", \"args\": [\"mcp\", \"FOLDER\"]}}}")]
pub struct McpArguments {
    /// Recordings, and folders of recordings, that may be read
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub files: Vec<PathBuf>,
}

/// Protocol versions with an `initialize` handshake, oldest first.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The protocol version without `initialize`. Each request contains the version.
const STATELESS: &str = "2026-07-28";

/// The keys under which a request states its version and the capabilities of its client.
const ITS_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const ITS_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Time for which a client may cache a list, in milliseconds.
const KEPT_MS: u32 = 60_000;

const VOCABULARY: &str = include_str!("mcp/vocabulary.md");
const VOCABULARY_URI: &str = "highwater://vocabulary";

pub(crate) fn run(arguments: &McpArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let access = Access::new(&arguments.files).map_err(Failure::Usage)?;
    let out = page.raw();
    let write = |answer: &Value| {
        serde_json::to_writer(&mut *out, answer)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    message::serve(io::BufReader::new(io::stdin()), |method, parameters| answer(&access, method, parameters), write)?;
    Ok(Status::Fine)
}

/// Returns the result of a method, in the protocol version of the request, or otherwise of the session.
fn answer(access: &Access, method: &str, parameters: &Value) -> Result<Value, Refusal> {
    let meta = parameters.get("_meta").unwrap_or(&Value::Null);
    let Some(version) = meta.get(ITS_VERSION) else {
        return match method {
            "initialize" => Ok(initialized(access, parameters)),
            "ping" => Ok(json!({})),
            "server/discover" => Err(Refusal::new(Code::Parameters, format!("{ITS_VERSION} is missing in _meta"))),
            _ => result(access, method, parameters),
        };
    };
    if version != STATELESS {
        let supported: Vec<&str> = VERSIONS.into_iter().chain([STATELESS]).collect();
        let refusal = Refusal::new(Code::Version, format!("unsupported version of the protocol: send {STATELESS}"));
        let requested = version.as_str().map(cut_message);
        return Err(refusal.with_data(json!({"supported": supported, "requested": requested})));
    }
    if !meta.get(ITS_CAPABILITIES).is_some_and(Value::is_object) {
        return Err(Refusal::new(Code::Parameters, format!("{ITS_CAPABILITIES} is missing in _meta")));
    }
    let mut result = match method {
        "server/discover" => json!({
            "supportedVersions": [STATELESS],
            "capabilities": capabilities(),
            "instructions": instructions(access),
        }),
        _ => result(access, method, parameters)?,
    };
    result["resultType"] = "complete".into();
    result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": server()});
    if method != "tools/call" {
        result["ttlMs"] = KEPT_MS.into();
        result["cacheScope"] = "private".into();
    }
    Ok(result)
}

/// Returns the result of a method that is the same in all versions.
fn result(access: &Access, method: &str, parameters: &Value) -> Result<Value, Refusal> {
    match method {
        "tools/list" => Ok(json!({"tools": TOOLS.iter().map(tools::Tool::described).collect::<Vec<Value>>()})),
        "tools/call" => {
            let Some(name) = parameters.get("name").and_then(Value::as_str) else {
                return Err(Refusal::new(Code::Parameters, "tools/call needs the name of a tool"));
            };
            let arguments = parameters.get("arguments").unwrap_or(&Value::Null);
            let why = match call::call(access, name, arguments) {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Because(why)) => why,
                Err(Unanswered::Stopped(signal)) => {
                    #[cfg(unix)]
                    // The signal has its default effect again, as the file is no longer being written.
                    let _ = signal_hook::low_level::raise(signal.into());
                    format!("stopped by signal {signal}")
                }
            };
            // An assistant reads the text of a failed call, and may correct it.
            Ok(json!({"content": [{"type": "text", "text": cut_text(&why)}], "isError": true}))
        }
        "resources/list" => Ok(json!({"resources": [{
            "uri": VOCABULARY_URI,
            "name": "vocabulary",
            "title": "Vocabulary of GPU memory",
            "description": "What the totals, categories, phases and other terms in answers mean.",
            "mimeType": "text/markdown",
        }]})),
        "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
        "resources/read" => match parameters.get("uri").and_then(Value::as_str) {
            Some(VOCABULARY_URI) => Ok(json!({"contents": [
                {"uri": VOCABULARY_URI, "mimeType": "text/markdown", "text": VOCABULARY},
            ]})),
            _ => Err(Refusal::new(Code::Parameters, format!("unknown resource: expected {VOCABULARY_URI}"))),
        },
        _ => Err(Refusal::new(Code::Method, cut_message(&format!("unknown method {method}")))),
    }
}

fn initialized(access: &Access, parameters: &Value) -> Value {
    let asked = parameters.get("protocolVersion").and_then(Value::as_str);
    let version = asked.filter(|version| VERSIONS.contains(version)).unwrap_or(VERSIONS[VERSIONS.len() - 1]);
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(),
        "serverInfo": server(),
        "instructions": instructions(access),
    })
}

fn capabilities() -> Value {
    json!({"tools": {}, "resources": {}})
}

fn server() -> Value {
    json!({"name": "highwater", "title": "Highwater", "version": env!("CARGO_PKG_VERSION")})
}

fn instructions(access: &Access) -> String {
    format!(
        "Highwater answers where GPU memory goes, exactly, from recordings of training or inference. Start with \
         `summary`, then `explain`; after an out-of-memory error `oom`; for a leak `growth`; to fit a smaller GPU `plan`. \
         Sizes in structured content are bytes; texts have binary units. State the limits of the recording, as listed \
         in its trust. Recordings: {}.",
        cut_message(&listed(&access.files()))
    )
}
