//! `highwater mcp`: answers assistants by the Model Context Protocol, over standard input and output.

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
use self::message::{Code, Refusal};
use self::tools::TOOLS;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// `highwater mcp`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "An assistant that reads a JSON configuration starts it so:\n\n  \
                        {\"mcpServers\": {\"highwater\": {\"command\": \"highwater\", \"args\": [\"mcp\", \"FOLDER\"]}}}")]
pub struct McpArguments {
    /// Recordings, and folders of recordings, that may be read
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub files: Vec<PathBuf>,
}

/// Versions of the protocol, the newest last.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

const VOCABULARY: &str = include_str!("mcp/vocabulary.md");
const VOCABULARY_URI: &str = "highwater://vocabulary";

/// `highwater mcp`.
pub fn run(arguments: &McpArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let access = Access::new(&arguments.files).map_err(Failure::Usage)?;
    let out = page.raw();
    let write = |answer: &Value| {
        serde_json::to_writer(&mut *out, answer)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    message::serve(io::stdin().lock(), |method, parameters| answer(&access, method, parameters), write)?;
    Ok(Status::Fine)
}

/// Returns the result of a method.
fn answer(access: &Access, method: &str, parameters: &Value) -> Result<Value, Refusal> {
    match method {
        "initialize" => Ok(initialized(access, parameters)),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": TOOLS.iter().map(tools::Tool::described).collect::<Vec<Value>>()})),
        "tools/call" => {
            let Some(name) = parameters.get("name").and_then(Value::as_str) else {
                return Err((Code::Parameters, "tools/call needs the name of a tool".to_owned()));
            };
            let arguments = parameters.get("arguments").unwrap_or(&Value::Null);
            // An assistant reads the text of a failed call, and may correct it.
            Ok(call::call(access, name, arguments)
                .unwrap_or_else(|why| json!({"content": [{"type": "text", "text": cut_text(&why)}], "isError": true})))
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
            _ => Err((Code::Parameters, format!("unknown resource: expected {VOCABULARY_URI}"))),
        },
        _ => Err((Code::Method, cut_message(&format!("unknown method {method}")))),
    }
}

fn initialized(access: &Access, parameters: &Value) -> Value {
    let asked = parameters.get("protocolVersion").and_then(Value::as_str);
    let version = asked.filter(|version| VERSIONS.contains(version)).unwrap_or(VERSIONS[VERSIONS.len() - 1]);
    let instructions = format!(
        "Highwater answers where GPU memory goes, exactly, from recordings of training or inference. Start with \
         `summary`, then `explain`; after an out-of-memory error `oom`; for a leak `growth`; to fit a smaller GPU `plan`. \
         Sizes in structured content are bytes; texts have binary units. Say what the recording cannot know, as its trust \
         states. Recordings: {}.",
        cut_message(&listed(&access.files()))
    );
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "highwater", "title": "Highwater", "version": env!("CARGO_PKG_VERSION")},
        "instructions": instructions,
    })
}
