//! Parses and applies the `--where` language: `category=activation size>=1MiB scope~block.3`.

use highwater_snapshots::category::{Category, Pool};
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::suggest::did_you_mean;
use highwater_snapshots::trace::{Block, Trace};
use highwater_snapshots::units::parse_bytes;

use super::lifetime::{Lifetime, step_of};
use super::origin::Origin;
use super::pools::{BlockPool, Pools};

/// Conditions that a block must all meet.
///
/// Terms are separated by spaces. Each is a key, an operator and a value, or a plain word or quoted phrase, which
/// matches where the stack, scope, op or category contains it, ignoring case. Values with spaces are written in double
/// quotes; several values separated by commas mean any of them. Text keys (`category op scope phase pool lifetime stack
/// frame`) take `=`, `!=`, `~` (contains) and `!~`; number keys (`size allocated step stream device`) take `=`, `!=`,
/// `<`, `<=`, `>`, `>=`. `size` is the requested bytes, and takes units.
///
/// `stack` is the whole text of a call stack, innermost frame first, with a line break between frames; `frame` matches
/// any single frame, or with a negated operator, stacks without such a frame. With `=` and `!=`, folders and the function
/// may be left out: `train.py:162` is `/home/me/train.py:162 step`. `phase` may also be `before` (before the recording) and
/// `none` (in a recording without phases). `lifetime` is one of
///
/// | word | freed |
/// |---|---|
/// | `phase` | in the phase of the allocation |
/// | `step` | in a later phase of the same step |
/// | `steps` | in a later step |
/// | `kept` | never: live at the end |
/// | `before` | in the recording, but allocated before it |
/// | `always` | never, and allocated before the recording |
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
    /// A plain word, matched against stack, scope, op and category; has no name.
    Any,
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
        let (terms, is_closed) = split_terms(text);
        if !is_closed {
            return Err(format!("'{text}': unclosed double quote"));
        }
        let terms = terms.iter().map(|term| Term::parse(term)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

impl Filter {
    /// The valid conditions of `text`, without those that are incomplete or wrong.
    pub fn valid_part(text: &str) -> Self {
        Self { terms: split_terms(text).0.iter().filter_map(|term| Term::parse(term).ok()).collect() }
    }

    /// Whether every block passes.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether it asks for lifetimes: in a window, the end of a block that waits for a stream is not known.
    pub fn asks_for_lifetimes(&self) -> bool {
        self.terms.iter().any(|term| term.key == Key::Lifetime)
    }

    /// Binds the filter to the blocks of `trace`.
    pub fn on<'a>(&'a self, trace: &'a Trace) -> BlockFilter<'a> {
        let names_pools = self.terms.iter().any(|term| term.key == Key::Pool);
        let pools = if names_pools { Pools::of(trace) } else { Pools::default() };
        BlockFilter { trace, pools, terms: self.terms.iter().map(|term| (term, TextCache::default())).collect() }
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(words) = plain_words(text) {
            let values = words.split(',').map(|word| Value::Text(word.replace(QUOTED_COMMA, ",").to_lowercase()));
            return Ok(Self { key: Key::Any, operator: Operator::Contains, values: values.collect() });
        }
        let end = name_length(text);
        let (name, rest) = text.split_at(end);
        let known = || KEYS.map(|(name, _)| name).join(", ");
        let Some(&(_, key)) = KEYS.iter().find(|(key, _)| *key == name) else {
            let hint = did_you_mean(name, KEYS.map(|(name, _)| name));
            return Err(format!("'{text}': unknown key '{name}'{hint}; keys are {}", known()));
        };
        let Some((spelling, operator)) = OPERATORS.iter().find(|(spelling, _)| rest.starts_with(spelling)) else {
            return Err(format!("'{text}': expected one of = != ~ !~ < <= > >= after '{name}'"));
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
            true => {
                let hint = did_you_mean(text, names.iter().copied());
                Err(format!("unknown value '{text}'{hint}; values are {}", names.join(", ")))
            }
            false => Ok(Value::Text(text.to_owned())),
        };
        match self {
            Self::Category => listed(Category::ALL.iter().map(|value| value.name()).collect()),
            Self::Phase => listed(Origin::all().map(Origin::word).collect()),
            Self::Pool if BlockPool::from_name(text).is_some() => Ok(Value::Text(text.to_owned())),
            Self::Pool => listed(Pool::ALL.iter().map(|value| value.name()).collect()),
            Self::Lifetime => listed(Lifetime::ALL.iter().map(|value| value.word()).collect()),
            Self::Op | Self::Scope | Self::Stack | Self::Frame | Self::Any => Ok(Value::Text(text.to_owned())),
            Self::Size | Self::Allocated => parse_bytes(text).map(Value::Number),
            Self::Step | Self::Stream | Self::Device => {
                text.parse().map(Value::Number).map_err(|_| format!("invalid value '{text}': expected a whole number"))
            }
        }
    }
}

/// The length of what could be a key at the start of `term`.
pub(super) fn name_length(term: &str) -> usize {
    term.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(term.len())
}

/// The text of a term that is a plain word or starts with a quote; `None` if an operator makes it a condition.
fn plain_words(term: &str) -> Option<&str> {
    if let Some(phrase) = term.strip_prefix(QUOTED) {
        return Some(phrase);
    }
    let rest = &term[name_length(term)..];
    let is_condition = OPERATORS.iter().any(|(spelling, _)| rest.starts_with(spelling));
    (!is_condition).then_some(term)
}

/// Marks the start of a quoted term; a character that occurs in no name.
const QUOTED: char = '\u{1e}';

/// Replaces a comma within double quotes; a character that occurs in no name.
const QUOTED_COMMA: char = '\u{1f}';

/// Splits at spaces outside double quotes. Also returns whether every quote is closed; if not, the last term is left
/// out.
fn split_terms(text: &str) -> (Vec<String>, bool) {
    let mut terms = vec![String::new()];
    let mut is_quoted = false;
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                let term = terms.last_mut().expect("one term at least");
                if term.is_empty() && is_quoted {
                    term.push(QUOTED);
                }
            }
            // Distinguished from the commas between values until the values are split.
            ',' if is_quoted => terms.last_mut().expect("one term at least").push(QUOTED_COMMA),
            ' ' | '\t' if !is_quoted => terms.push(String::new()),
            c => terms.last_mut().expect("one term at least").push(c),
        }
    }
    if is_quoted {
        terms.pop();
    }
    terms.retain(|term| !term.trim_matches(QUOTED).is_empty());
    (terms, !is_quoted)
}

/// A filter bound to a trace. Text conditions are evaluated once per op, scope or stack, not per block.
#[derive(Clone, Debug)]
pub struct BlockFilter<'a> {
    trace: &'a Trace,
    pools: Pools,
    terms: Vec<(&'a Term, TextCache)>,
}

/// Whether a handle matches, by the key of its table and the handle.
type TextCache = std::collections::HashMap<(Key, u32), bool>;

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
        let number = match self.key {
            Key::Category => return self.holds_text(block.category.name()),
            Key::Pool => return self.holds_text(&pools.pool(trace, &block).to_string()),
            Key::Lifetime => return self.holds_text(Lifetime::of(trace, &block).word()),
            Key::Phase => return self.holds_text(Origin::of(trace, &block).word()),
            Key::Op | Key::Scope | Key::Stack => return self.holds_cached(trace, &block, self.key, cache),
            Key::Frame => {
                let lines = || trace.tables.stack_text(block.stack);
                let holds = || match self.operator {
                    Operator::Is | Operator::IsNot => self.holds_line(&lines()),
                    _ => self.holds_any(lines().iter().map(String::as_str)),
                };
                return *cache.entry((Key::Frame, block.stack.0)).or_insert_with(holds);
            }
            Key::Any => {
                return self.holds_text(block.category.name())
                    || [Key::Op, Key::Scope, Key::Stack]
                        .into_iter()
                        .any(|key| self.holds_cached(trace, &block, key, cache));
            }
            Key::Size => Some(block.requested),
            Key::Allocated => Some(block.allocated),
            Key::Step => step_of(trace, &block).map(u64::from),
            Key::Stream => Some(block.stream.0),
            Key::Device => Some(u64::from(block.device.0)),
        };
        self.holds_number(number)
    }

    /// Whether the op, scope or stack of `block` matches; evaluated once for each.
    fn holds_cached(&self, trace: &Trace, block: &Block, key: Key, cache: &mut TextCache) -> bool {
        let handle = match key {
            Key::Op => block.op.0,
            Key::Scope => block.scope.0,
            _ => block.stack.0,
        };
        let holds = || {
            let text = match key {
                Key::Op => trace.tables.op_name(block.op).to_owned(),
                Key::Scope => trace.tables.scope_path(block.scope),
                _ => trace.tables.stack_text(block.stack).join("\n"),
            };
            if self.key == Key::Any { self.holds_text(&text.to_lowercase()) } else { self.holds_text(&text) }
        };
        *cache.entry((key, handle)).or_insert_with(holds)
    }

    /// Whether one of `lines` is a wanted one, or for [`Operator::IsNot`], none is. A wanted line need not have all its
    /// folders, nor its function: `train.py:162` is `/home/me/train.py:162 step`.
    fn holds_line(&self, lines: &[String]) -> bool {
        let is_end = |text: &str, wanted: &str| {
            text.strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with(['/', '\\']))
        };
        let is_line = |line: &str, wanted: &str| {
            let LineText { path, line: number, .. } = LineText::parse(line);
            is_end(line, wanted) || number > 0 && is_end(&format!("{path}:{number}"), wanted)
        };
        let is_wanted = |line: &String| {
            self.values.iter().any(|value| matches!(value, Value::Text(wanted) if is_line(line, wanted)))
        };
        lines.iter().any(is_wanted) != (self.operator == Operator::IsNot)
    }

    fn holds_text(&self, text: &str) -> bool {
        self.holds_any(std::iter::once(text))
    }

    /// Whether one of `texts` matches, or for a negated operator, none of them.
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
        assert!(why("scope~\"a b").contains("unclosed"));
        assert!(why("step>one").contains("expected a whole number"));
        assert!(why("catgeory=x").contains("unknown key 'catgeory' (did you mean 'category'?); keys are"));
        assert!(why("category=gradiant").contains("(did you mean 'gradient'?)"));
        assert!(why("lifetime=long").contains("values are always, before, phase, step, steps, kept"));
    }

    #[test]
    fn a_frame_is_met_by_any_and_denied_by_none_and_a_stack_is_the_whole() {
        let text = "baseline w 1\nalloc a 2 < relu < forward < main\nalloc b 3 < gelu < main\nfree b < main\n";
        let trace = highwater_snapshots::text::trace_from_text(text).unwrap();
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

    #[test]
    fn a_source_line_is_met_without_its_folders_and_function() {
        let text = "alloc a 1 < /home/me/train.py:162 step < /home/me/train.py:16 main\n\
                    alloc b 2 < /home/me/pretrain.py:162 step\nalloc c 3 < step\n";
        let trace = highwater_snapshots::text::trace_from_text(text).unwrap();
        let kept = |filter: &str| {
            let filter: Filter = filter.parse().unwrap();
            let mut filter = filter.on(&trace);
            trace.blocks.ids().filter(|&id| filter.matches(id)).map(|id| id.0).collect::<Vec<_>>()
        };
        for line in ["train.py:162", "me/train.py:162", "\"train.py:162 step\"", "\"/home/me/train.py:162 step\""] {
            assert_eq!(kept(&format!("frame={line}")), [0], "{line}");
            assert_eq!(kept(&format!("frame!={line}")), [1, 2], "{line}");
        }
        assert_eq!(kept("frame=train.py:16"), [0], "the caller's line, and not line 162");
        assert_eq!(kept("frame=step"), [2], "a function alone is not the end of a line");
        assert_eq!(kept("frame=in.py:162"), Vec::<u32>::new());
    }

    #[test]
    fn a_plain_word_is_looked_for_in_stack_scope_op_and_category_and_joins_other_conditions() {
        let text = "baseline w 1 parameter @net.Adam\nalloc a 2 #AdamW < step < main\nalloc b 3 < adam_update < main\n\
                    alloc c 4 activation #relu < forward pass < main\n";
        let trace = highwater_snapshots::text::trace_from_text(text).unwrap();
        let kept = |filter: &str| {
            let filter: Filter = filter.parse().unwrap();
            let mut filter = filter.on(&trace);
            trace.blocks.ids().filter(|&id| filter.matches(id)).map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(kept("adam"), [0, 1, 2], "scope, op and stack, in any case");
        assert_eq!(kept("ADAM size>=2"), [1, 2]);
        assert_eq!(kept("adam step"), [1], "both words");
        assert_eq!(kept("relu,param"), [0, 3], "any of several, the category too");
        assert_eq!(kept("\"forward pass\""), [3], "a phrase");
        assert_eq!(kept("forward pass"), [3]);
        assert_eq!(kept("net.adam"), [0]);
        assert_eq!(kept("\"=\""), Vec::<u32>::new(), "an operator within quotes is text");
        assert_eq!(kept("\"\""), [0, 1, 2, 3], "an empty phrase is no condition");
        assert_eq!(kept("nothing"), Vec::<u32>::new());
    }
}
