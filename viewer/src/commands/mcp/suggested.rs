//! Calls that answers suggest, in place of the commands that reports suggest on a terminal.

use serde_json::{Map, Value};

use super::tools::{Kind, TOOLS, Tool};
use crate::commands::next::unquoted;

/// Returns the call of a tool with the words of a command after `highwater`, as they are written for a shell; `None` if
/// no tool does the same.
pub(super) fn suggested_call(command: &str) -> Option<String> {
    let words = unquoted(command);
    let (command, words) = words.split_first()?;
    TOOLS.iter().filter(|tool| tool.command == *command).find_map(|tool| {
        let arguments = Value::Object(arguments(tool, words)?);
        Some(format!("{} {arguments}", tool.name))
    })
}

/// Returns the words as arguments of `tool`; `None` if one of them is none, or is there twice.
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
