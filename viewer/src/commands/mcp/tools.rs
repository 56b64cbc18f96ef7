//! The tools. Each is a command, and its parameters are options of that command, as described by clap.

use std::any::TypeId;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use serde_json::{Map, Value, json};

use crate::commands::Arguments;

#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) command: &'static str,
    /// The purpose of the tool, and when to use it.
    about: &'static str,
    /// The parameters. Files come first, in the same order as on the command line.
    pub(super) parameters: Vec<Parameter>,
}

#[derive(Debug)]
pub(super) struct Parameter {
    /// The name of the parameter: that of the option, with underscores.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The description that the client shows to the model.
    pub(super) about: String,
    pub(super) is_required: bool,
    /// The value that is passed to the command if the client gives none; `None` for the command's own default.
    pub(super) default: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first recording that the command reads. It may be omitted if there is only one.
    Recording,
    Second,
    /// A recording that an option names.
    Baseline,
    Text,
    /// Texts; the option is repeated for each.
    Texts,
    /// An integer of 0 or more.
    Number,
    Flag,
}

/// The name of the tool that returns a picture.
pub(super) const PICTURE: &str = "picture";

/// Descriptions of parameters, where those of the options do not fit: files are named differently than on the command
/// line, and the short help of --where omits the operators.
const ABOUT: [(&str, &str); 3] = [
    ("file", "The recording, as `summary` lists it; of two that are compared, A."),
    ("other", "The recording B, as `summary` lists it. Without it, two steps of A are compared."),
    (
        "where",
        "Only blocks that match all conditions, such as 'category=activation size>=1MiB scope~layers.3'. = != for text and \
         numbers, ~ (contains) !~ for text, < <= > >= for numbers. A plain word matches stack, scope, op or category.",
    ),
];

/// The tools, declared as text: for each, a line with its name, its command and its parameters, and a line with its
/// description.
pub(super) static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let commands = Arguments::command();
    let lines: Vec<&str> = include_str!("tools.txt").lines().filter(|line| !line.is_empty()).collect();
    lines.chunks(2).map(|lines| Tool::of(lines[0], lines[1], &commands)).collect()
});

impl Parameter {
    /// Parses a parameter, which is an option of `command` or a file. The text after `=` is its default, if that
    /// differs from the option's.
    fn of(described: &'static str, command: &Command) -> Self {
        let (name, default) = described.split_once('=').map_or((described, None), |(name, text)| (name, Some(text)));
        let is_named = |option: &&Arg| option.get_long().is_some_and(|long| long.replace('-', "_") == name);
        let option = command.get_arguments().find(is_named);
        let kind = match name {
            "file" => Kind::Recording,
            "other" => Kind::Second,
            "baseline" => Kind::Baseline,
            _ => option.map_or(Kind::Text, kind_of),
        };
        let about = ABOUT.iter().find(|(its_name, _)| *its_name == name).map(|(_, about)| (*about).to_owned());
        let about = about.or_else(|| option.map(|option| about_option(option, default))).unwrap_or_default();
        Self { name, kind, about, is_required: option.is_some_and(Arg::is_required_set), default }
    }

    /// Returns the name of the command's option, with its dashes.
    pub(super) fn option(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    fn schema(&self, about: &str) -> Value {
        match self.kind {
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}, "description": about}),
            Kind::Number => json!({"type": "integer", "minimum": 0, "description": about}),
            Kind::Flag => json!({"type": "boolean", "description": about}),
            _ => json!({"type": "string", "description": about}),
        }
    }
}

fn kind_of(option: &Arg) -> Kind {
    let integers =
        [TypeId::of::<u8>(), TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    // Sizes are parsed to integers, but are written with units.
    let is_size = option.get_value_names().is_some_and(|names| names == ["SIZE"]);
    match option.get_action() {
        ArgAction::SetTrue => Kind::Flag,
        ArgAction::Append => Kind::Texts,
        _ if integers.iter().any(|one| option.get_value_parser().type_id() == *one) && !is_size => Kind::Number,
        _ => Kind::Text,
    }
}

/// Returns the short help of an option, with its default and its possible values.
fn about_option(option: &Arg, default: Option<&str>) -> String {
    let mut about = option.get_help().map(ToString::to_string).unwrap_or_default();
    let has_default = option.get_action().takes_values() && !option.is_hide_default_value_set();
    let its_own = option.get_default_values().first().filter(|_| has_default).and_then(|value| value.to_str());
    if let Some(default) = default.or(its_own) {
        about += &format!(" [default: {default}]");
    }
    let values = option.get_possible_values();
    let is_complete = values.iter().all(|value| about.contains(value.get_name()));
    if option.get_action().takes_values() && !is_complete {
        let values: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
        about += &format!(" [possible values: {}]", values.join(", "));
    }
    about
}

impl Tool {
    fn of(words: &'static str, about: &'static str, commands: &Command) -> Self {
        let (name, words) = words.split_once(' ').expect("the command line has no name");
        let (command, parameters) = words.split_once(' ').expect("the tool has no command");
        let options = commands.find_subcommand(command).expect("the tool is not a command");
        let parameters = parameters.split(' ').map(|one| Parameter::of(one, options)).collect();
        Self { name, command, about, parameters }
    }

    /// Returns a text in which the tool's parameters replace the command's options.
    pub(super) fn renamed(&self, text: &str) -> String {
        // An option whose name begins with another's comes first.
        let mut parameters: Vec<&Parameter> = self.parameters.iter().collect();
        parameters.sort_by_key(|parameter| std::cmp::Reverse(parameter.name.len()));
        let name = |text: String, parameter: &&Parameter| text.replace(&parameter.option(), parameter.name);
        parameters.iter().fold(text.to_owned(), name)
    }

    pub(super) fn described(&self) -> Value {
        // The texts also name options that are not parameters.
        let about = |parameter: &Parameter| self.renamed(&parameter.about).replace("--", "");
        let schema = |one: &Parameter| (one.name.to_owned(), one.schema(&about(one)));
        let properties: Map<String, Value> = self.parameters.iter().map(schema).collect();
        let required = self.parameters.iter().filter(|parameter| parameter.is_required);
        json!({
            "name": self.name,
            "description": self.about,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required.map(|parameter| parameter.name).collect::<Vec<&str>>(),
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_commands() {
        for tool in TOOLS.iter() {
            let described = tool.described()["inputSchema"]["properties"].to_string();
            assert!(!described.contains("--") && !described.contains(r#""description":"""#), "{described}");
            for parameter in &tool.parameters {
                assert_eq!(parameter.is_required, parameter.name == "budget", "{}", parameter.name);
            }
        }
        let kind = |tool: &str, name: &str| {
            let tool = TOOLS.iter().find(|one| one.name == tool).unwrap();
            tool.parameters.iter().find(|one| one.name == name).unwrap().kind
        };
        let check = TOOLS.iter().find(|tool| tool.name == "check").unwrap().described();
        let about = check["inputSchema"]["properties"]["max_phase"]["description"].as_str().unwrap();
        assert!(about.ends_with(": max_phase optimizer=5GiB"), "{about}");
        assert_eq!(kind("peak", "each"), Kind::Flag);
        assert_eq!(kind("check", "baseline"), Kind::Baseline);
        for (tool, name) in
            [("peak", "device"), ("blocks", "blocks"), ("growth", "to_step"), ("whatif", "zero"), ("oom", "event")]
        {
            assert_eq!(kind(tool, name), Kind::Number, "{name} of {tool}");
        }
        for (tool, name) in
            [("peak", "at"), ("whatif", "capacity"), ("plan", "budget"), ("check", "max_peak"), ("peak", "by")]
        {
            assert_eq!(kind(tool, name), Kind::Text, "{name} of {tool}");
        }
        for (tool, name) in [("whatif", "without"), ("plan", "allow"), ("check", "max")] {
            assert_eq!(kind(tool, name), Kind::Texts, "{name} of {tool}");
        }
    }
}
