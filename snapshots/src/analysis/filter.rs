//! Filter: the `--where` language, `category=activation size>=1MiB scope~block.3`.

use crate::category::{Category, Phase, Pool};
use crate::ids::BlockId;
use crate::trace::Trace;
use crate::units::parse_bytes;

use super::lifetime::Lifetime;
use super::pools::{BlockPool, Pools};

/// Conditions that a block must all meet.
///
/// Terms are separated by spaces; each is a key, an operator and a value. Values with spaces stand in double quotes;
/// several values, separated by commas, mean any of them. Keys with text (`category op scope phase pool lifetime stack
/// frame`) take `=`, `!=`, `~` (contains) and `!~`; keys with numbers (`size allocated step stream device`) take `=`,
/// `!=`, `<`, `<=`, `>`, `>=`. `size` is the requested bytes, and takes units.
///
/// `stack` is the whole text of a stack, innermost frame first, with a line break between frames; `frame` is met by any
/// single frame, `model.py:88 forward`, and negated by none. `lifetime` is one of
///
/// | word | freed |
/// |---|---|
/// | `phase` | in the phase in which the block was made |
/// | `step` | in a later phase of the same step |
/// | `steps` | in a later step |
/// | `kept` | never: alive at the end |
/// | `before` | in the recording, from before which it is |
/// | `always` | never, and from before the recording |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: Key,
    operator: Operator,
    values: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Category,
    Op,
    Scope,
    Phase,
    Pool,
    Lifetime,
    Stack,
    Frame,
    Size,
    Allocated,
    Step,
    Stream,
    Device,
}

pub(super) const KEYS: [(&str, Key); 13] = [
    ("category", Key::Category),
    ("op", Key::Op),
    ("scope", Key::Scope),
    ("phase", Key::Phase),
    ("pool", Key::Pool),
    ("lifetime", Key::Lifetime),
    ("stack", Key::Stack),
    ("frame", Key::Frame),
    ("size", Key::Size),
    ("allocated", Key::Allocated),
    ("step", Key::Step),
    ("stream", Key::Stream),
    ("device", Key::Device),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Is,
    IsNot,
    Contains,
    ContainsNot,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Longer spellings first, so that `>=` is not read as `>`.
pub(super) const OPERATORS: [(&str, Operator); 8] = [
    ("!=", Operator::IsNot),
    ("!~", Operator::ContainsNot),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=", Operator::Is),
    ("~", Operator::Contains),
    ("<", Operator::Less),
    (">", Operator::More),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Number(u64),
}

impl std::str::FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let terms = split_terms(text)?.iter().map(|term| Term::parse(term)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

impl Filter {
    /// Whether it lets every block pass.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Makes the filter ready for the blocks of `trace`.
    pub fn on<'a>(&'a self, trace: &'a Trace) -> BlockFilter<'a> {
        let names_pools = self.terms.iter().any(|term| term.key == Key::Pool);
        let pools = if names_pools { Pools::of(trace) } else { Pools::default() };
        BlockFilter { trace, pools, terms: self.terms.iter().map(|term| (term, TextCache::default())).collect() }
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let known = || KEYS.map(|(name, _)| name).join(", ");
        let Some(&(_, key)) = KEYS.iter().find(|(key, _)| *key == name) else {
            return Err(format!("'{text}': no key '{name}'; keys are {}", known()));
        };
        let Some((spelling, operator)) = OPERATORS.iter().find(|(spelling, _)| rest.starts_with(spelling)) else {
            return Err(format!("'{text}': after '{name}' one of = != ~ !~ < <= > >= must follow"));
        };
        let is_ordering = matches!(operator, Operator::Less | Operator::AtMost | Operator::More | Operator::AtLeast);
        if key.is_number() != is_ordering && !matches!(operator, Operator::Is | Operator::IsNot) {
            let fit = if key.is_number() { "= != < <= > >=" } else { "= != ~ !~" };
            return Err(format!("'{text}': '{name}' takes {fit}"));
        }
        let values = rest[spelling.len()..].split(',').map(|value| value.replace(QUOTED_COMMA, ","));
        let values = values.map(|value| key.value(&value, *operator)).collect::<Result<Vec<_>, _>>();
        Ok(Self { key, operator: *operator, values: values.map_err(|why| format!("'{text}': {why}"))? })
    }
}

impl Key {
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Size | Self::Allocated | Self::Step | Self::Stream | Self::Device)
    }

    fn value(self, text: &str, operator: Operator) -> Result<Value, String> {
        let is_whole = matches!(operator, Operator::Is | Operator::IsNot);
        let listed = |names: Vec<&str>| match is_whole && !names.contains(&text) {
            true => Err(format!("no such value '{text}': it is one of {}", names.join(", "))),
            false => Ok(Value::Text(text.to_owned())),
        };
        match self {
            Self::Category => listed(Category::ALL.iter().map(|value| value.name()).collect()),
            Self::Phase => listed(Phase::ALL.iter().map(|value| value.name()).collect()),
            Self::Pool if BlockPool::from_name(text).is_some() => Ok(Value::Text(text.to_owned())),
            Self::Pool => listed(Pool::ALL.iter().map(|value| value.name()).collect()),
            Self::Lifetime => listed(Lifetime::ALL.iter().map(|value| value.word()).collect()),
            Self::Op | Self::Scope | Self::Stack | Self::Frame => Ok(Value::Text(text.to_owned())),
            Self::Size | Self::Allocated => parse_bytes(text).map(Value::Number),
            Self::Step | Self::Stream | Self::Device => {
                text.parse().map(Value::Number).map_err(|_| format!("'{text}' is no whole number"))
            }
        }
    }
}

/// Stands for a comma within double quotes: a character that no name has.
const QUOTED_COMMA: char = '\u{1f}';

/// Splits at spaces outside double quotes.
fn split_terms(text: &str) -> Result<Vec<String>, String> {
    let mut terms = vec![String::new()];
    let mut is_quoted = false;
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            // Kept apart from the commas between values until the values are split.
            ',' if is_quoted => terms.last_mut().expect("one term at least").push(QUOTED_COMMA),
            ' ' | '\t' if !is_quoted => terms.push(String::new()),
            c => terms.last_mut().expect("one term at least").push(c),
        }
    }
    if is_quoted {
        return Err(format!("'{text}': a double quote is not closed"));
    }
    terms.retain(|term| !term.is_empty());
    Ok(terms)
}

/// A filter bound to a trace. Text conditions are decided once for each op, scope or stack, not for each block.
#[derive(Clone, Debug)]
pub struct BlockFilter<'a> {
    trace: &'a Trace,
    pools: Pools,
    terms: Vec<(&'a Term, TextCache)>,
}

/// For each handle asked so far, whether it matches.
type TextCache = std::collections::HashMap<u32, bool>;

impl BlockFilter<'_> {
    /// Whether `id` meets every condition.
    pub fn matches(&mut self, id: BlockId) -> bool {
        let trace = self.trace;
        let pools = &self.pools;
        self.terms.iter_mut().all(|(term, cache)| term.matches((trace, pools), id, cache))
    }
}

impl Term {
    fn matches(&self, (trace, pools): (&Trace, &Pools), id: BlockId, cache: &mut TextCache) -> bool {
        let block = trace.blocks.get(id);
        let span = || trace.spans.at(if block.is_baseline() { crate::EventId(0) } else { block.alloc });
        let number = match self.key {
            Key::Category => return self.holds_text(block.category.name()),
            Key::Pool => return self.holds_text(&pools.pool(trace, &block).to_string()),
            Key::Lifetime => return self.holds_text(Lifetime::of(trace, &block).word()),
            Key::Phase => {
                let phase = if block.is_baseline() { Some(Phase::Setup) } else { span().map(|span| span.phase) };
                return self.holds_text(phase.map_or("", Phase::name));
            }
            Key::Op => {
                return self.holds_cached(cache, block.op.0, || trace.tables.op_name(block.op).to_owned());
            }
            Key::Scope => {
                return self.holds_cached(cache, block.scope.0, || trace.tables.scope_path(block.scope));
            }
            Key::Stack => {
                return self.holds_cached(cache, block.stack.0, || trace.tables.stack_text(block.stack).join("\n"));
            }
            Key::Frame => {
                let holds = || self.holds_any(trace.tables.stack_text(block.stack).iter().map(String::as_str));
                return *cache.entry(block.stack.0).or_insert_with(holds);
            }
            Key::Size => Some(block.requested),
            Key::Allocated => Some(block.allocated),
            Key::Step if block.is_baseline() => None,
            Key::Step => span().and_then(|span| span.step).map(u64::from),
            Key::Stream => Some(block.stream.0),
            Key::Device => Some(u64::from(block.device.0)),
        };
        self.holds_number(number)
    }

    fn holds_cached(&self, cache: &mut TextCache, handle: u32, text: impl FnOnce() -> String) -> bool {
        *cache.entry(handle).or_insert_with(|| self.holds_text(&text()))
    }

    fn holds_text(&self, text: &str) -> bool {
        self.holds_any(std::iter::once(text))
    }

    /// Whether one of `texts` is meant, or for a negated operator, none of them.
    fn holds_any<'t>(&self, mut texts: impl Iterator<Item = &'t str>) -> bool {
        let mut any = |test: fn(&str, &str) -> bool| {
            let is_meant = |text: &str, value: &Value| matches!(value, Value::Text(wanted) if test(text, wanted));
            texts.any(|text| self.values.iter().any(|value| is_meant(text, value)))
        };
        match self.operator {
            Operator::Is => any(|text, wanted| text == wanted),
            Operator::IsNot => !any(|text, wanted| text == wanted),
            Operator::Contains => any(|text, wanted| text.contains(wanted)),
            _ => !any(|text, wanted| text.contains(wanted)),
        }
    }

    fn holds_number(&self, number: Option<u64>) -> bool {
        let Some(number) = number else {
            return self.operator == Operator::IsNot;
        };
        let any = |test: &dyn Fn(u64) -> bool| {
            self.values.iter().any(|value| matches!(value, Value::Number(wanted) if test(*wanted)))
        };
        match self.operator {
            Operator::IsNot => !any(&|wanted| number == wanted),
            Operator::Less => any(&|wanted| number < wanted),
            Operator::AtMost => any(&|wanted| number <= wanted),
            Operator::More => any(&|wanted| number > wanted),
            Operator::AtLeast => any(&|wanted| number >= wanted),
            _ => any(&|wanted| number == wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_read_and_mistakes_are_named_with_what_is_allowed() {
        assert!("category=activation size>=1MiB scope~block.3".parse::<Filter>().is_ok());
        assert!("scope~\"a b\" step!=0".parse::<Filter>().is_ok());
        let why = |text: &str| text.parse::<Filter>().unwrap_err();
        assert!(why("colour=red").contains("keys are category, op"));
        assert!(why("category=weights").contains("parameter"));
        assert!(why("size~3").contains("takes = != < <= > >="));
        assert!(why("category>3").contains("takes = != ~ !~"));
        assert!(why("scope~\"a b").contains("not closed"));
        assert!(why("step>one").contains("no whole number"));
        assert!(why("lifetime=long").contains("one of always, before, phase, step, steps, kept"));
    }

    #[test]
    fn a_frame_is_met_by_any_and_denied_by_none_and_a_stack_is_the_whole() {
        let text = "baseline w 1\nalloc a 2 < relu < forward < main\nalloc b 3 < gelu < main\nfree b < main\n";
        let trace = crate::text::trace_from_text(text).unwrap();
        let kept = |filter: &str| {
            let filter: Filter = filter.parse().unwrap();
            let mut filter = filter.on(&trace);
            trace.blocks.ids().filter(|&id| filter.matches(id)).map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(kept("frame=forward"), [1]);
        assert_eq!(kept("frame~lu"), [1, 2]);
        assert_eq!(kept("frame!=main"), [0]);
        assert_eq!(kept("frame!~re"), [0, 2]);
        assert_eq!(kept("frame=forward,gelu"), [1, 2]);
        assert_eq!(kept("stack=forward"), Vec::<u32>::new());
        assert_eq!(kept("lifetime=kept"), [1]);
        assert_eq!(kept("lifetime=phase,always"), [0, 2]);
    }
}
