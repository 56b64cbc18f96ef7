//! Executes a tool: converts its arguments to a command line, and the report of the command to a result.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser as _;
use highwater_app::report::Facts;
use serde_json::{Map, Value, json};

use super::access::{Access, is_rotated, listed};
use super::bounds::{cut_facts, cut_text};
use super::tools::{Kind, PICTURE, Parameter, TOOLS, Tool};
use crate::commands::Arguments;
use crate::commands::next_command::unquoted;
use crate::output::{Failure, Page, usage_error, versioned};

const WIDTH: usize = 120;

/// Maximum number of texts in an argument, since each may cost the time of a replay.
const MAX_TEXTS: usize = 32;
const MAX_TEXT: usize = 4096;

/// Width and height of pictures in pixels, small enough to send to a model.
const PICTURE_SIZE: &str = "1200x750";

pub(super) enum Unanswered {
    /// The text for the client.
    Because(String),
    /// The user stopped the program with this signal while a file was being written.
    Stopped(u8),
}

impl From<String> for Unanswered {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

/// Executes a call of the tool `name` with `arguments`.
///
/// # Errors
/// Fails if there is no answer.
pub(super) fn call(access: &Access, name: &str, arguments: &Value) -> Result<Value, Unanswered> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        return Err(format!("unknown tool {name}: expected one of {}", names.join(", ")).into());
    };
    let files = access.files();
    if tool.command == "info" && files.len() != 1 && arguments.get("file").is_none_or(Value::is_null) {
        let names: Vec<String> = files.iter().map(|(name, _)| name.display().to_string()).collect();
        let text = match files.len() {
            0 => "no recordings: start the server with recordings, or folders of them".to_owned(),
            count => format!("{count} recordings; name one as `file`: {}", listed(&files)),
        };
        return Ok(answer(&text, Some(&json!({"recordings": names}))));
    }
    let mut words = words(access, tool, arguments)?;
    let is_of_ranks = |file: &&PathBuf| file.is_dir() && !is_rotated(file);
    if let Some(folder) = words.first().filter(is_of_ranks).filter(|_| !["info", "diff"].contains(&tool.command)) {
        let real = std::fs::canonicalize(folder).unwrap_or_default();
        let inside: Vec<_> = files.into_iter().filter(|(_, path)| path.starts_with(&real)).collect();
        let text = format!(
            "{}: a folder, which only summary and diff take; name a recording in it: {}",
            folder.display(),
            listed(&inside)
        );
        return Err(text.into());
    }
    if tool.name == PICTURE {
        return picture(tool, words);
    }
    words.insert(0, tool.command.into());
    let (text, facts) = run(tool, words)?;
    Ok(answer(&text, facts.as_ref()))
}

/// Returns the arguments of the command line after the command's name: files, then options.
fn words(access: &Access, tool: &Tool, arguments: &Value) -> Result<Vec<PathBuf>, String> {
    let none = Map::new();
    let given = match arguments {
        Value::Null => &none,
        Value::Object(given) => given,
        _ => return Err("invalid arguments: expected an object".to_owned()),
    };
    if let Some(name) = given.keys().find(|name| tool.parameters.iter().all(|known| known.name != name.as_str())) {
        let names: Vec<&str> = tool.parameters.iter().map(|parameter| parameter.name).collect();
        return Err(format!("unknown argument {name} of {}: expected one of {}", tool.name, names.join(", ")));
    }
    let mut words = Vec::new();
    for parameter in &tool.parameters {
        let value = given.get(parameter.name).filter(|value| !value.is_null());
        add_words(access, parameter, value, &mut words)?;
    }
    Ok(words)
}

fn add_words(
    access: &Access,
    parameter: &Parameter,
    value: Option<&Value>,
    words: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let expected = |what: &str| format!("invalid {}: expected {what}", parameter.name);
    let text = |value: &Value| match text_of(value) {
        Some(text) if text.len() > MAX_TEXT => Err(expected(&format!("at most {MAX_TEXT} bytes"))),
        text => text.ok_or_else(|| expected("a string")),
    };
    let option = |value: &str| PathBuf::from(format!("{}={value}", parameter.option()));
    let Some(value) = value else {
        if parameter.is_required {
            return Err(format!("{} is missing: {}", parameter.name, parameter.about));
        }
        words.extend(parameter.default.map(option));
        if parameter.kind == Kind::Recording {
            words.push(access.find(None)?);
        }
        return Ok(());
    };
    match parameter.kind {
        Kind::Recording | Kind::Second => words.push(access.find(Some(&text(value)?))?),
        Kind::Baseline => {
            let mut word = std::ffi::OsString::from(format!("{}=", parameter.option()));
            word.push(access.find(Some(&text(value)?))?);
            words.push(word.into());
        }
        Kind::Text => words.push(option(&text(value)?)),
        Kind::Texts => {
            let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            if values.len() > MAX_TEXTS {
                return Err(expected(&format!("at most {MAX_TEXTS} texts")));
            }
            for value in &values {
                words.push(option(&text(value)?));
            }
        }
        Kind::Number => {
            let number = text_of(value).and_then(|text| text.trim().parse::<u64>().ok());
            words.push(option(&number.ok_or_else(|| expected("an integer of 0 or more"))?.to_string()));
        }
        Kind::Flag => match (value.as_bool(), value.as_str()) {
            (Some(true), _) | (_, Some("true")) => words.push(parameter.option().into()),
            (Some(false), _) | (_, Some("false")) => {}
            _ => return Err(expected("true or false")),
        },
    }
    Ok(())
}

/// Returns a text, or a number as text, since clients confuse the two. A whole number has no fraction.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => {
            let text = number.to_string();
            Some(text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned))
        }
        _ => None,
    }
}

fn run(tool: &Tool, words: Vec<PathBuf>) -> Result<(String, Option<Value>), Unanswered> {
    let words = std::iter::once(PathBuf::from("highwater")).chain(words);
    let arguments = Arguments::try_parse_from(words).map_err(|error| in_words_of(tool, &usage_error(&error)))?;
    let command = arguments.command.ok_or_else(|| "no command".to_owned())?;
    let (mut text, mut facts) = (Vec::new(), None);
    let mut keep = |found: Facts<'_>| facts = serde_json::to_value(versioned(found)).ok();
    let page = Page::of_width(&mut text, WIDTH).with_facts(&mut keep).with_suggestions(&suggested_call);
    let answered = command.run(&mut { page });
    answered.map_err(|failure| match failure {
        Failure::Stopped { signal, .. } => Unanswered::Stopped(signal),
        failure => in_words_of(tool, &failure.to_string()).into(),
    })?;
    Ok((String::from_utf8_lossy(&text).into_owned(), facts))
}

/// Rewrites an error message for a client: options become the tool's parameters, other options are omitted.
fn in_words_of(tool: &Tool, message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let text = tool.renamed(message);
    let is_offered = |part: &&str| !part.trim_start_matches("or ").starts_with("--");
    text.split(", ").filter(is_offered).collect::<Vec<&str>>().join(", ")
}

fn answer(text: &str, facts: Option<&Value>) -> Value {
    let content = json!([{"type": "text", "text": cut_text(text.trim_end())}]);
    match facts {
        Some(facts) => json!({"content": content, "structuredContent": cut_facts(facts)}),
        None => json!({"content": content}),
    }
}

fn picture(tool: &Tool, mut words: Vec<PathBuf>) -> Result<Value, Unanswered> {
    let failed = |doing: &str, why: std::io::Error| format!("cannot {doing} the picture: {why}; free some disk space");
    let folder = tempfile::tempdir().map_err(|why| failed("write", why))?;
    let file = folder.path().join("picture.png");
    let mut out = std::ffi::OsString::from("--out=");
    out.push(&file);
    words.insert(0, tool.command.into());
    words.extend([out.into(), format!("--size={PICTURE_SIZE}").into()]);
    let (text, _) = run(tool, words)?;
    let bytes = std::fs::read(&file).map_err(|why| failed("read", why))?;
    Ok(json!({"content": [
        {"type": "image", "data": STANDARD.encode(bytes), "mimeType": "image/png"},
        {"type": "text", "text": cut_text(without(&text, &file).trim_end())},
    ]}))
}

/// Replaces the path of a temporary file in a report by `picture.png`.
fn without(text: &str, file: &Path) -> String {
    text.replace(&file.display().to_string(), "picture.png")
}

/// Returns the tool call for a command, given its arguments after `highwater` in shell syntax; `None` if no tool does
/// the same.
pub(super) fn suggested_call(command: &str) -> Option<String> {
    let words = unquoted(command);
    let (command, words) = words.split_first()?;
    TOOLS.iter().filter(|tool| tool.command == *command).find_map(|tool| {
        let arguments = Value::Object(arguments(tool, words)?);
        Some(format!("{} {arguments}", tool.name))
    })
}

/// Returns the words as arguments of `tool`; `None` if one of them is not an argument, or occurs twice.
fn arguments(tool: &Tool, words: &[String]) -> Option<Map<String, Value>> {
    let mut files = tool.parameters.iter().filter(|one| [Kind::Recording, Kind::Second].contains(&one.kind));
    let (mut words, mut arguments) = (words.iter(), Map::new());
    while let Some(word) = words.next() {
        let option = tool.parameters.iter().find(|parameter| parameter.option() == *word);
        let (parameter, value) = match option {
            Some(option) if option.kind == Kind::Flag => (option, true.into()),
            Some(option) => (option, words.next()?.as_str().into()),
            None if word.starts_with("--") => return None,
            None => (files.next()?, word.as_str().into()),
        };
        if arguments.insert(parameter.name.to_owned(), value).is_some() {
            return None;
        }
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_the_call_of_the_tool_that_takes_its_options() {
        let cases = [
            ("peak a.snap --by scope,op --each", r#"peak {"file":"a.snap","by":"scope,op","each":true}"#),
            ("peak 'my run'\\''s.snap' --blocks 5", r#"blocks {"file":"my run's.snap","blocks":"5"}"#),
            ("diff a b --at-b step:2", r#"diff {"file":"a","other":"b","at_b":"step:2"}"#),
            ("plan a.snap --budget SIZE", r#"plan {"file":"a.snap","budget":"SIZE"}"#),
        ];
        for (command, expected) in cases {
            let call = suggested_call(command).unwrap();
            let (name, arguments) = call.split_once(' ').unwrap();
            let (expected_name, expected) = expected.split_once(' ').unwrap();
            let [arguments, expected] = [arguments, expected].map(|text| serde_json::from_str::<Value>(text).unwrap());
            assert_eq!((name, arguments), (expected_name, expected));
        }
    }

    #[test]
    fn what_no_tool_does_is_not_suggested() {
        for command in
            ["", "record gpt2", "whatif a.snap --out b.snap", "info a b", "peak a --by op --by scope", "peak a --by"]
        {
            assert_eq!(suggested_call(command), None, "{command}");
        }
    }
}
