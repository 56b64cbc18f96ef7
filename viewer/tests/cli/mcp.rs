//! Tests the answers of the MCP server over standard input and output.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;
use serde_json::{Value, json};

use crate::binary::{folder, highwater, names};
use crate::sample::{json as json_of, trace};

/// Maximum bytes of an answer that is no picture.
pub(crate) const MAX_ANSWER: usize = 16 << 10;

/// The answers of a server for `files` of `folder` to `lines`.
pub(crate) fn answers(folder: &Path, files: &[&str], lines: &[String]) -> Vec<Value> {
    let mut server = Command::new(env!("CARGO_BIN_EXE_highwater"));
    server.current_dir(folder).arg("mcp").args(files).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let lines = lines.join("\n") + "\n";
    std::thread::scope(|threads| {
        threads.spawn(move || input.write_all(lines.as_bytes()).unwrap());
        let output = server.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    })
}

pub(crate) fn call(tool: &str, arguments: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        .to_string()
}

/// The result of one call on `step.snap`.
fn result(folder: &Path, tool: &str, arguments: &Value) -> Value {
    answers(folder, &["."], &[call(tool, arguments)]).remove(0)["result"].take()
}

pub(crate) fn text_of(result: &Value) -> &str {
    result["content"].as_array().unwrap().iter().find_map(|part| part["text"].as_str()).unwrap()
}

#[test]
fn a_session_states_the_version_the_tools_and_the_vocabulary() {
    let (folder, _) = folder();
    let ask = |id: u64, method: &str, parameters: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}).to_string()
    };
    let lines = [
        ask(1, "initialize", json!({"protocolVersion": "2025-03-26", "capabilities": {}})),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
        ask(2, "tools/list", json!({})),
        ask(3, "resources/read", json!({"uri": "highwater://vocabulary"})),
        ask(4, "initialize", json!({"protocolVersion": "9999-01-01"})),
        ask(5, "tools/fly", json!({})),
    ];
    let answers = answers(folder.path(), &["step.snap"], &lines);
    assert_eq!(answers.iter().map(|answer| answer["id"].as_u64()).collect::<Vec<_>>(), [1, 2, 3, 4, 5].map(Some));
    let first = &answers[0]["result"];
    assert_eq!(first["protocolVersion"], "2025-03-26");
    assert!(first["instructions"].as_str().unwrap().contains("step.snap"), "{first}");
    let tools = answers[1]["result"]["tools"].as_array().unwrap();
    assert!(tools.len() > 8 && tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"), "{tools:?}");
    assert!(answers[2]["result"]["contents"][0]["text"].as_str().unwrap().contains("| reserved |"));
    assert_eq!(answers[3]["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answers[4]["error"]["code"], -32601);
}

#[test]
fn requests_that_state_their_version_need_no_beginning() {
    let (folder, _) = folder();
    let meta = |version: &str| {
        json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        })
    };
    let ask = |method: &str, mut parameters: Value, meta: Value| {
        parameters["_meta"] = meta;
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).to_string()
    };
    let version = "2026-07-28";
    let lines = [
        ask("server/discover", json!({}), meta(version)),
        ask("tools/list", json!({}), meta(version)),
        ask("tools/call", json!({"name": "peak"}), meta(version)),
        ask("ping", json!({}), meta(version)),
        ask("tools/list", json!({}), meta("2999-01-01")),
        ask("tools/list", json!({}), json!({"io.modelcontextprotocol/protocolVersion": version})),
        ask("server/discover", json!({}), json!({})),
        ask("tools/list", json!({}), json!({})),
    ];
    let answers = answers(folder.path(), &["step.snap"], &lines);
    let found = &answers[0]["result"];
    assert_eq!((&found["supportedVersions"], &found["resultType"]), (&json!([version]), &"complete".into()));
    assert!(found["instructions"].as_str().unwrap().contains("step.snap") && found["ttlMs"].is_u64(), "{found}");
    let tools = &answers[1]["result"];
    assert!(tools["tools"].is_array() && tools["cacheScope"] == "private", "{tools}");
    let peak = &answers[2]["result"];
    assert_eq!((&peak["resultType"], &peak["structuredContent"]["metric"]), (&"complete".into(), &"requested".into()));
    assert_eq!(peak["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "highwater");
    let codes: Vec<_> = answers[3..7].iter().map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [-32601, -32022, -32602, -32602].map(Some));
    let data = &answers[4]["error"]["data"];
    assert!(data["requested"] == "2999-01-01" && data["supported"].as_array().unwrap().contains(&version.into()));
    assert!(answers[7]["result"]["tools"].is_array() && answers[7]["result"]["resultType"].is_null());
}

#[test]
fn folders_of_ranks_are_compared_with_figures() {
    let (folder, bytes) = folder();
    for name in ["a/rank0.snap", "a/rank1.snap", "b/rank0.snap", "b/rank1.snap"] {
        std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.path().join(name), &bytes).unwrap();
    }
    let within = result(folder.path(), "diff", &json!({"file": "a"}));
    assert_eq!((&within["structuredContent"]["diff"]["delta_bytes"], &within["isError"]), (&0.into(), &Value::Null));
    let between = result(folder.path(), "diff", &json!({"file": "a", "other": "b"}));
    assert_eq!(between["structuredContent"]["ranks"][0]["delta_bytes"], 0, "{between}");
    assert!(text_of(&between).contains("No rank grew"), "{between}");
    let refused = result(folder.path(), "peak", &json!({"file": "a"}));
    let why = text_of(&refused);
    assert!(why.contains("only summary and diff take") && why.ends_with("a/rank0.snap, ./a/rank1.snap"), "{why}");
}

#[test]
fn questions_have_the_figures_of_the_commands() {
    let (folder, _) = folder();
    let questions = [
        ("summary", "info", json!({})),
        ("peak", "peak --by category", json!({"by": "category"})),
        ("peak", "peak --metric reserved --at end", json!({"metric": "reserved", "at": "end"})),
        ("explain", "explain --top 3", json!({"top": "3"})),
        ("blocks", "peak --blocks 10", json!({})),
        ("blocks", "peak --blocks 2 --at 3 --where size>=1KiB", json!({"blocks": 2.0, "at": 3, "where": "size>=1KiB"})),
        ("phases", "phases", json!({})),
        ("phases", "phases --from-step 1 --where size>=1KiB", json!({"from_step": 1, "where": "size>=1KiB"})),
        ("growth", "growth", json!({})),
        ("diff", "diff --at step:0 --at-b step:1", json!({"at": "step:0", "at_b": "step:1"})),
        ("check", "check --max-peak 1KiB", json!({"max_peak": "1KiB"})),
    ];
    for (tool, command, arguments) in questions {
        let result = result(folder.path(), tool, &arguments);
        let (command, options) = command.split_once(' ').unwrap_or((command, ""));
        let expected = highwater(folder.path(), &format!("{command} step.snap {options} --json"));
        let expected = String::from_utf8(expected.stdout).unwrap().replace("\"step.snap\"", "\"./step.snap\"");
        let expected: Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(result["structuredContent"], expected, "{tool}");
        assert!(text_of(&result).lines().count() > 1 && result["isError"].is_null(), "{tool}: {result}");
    }
    let peak = result(folder.path(), "peak", &json!({"where": "category=gradient"}));
    assert_eq!(peak["structuredContent"]["filtered_bytes"], 4096, "{peak}");
}

#[test]
fn a_picture_is_an_image_and_nothing_stays_in_the_folder() {
    let (folder, _) = folder();
    let result = result(folder.path(), "picture", &json!({"view": "timeline"}));
    if cfg!(feature = "gui") {
        assert_eq!(
            (&result["content"][0]["type"], &result["content"][0]["mimeType"]),
            (&"image".into(), &"image/png".into())
        );
        assert!(result["content"][0]["data"].as_str().unwrap().starts_with("iVBORw0KGgo"), "{result}");
    } else {
        assert_eq!(result["isError"], true);
    }
    assert_eq!(names(folder.path()), ["step.snap"]);
}

#[test]
fn bad_calls_say_what_to_do_in_the_words_of_the_tool() {
    let (folder, bytes) = folder();
    std::fs::write(folder.path().join("cut.snap"), &bytes[..20]).unwrap();
    let step = |more: Value| {
        let mut arguments = json!({"file": "step.snap"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let calls = [
        ("peak", json!({}), "there are 2: ./cut.snap, ./step.snap"),
        ("peak", json!({"file": "/etc/passwd"}), "not one of the recordings"),
        ("peak", json!({"file": "../step.snap"}), "not one of the recordings"),
        ("peak", json!({"file": "cut.snap"}), "cut.snap"),
        ("peak", step(json!({"by": "colour"})), "colour"),
        ("peak", step(json!({"where": "size>>3"})), "where"),
        ("peak", step(json!({"top": -1})), "invalid top: expected an integer"),
        ("peak", step(json!({"top": "many"})), "invalid top: expected an integer"),
        ("peak", step(json!({"by": 2})), "unknown key '2'"),
        ("peak", step(json!({"by": ["scope"]})), "invalid by: expected a string"),
        ("peak", step(json!({"each": "perhaps"})), "invalid each: expected true or false"),
        ("peak", step(json!({"where": "size>1 ".repeat(1000)})), "invalid where: expected at most 4096 bytes"),
        ("whatif", step(json!({"without": vec!["a"; 33]})), "invalid without: expected at most 32 texts"),
        ("peak", step(json!({"at": "step:9"})), "the recording has no such step; it has step"),
        (
            "phases",
            step(json!({"from_step": 2, "to_step": 1})),
            "from_step 2 to_step 1: the recording has no such step",
        ),
        ("plan", step(json!({"budget": 24})), "did you mean 24GiB?"),
        ("peak", step(json!({"out": "x"})), "unknown argument out of peak: expected one of file,"),
        ("plan", step(json!({})), "budget is missing"),
        ("check", step(json!({})), "max_peak"),
        ("fly", json!({}), "unknown tool fly: expected one of summary,"),
    ];
    for (tool, arguments, expected) in calls {
        let result = result(folder.path(), tool, &arguments);
        let text = text_of(&result);
        assert!(result["isError"] == true && text.contains(expected), "{tool} {arguments}: {text}");
        assert!(!text.contains("--"), "options are the tool's arguments: {text}");
    }
    assert_eq!(names(folder.path()), ["cut.snap", "step.snap"]);
}

#[test]
fn the_recordings_are_listed_where_there_are_several() {
    let (folder, bytes) = folder();
    std::fs::write(folder.path().join("b.snap"), bytes).unwrap();
    let result = result(folder.path(), "summary", &json!({}));
    assert_eq!(result["structuredContent"]["recordings"], json!(["./b.snap", "./step.snap"]));
}

#[test]
fn answers_are_small_however_large_the_recording() {
    let (folder, _) = folder();
    let mut text = "step 0\nphase forward\n".to_owned();
    text.extend((0..3000).map(|at| format!("alloc b{at} {} @net.{at} < function_{at} < main\n", 512 * (at + 1))));
    let large = trace_from_text(&text).unwrap();
    write_trace(std::fs::File::create(folder.path().join("step.snap")).unwrap(), &large).unwrap();
    for (tool, arguments) in [
        ("peak", json!({"by": "size,stack", "top": 1_000_000, "each": true})),
        ("explain", json!({"top": 1_000_000, "by": "size,stack"})),
        ("summary", json!({})),
    ] {
        let answers = answers(folder.path(), &["step.snap"], &[call(tool, &arguments)]);
        let bytes = answers[0].to_string().len();
        assert!(bytes <= MAX_ANSWER, "{tool}: {bytes} bytes");
    }
    let long = "x".repeat(500_000);
    for line in [
        call(&long, &json!({})),
        call("peak", &json!({"file": long})),
        call("peak", &json!({"by": long})),
        call("peak", &json!({long.as_str(): 1})),
        json!({"id": 1, "method": long}).to_string(),
    ] {
        let bytes = answers(folder.path(), &["step.snap"], &[line])[0].to_string().len();
        assert!(bytes <= MAX_ANSWER, "an error of {bytes} bytes");
    }
}

#[test]
fn lines_that_are_no_requests_end_nothing() {
    let (folder, _) = folder();
    let lines = ["{".to_owned(), "x".repeat(5 << 20), "[]".to_owned(), call("summary", &json!({}))];
    let answers = answers(folder.path(), &["step.snap"], &lines);
    assert_eq!(answers.len(), 4);
    let figures = json_of(trace(), "info step.snap --json");
    assert_eq!(answers[3]["result"]["structuredContent"]["devices"], figures["devices"]);
}
