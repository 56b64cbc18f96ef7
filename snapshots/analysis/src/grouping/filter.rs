//! Parses and applies the `--where` language, such as `category=activation size>=1MiB scope~block.3`.

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::suggest::did_you_mean;
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::parse_bytes;
use highwater_snapshots::yielding::tick;

use super::dimension::{Dimension, GroupKey, Lookups, Values, conditions};

/// Conditions that blocks must all meet.
///
/// Terms are separated by spaces. Each is a key, an operator and a value, or a plain word or quoted phrase, which
/// matches where the stack, scope, op or category contains it, ignoring case. Values with spaces are written in double
/// quotes; several values separated by commas mean any of them. Text keys (`category op scope phase pool lifetime stack
/// frame`) take `=`, `!=`, `~` (contains) and `!~`; number keys (`size allocated step stream device`) take `=`, `!=`,
/// `<`, `<=`, `>`, `>=`. `size` is the requested bytes, and takes units.
///
/// `stack` is the whole text of a call stack, innermost frame first, with a line break between frames; `frame` matches
/// any single frame, or with a negated operator, stacks without such a frame. With `=` and `!=`, folders and the
/// function may be left out: `train.py:162` is `/home/me/train.py:162 step`. `phase` may also be `before` (before the
/// recording) and `none` (in a recording without phases). `lifetime` is one of
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
    /// The dimensions to compare; several for a plain word, which ignores case.
    dimensions: Vec<&'static Dimension>,
    operator: Operator,
    values: Vec<Value>,
}

/// The dimensions that a plain word searches.
const PLAIN: [GroupKey; 4] = [GroupKey::Category, GroupKey::Op, GroupKey::Scope, GroupKey::Stack];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Is,
    IsNot,
    Contains,
    ContainsNot,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Operator {
    /// Returns whether the operator compares the whole value.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Is | Self::IsNot)
    }

    /// Returns whether the operator compares a part of the value.
    pub(crate) fn is_part(self) -> bool {
        matches!(self, Self::Contains | Self::ContainsNot)
    }

    pub(crate) fn fits(self, values: Values) -> bool {
        self.is_whole() || values.are_numbers() != self.is_part()
    }
}

/// The operators. Longer ones come first, so that `>=` is not parsed as `>`.
pub(crate) const OPERATORS: [(&str, Operator); 8] = [
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
    /// Parses the valid conditions of `text`, ignoring incomplete or invalid ones.
    pub fn valid_part(text: &str) -> Self {
        Self { terms: split_terms(text).0.iter().filter_map(|term| Term::parse(term).ok()).collect() }
    }

    /// Returns whether every block passes.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether the filter has a condition on lifetimes. In a window, the end of a block awaiting free is
    /// unknown.
    pub fn asks_for_lifetimes(&self) -> bool {
        self.terms.iter().any(|term| term.dimensions.contains(&GroupKey::Lifetime.dimension()))
    }

    /// Binds the filter to the blocks of `trace`.
    pub fn on<'a>(&'a self, trace: &'a Trace) -> BlockFilter<'a> {
        let terms = self.terms.iter().map(|term| (term, vec![Verdicts::new(); term.dimensions.len()]));
        BlockFilter { lookups: Lookups::new(trace), terms: terms.collect() }
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(words) = plain_words(text) {
            let values = words.split(',').map(|word| Value::Text(word.replace(QUOTED_COMMA, ",").to_lowercase()));
            let dimensions = PLAIN.map(GroupKey::dimension).to_vec();
            return Ok(Self { dimensions, operator: Operator::Contains, values: values.collect() });
        }
        let end = name_length(text);
        let (name, rest) = text.split_at(end);
        let Some(dimension) = conditions().into_iter().find(|dimension| dimension.name == name) else {
            let known = key_names();
            let hint = did_you_mean(name, known.iter().copied());
            return Err(format!("'{text}': unknown key '{name}'{hint}; keys are {}", known.join(", ")));
        };
        let Some((spelling, operator)) = OPERATORS.iter().find(|(spelling, _)| rest.starts_with(spelling)) else {
            return Err(format!("'{text}': expected one of = != ~ !~ < <= > >= after '{name}'"));
        };
        if !operator.fits(dimension.values) {
            let fit = if dimension.values.are_numbers() { "= != < <= > >=" } else { "= != ~ !~" };
            return Err(format!("'{text}': '{name}' takes {fit}"));
        }
        let values = rest[spelling.len()..].split(',').map(|value| value.replace(QUOTED_COMMA, ","));
        let values = values.map(|text| value(dimension, &text, *operator)).collect::<Result<Vec<_>, _>>();
        let values = values.map_err(|why| format!("'{text}': {why}"))?;
        Ok(Self { dimensions: vec![dimension], operator: *operator, values })
    }
}

/// The names of the keys of conditions.
pub fn key_names() -> Vec<&'static str> {
    conditions().iter().map(|dimension| dimension.name).collect()
}

fn value(dimension: &Dimension, text: &str, operator: Operator) -> Result<Value, String> {
    match dimension.values {
        Values::Words(words)
            if operator.is_whole()
                && !words().contains(&text)
                && !dimension.is_other_word.is_some_and(|is| is(text)) =>
        {
            let words = words();
            let hint = did_you_mean(text, words.iter().copied());
            Err(format!("unknown value '{text}'{hint}; values are {}", words.join(", ")))
        }
        Values::Words(_) | Values::Text | Values::Path | Values::Stack | Values::Line => {
            Ok(Value::Text(text.to_owned()))
        }
        Values::Bytes => parse_bytes(text).map(Value::Number),
        Values::Number => {
            text.parse().map(Value::Number).map_err(|_| format!("invalid value '{text}': expected an integer"))
        }
    }
}

/// Returns the length of the possible key at the start of `term`.
pub(crate) fn name_length(term: &str) -> usize {
    term.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(term.len())
}

/// Returns the text of a term that is a plain word or starts with a quote; `None` if the term has an operator and thus
/// is a condition.
fn plain_words(term: &str) -> Option<&str> {
    if let Some(phrase) = term.strip_prefix(QUOTED) {
        return Some(phrase);
    }
    let rest = &term[name_length(term)..];
    let is_condition = OPERATORS.iter().any(|(spelling, _)| rest.starts_with(spelling));
    (!is_condition).then_some(term)
}

/// Marks the start of a quoted term. This character occurs in no name.
const QUOTED: char = '\u{1e}';

/// Replaces a comma within double quotes. This character occurs in no name.
pub(crate) const QUOTED_COMMA: char = '\u{1f}';

/// Splits the text at spaces outside double quotes. Also returns whether every quote is closed; if not, omits the last
/// term.
fn split_terms(text: &str) -> (Vec<String>, bool) {
    let mut terms = vec![String::new()];
    let mut is_quoted = false;
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                let term = terms.last_mut().expect("the filter has no term");
                if term.is_empty() && is_quoted {
                    term.push(QUOTED);
                }
            }
            // Distinguished from the commas between values until the values are split.
            ',' if is_quoted => terms.last_mut().expect("the filter has no term").push(QUOTED_COMMA),
            ' ' | '\t' if !is_quoted => terms.push(String::new()),
            c => terms.last_mut().expect("the filter has no term").push(c),
        }
    }
    if is_quoted {
        terms.pop();
    }
    terms.retain(|term| !term.trim_matches(QUOTED).is_empty());
    (terms, !is_quoted)
}

/// Returns whether `line` equals `wanted`, from which leading folders and the function may be missing: `train.py:162`
/// equals `/home/me/train.py:162 step`.
fn is_end_of_line(line: &str, wanted: &str) -> bool {
    let is_end =
        |text: &str| text.strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with(['/', '\\']));
    let LineText { path, line: number, .. } = LineText::parse(line);
    is_end(line) || number > 0 && is_end(&format!("{path}:{number}"))
}

/// A filter bound to a trace. Text conditions are evaluated once per value, not per block.
#[derive(Clone, Debug)]
pub struct BlockFilter<'a> {
    lookups: Lookups<'a>,
    terms: Vec<(&'a Term, Vec<Verdicts>)>,
}

/// For each value, by its number, whether the value matches.
type Verdicts = hashbrown::HashMap<u64, bool>;

impl BlockFilter<'_> {
    /// Whether `id` meets every condition.
    pub fn matches(&mut self, id: BlockId) -> bool {
        tick();
        let lookups = &mut self.lookups;
        self.terms.iter_mut().all(|(term, verdicts)| term.matches(lookups, id, verdicts))
    }
}

impl Term {
    fn matches(&self, lookups: &mut Lookups<'_>, id: BlockId, verdicts: &mut [Verdicts]) -> bool {
        self.dimensions.iter().zip(verdicts).any(|(dimension, verdicts)| {
            let number = (dimension.number.of)(lookups, id);
            match number {
                Some(number) if !dimension.values.are_numbers() => {
                    let holds = || self.matches_text(dimension, &lookups.trace.tables, number);
                    *verdicts.entry(number).or_insert_with(holds)
                }
                number => self.matches_number(number),
            }
        })
    }

    /// Returns whether the text of a value matches. For a call stack, any of its lines or the whole text may match;
    /// with a negated operator, none of them may.
    fn matches_text(&self, dimension: &Dimension, tables: &Tables, number: u64) -> bool {
        let is_line = matches!(dimension.values, Values::Line);
        let mut texts = match is_line {
            true => tables.stack_text(StackId(number as u32)),
            false => vec![(dimension.word)(tables, number).into_owned()],
        };
        if self.dimensions.len() > 1 {
            texts.iter_mut().for_each(|text| *text = text.to_lowercase());
        }
        let is_meant = |text: &str, value: &Value| match value {
            Value::Text(wanted) if !self.operator.is_whole() => text.contains(wanted),
            Value::Text(wanted) if is_line => is_end_of_line(text, wanted),
            Value::Text(wanted) => text == wanted,
            Value::Number(_) => false,
        };
        let is_any = texts.iter().any(|text| self.values.iter().any(|value| is_meant(text, value)));
        is_any != matches!(self.operator, Operator::IsNot | Operator::ContainsNot)
    }

    fn matches_number(&self, number: Option<u64>) -> bool {
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
        assert!(why("step>one").contains("expected an integer"));
        assert!(why("catgeory=x").contains("unknown key 'catgeory' (did you mean 'category'?); keys are"));
        assert!(why("category=gradiant").contains("(did you mean 'gradient'?)"));
        assert!(why("lifetime=long").contains("values are always, before, phase, step, steps, kept"));
    }

    #[test]
    fn a_frame_is_met_by_any_and_denied_by_none_and_a_stack_is_the_whole() {
        let text = "baseline w 1\nalloc a 2 < relu < forward < main\nalloc b 3 < gelu < main\nfree b < main\n";
        let trace = highwater_notation::trace_from_text(text).unwrap();
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
        let trace = highwater_notation::trace_from_text(text).unwrap();
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
        let trace = highwater_notation::trace_from_text(text).unwrap();
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
