//! Value types and parsers of options that several commands share.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use highwater_analysis::{Between, DiffAt, Filter, GroupKey, Metric};
use highwater_snapshots::EventKind;

/// A filter together with its text.
#[derive(Clone, Debug, Default)]
pub struct Where {
    /// The text as entered, for messages and answers.
    pub text: String,
    /// The filter described by the text.
    pub filter: Filter,
}

impl Where {
    /// Parses a filter with at least one condition; without conditions it would match all blocks.
    ///
    /// # Errors
    /// Fails if the text is not a filter, or has no condition.
    pub(crate) fn with_condition(text: &str) -> Result<Self, String> {
        let read: Self = text.parse()?;
        let example = "expected a condition, such as category=activation";
        if read.filter.is_empty() { Err(format!("it matches all blocks: {example}")) } else { Ok(read) }
    }

    /// Returns the trimmed text if it contains a condition, otherwise `None`.
    pub fn stated(&self) -> Option<&str> {
        (!self.filter.is_empty()).then_some(self.text.trim())
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), filter: text.parse()? })
    }
}

/// The value of `peak --at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before the first event.
    Start,
    /// After the event with this index.
    Event(u64),
    /// A moment that comparisons also support.
    Compared(ComparedAt),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Event(event) => write!(f, "{event}"),
            Self::Compared(at) => at.fmt(f),
        }
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let why = || "expected an event number, start, end, step:N (the peak of step N) or step-end:N".to_owned();
        match text {
            "start" => Ok(Self::Start),
            _ => text.parse().map(Self::Event).or_else(|_| text.parse().map(Self::Compared)).map_err(|_: String| why()),
        }
    }
}

/// The moment of one side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedAt(pub DiffAt);

impl fmt::Display for ComparedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DiffAt::Peak => f.write_str("peak"),
            DiffAt::End => f.write_str("end"),
            DiffAt::Step(step) => write!(f, "step:{step}"),
            DiffAt::StepEnd(step) => write!(f, "step-end:{step}"),
        }
    }
}

impl FromStr for ComparedAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("invalid step number '{text}': expected a number"));
        let at = match (text, text.split_once(':')) {
            ("peak", _) => DiffAt::Peak,
            ("end", _) => DiffAt::End,
            (_, Some(("step", step))) => DiffAt::Step(number(step)?),
            (_, Some(("step-end", step))) => DiffAt::StepEnd(number(step)?),
            _ => return Err("expected peak, end, step:N (the peak of step N) or step-end:N".to_owned()),
        };
        Ok(Self(at))
    }
}

/// The value of `--by`: one or more grouping keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKeys(pub Vec<GroupKey>);

impl fmt::Display for GroupKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(GroupKey::to_string).collect();
        f.write_str(&names.join(","))
    }
}

/// Returns the help of `--by`, with `more` appended.
pub(crate) fn keys_help(more: &str) -> String {
    let name = |key: &GroupKey| if *key == GroupKey::Scope { "scope:DEPTH" } else { key.name() };
    let names: Vec<&str> = GroupKey::ALL.iter().map(name).collect();
    format!("Grouping keys, comma-separated: {}{more}", names.join(", "))
}

impl FromStr for GroupKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        GroupKey::parse_list(text).map(Self)
    }
}

/// The source of categories that are not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Categories {
    /// Guessed by the built-in rules.
    Guess,
    /// No source: such blocks stay unknown.
    None,
    /// Guessed by the rules in this file, then by the built-in rules unless the file turns them off.
    Rules(PathBuf),
}

impl fmt::Display for Categories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guess => f.write_str("guess"),
            Self::None => f.write_str("none"),
            Self::Rules(file) => write!(f, "{}", file.display()),
        }
    }
}

impl FromStr for Categories {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "guess" => Ok(Self::Guess),
            "none" => Ok(Self::None),
            "" => Err("expected 'guess', 'none' or the name of a rules file".to_owned()),
            file => Ok(Self::Rules(file.into())),
        }
    }
}

pub(crate) fn metric_parser() -> impl TypedValueParser<Value = Metric> {
    parser_of(&Metric::ALL)
}

pub(crate) fn growing_metric_parser() -> impl TypedValueParser<Value = Metric> {
    let [requested, allocated, active] = Metric::OF_BLOCKS;
    parser_of(&[requested, allocated, active, Metric::Reserved])
}

pub(crate) fn between_parser() -> impl TypedValueParser<Value = Between> {
    let all = [Between::Steps, Between::Idle];
    let named = move |word: String| all.into_iter().find(|between| between.name() == word).unwrap_or_default();
    PossibleValuesParser::new(all.map(Between::name)).map(named)
}

pub(crate) fn block_metric_parser() -> impl TypedValueParser<Value = Metric> {
    parser_of(&Metric::OF_BLOCKS)
}

fn parser_of(metrics: &[Metric]) -> impl TypedValueParser<Value = Metric> + use<> {
    let value = |metric: &Metric| match metric {
        Metric::DeviceUsed => PossibleValue::new(metric.name()).alias("device-used"),
        _ => PossibleValue::new(metric.name()),
    };
    PossibleValuesParser::new(metrics.iter().map(value))
        .map(|name| Metric::from_name(&name.replace('-', "_")).expect("the value is not the name of a metric"))
}

pub(crate) fn kind_parser() -> impl TypedValueParser<Value = EventKind> {
    PossibleValuesParser::new(EventKind::ALL.iter().map(|kind| kind.name()))
        .map(|name| EventKind::from_name(&name).expect("the value is not the name of an event kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_back_and_mistakes_say_what_is_allowed() {
        assert_eq!("17".parse(), Ok(At::Event(17)));
        assert_eq!("end".parse(), Ok(At::Compared(ComparedAt(DiffAt::End))));
        assert_eq!("step:2".parse::<At>().unwrap().to_string(), "step:2");
        assert!("-1".parse::<At>().is_err());
        for text in ["peak", "end", "step:3", "step-end:0"] {
            assert_eq!(text.parse::<ComparedAt>().unwrap().to_string(), text);
        }
        assert!("step:x".parse::<ComparedAt>().unwrap_err().contains("invalid step number 'x'"));
        assert!("3".parse::<ComparedAt>().unwrap_err().contains("step:N"));
    }
}
