//! Colouring: which colour each block wears, and the legend that says what colours mean.

use std::collections::HashMap;

use eframe::egui::Color32;
use highwater_snapshots::analysis::breakdown::Lifetime;
use highwater_snapshots::analysis::frames::user_line;
use highwater_snapshots::analysis::{Filter, Metric};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::{BlockId, Category, ScopeId, StackId, Trace};

use super::theme;
use crate::session::Recording;

/// What colours tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ColourBy {
    /// What blocks are for.
    #[default]
    Category,
    /// The first so many parts of the module path.
    Scope(usize),
    /// The operation's name.
    Op,
    /// The innermost source line of the user's program.
    CallSite,
    /// How long blocks live.
    Lifetime,
    /// The stream.
    Stream,
}

impl ColourBy {
    /// What to call it.
    pub fn label(self) -> String {
        match self {
            Self::Category => "category".to_owned(),
            Self::Scope(1) => "module, 1 level".to_owned(),
            Self::Scope(depth) => format!("module, {depth} levels"),
            Self::Op => "operation".to_owned(),
            Self::CallSite => "call site".to_owned(),
            Self::Lifetime => "lifetime".to_owned(),
            Self::Stream => "stream".to_owned(),
        }
    }
}

/// One line of the legend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What blocks of this colour share.
    pub name: String,
    /// Their colour.
    pub colour: Color32,
}

/// Which line of the legend each block of a recording belongs to.
#[derive(Clone, Debug)]
pub struct Colouring {
    /// The legend, in stacking order.
    pub entries: Vec<Entry>,
    /// Each block's line of the legend, by row.
    entry_of: Vec<u8>,
    /// Whether the filter lets each block pass, by row; empty where it lets all pass.
    is_shown: Vec<bool>,
}

/// The number that stands for "has none" in a key.
const NO_CODE: u64 = u64::MAX;

impl Colouring {
    /// Colours the blocks of device `device` of `recording`. The entries are those with most bytes at the peak of
    /// `metric`, in the order in which their first blocks were made; categories and lifetimes have a fixed order.
    /// Blocks that `filter` leaves out turn grey.
    pub fn build(recording: &Recording, device: usize, by: ColourBy, metric: Metric, filter: &Filter) -> Self {
        let trace = &recording.trace;
        let mut coder = Coder::new(trace, by);
        let codes: Vec<u64> = trace.blocks.ids().map(|id| coder.code(id)).collect();
        let on = recording.devices[device].device;
        // The legend is of the chosen device: blocks elsewhere have no line in it.
        let is_there = |code: u64| codes.iter().zip(&trace.blocks.device).any(|(at, its)| *at == code && *its == on);
        let order = match by {
            ColourBy::Category => (0..Category::ALL.len() as u64).filter(|code| is_there(*code)).collect(),
            ColourBy::Lifetime => (0..Lifetime::ALL.len() as u64).filter(|code| is_there(*code)).collect(),
            _ => most_important(recording, device, metric, &codes),
        };
        let mut entries: Vec<Entry> = Vec::with_capacity(order.len() + 1);
        let named = order.iter().filter(|code| **code != NO_CODE).count();
        for &code in &order {
            let colour = match (by, code) {
                (ColourBy::Category, _) => theme::category(Category::ALL[code as usize]),
                (_, NO_CODE) => theme::NEUTRAL,
                _ => theme::entry(entries.iter().filter(|entry| entry.colour != theme::NEUTRAL).count(), named),
            };
            entries.push(Entry { name: coder.name(code), colour });
        }
        let rows: HashMap<u64, u8> = order.iter().zip(0_u8..).map(|(code, row)| (*code, row)).collect();
        let rest = entries.len() as u8;
        let entry_of: Vec<u8> = codes.iter().map(|code| rows.get(code).copied().unwrap_or(rest)).collect();
        if entry_of.iter().zip(&trace.blocks.device).any(|(entry, its)| *entry == rest && *its == on) {
            entries.push(Entry { name: "(all others)".to_owned(), colour: theme::NEUTRAL });
        }
        let mut matcher = filter.on(trace);
        let shown = (!filter.is_empty()).then(|| trace.blocks.ids().map(|id| matcher.matches(id)).collect());
        Self { entries, entry_of, is_shown: shown.unwrap_or_default() }
    }

    /// The block's colour in the legend, or grey where the filter leaves it out or it is of another device.
    pub fn colour(&self, block: BlockId) -> Color32 {
        let colour = self.entries.get(self.entry(block)).map_or(theme::NEUTRAL, |entry| entry.colour);
        match self.is_shown.get(block.0 as usize) {
            Some(false) => theme::left_out(colour),
            _ => colour,
        }
    }

    /// The block's colour where its band can be told from its neighbours'.
    pub fn instance_colour(&self, block: BlockId) -> Color32 {
        theme::instance(self.colour(block), block.0 as usize)
    }

    /// The block's line of the legend; past its end for blocks of other devices that share none.
    pub fn entry(&self, block: BlockId) -> usize {
        usize::from(self.entry_of[block.0 as usize])
    }
}

/// The codes with most bytes at the peak (then: with most bytes in all), in the order of their first block.
fn most_important(recording: &Recording, device: usize, metric: Metric, codes: &[u64]) -> Vec<u64> {
    let trace = &recording.trace;
    let index = &recording.devices[device];
    let mut weights: HashMap<u64, (u64, u64, usize)> = HashMap::new();
    for (row, code) in codes.iter().enumerate().filter(|(row, _)| trace.blocks.device[*row] == index.device) {
        weights.entry(*code).or_insert((0, 0, row)).1 += trace.blocks.allocated[row];
    }
    let peak = index.peak(trace, metric).position();
    for id in index.live.before_position(trace, metric, peak) {
        let row = id.0 as usize;
        weights.entry(codes[row]).or_insert((0, 0, row)).0 += trace.blocks.allocated[row];
    }
    let mut ranked: Vec<(u64, (u64, u64, usize))> = weights.into_iter().collect();
    ranked.sort_by_key(|(code, (at_peak, in_all, _))| (std::cmp::Reverse((*at_peak, *in_all)), *code));
    if ranked.len() > theme::MOST_ENTRIES {
        ranked.truncate(theme::MOST_ENTRIES - 1);
    }
    ranked.sort_by_key(|(_, (_, _, first))| *first);
    ranked.into_iter().map(|(code, _)| code).collect()
}

/// Turns what a block is coloured by into a number, and such a number into words.
struct Coder<'a> {
    trace: &'a Trace,
    by: ColourBy,
    /// The module that a scope counts as, where scopes are cut at a depth: by path, since cutting may join several.
    scopes: HashMap<ScopeId, u64>,
    lines: HashMap<StackId, u64>,
    /// Source lines met so far, each once, and their codes.
    found: Vec<SourceLine>,
    code_of: HashMap<SourceLine, u64>,
}

impl<'a> Coder<'a> {
    fn new(trace: &'a Trace, by: ColourBy) -> Self {
        let (scopes, lines, code_of) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { trace, by, scopes, lines, found: Vec::new(), code_of }
    }

    fn code(&mut self, id: BlockId) -> u64 {
        let trace = self.trace;
        let row = id.0 as usize;
        match self.by {
            ColourBy::Category => u64::from(trace.blocks.category[row] as u8),
            ColourBy::Scope(depth) => {
                let scope = trace.blocks.scope[row];
                *self.scopes.entry(scope).or_insert_with(|| cut(trace, scope, depth))
            }
            ColourBy::Op => trace.tables.op(trace.blocks.op[row]).map_or(NO_CODE, |op| u64::from(op.name.0)),
            ColourBy::CallSite => {
                let (found, code_of) = (&mut self.found, &mut self.code_of);
                *self.lines.entry(trace.blocks.stack[row]).or_insert_with_key(|stack| {
                    let Some(line) = user_line(&trace.tables, *stack) else {
                        return NO_CODE;
                    };
                    *code_of.entry(line).or_insert_with(|| {
                        found.push(line);
                        found.len() as u64 - 1
                    })
                })
            }
            ColourBy::Lifetime => Lifetime::of(trace, &trace.blocks.get(id)) as u64,
            ColourBy::Stream => trace.blocks.stream[row].0,
        }
    }

    fn name(&self, code: u64) -> String {
        let tables = &self.trace.tables;
        match (self.by, code) {
            (ColourBy::Category, _) => Category::ALL[code as usize].name().to_owned(),
            (ColourBy::Lifetime, _) => Lifetime::ALL[code as usize].name().to_owned(),
            (ColourBy::Stream, stream) => format!("stream {stream}"),
            (_, NO_CODE) => "(none)".to_owned(),
            (ColourBy::Scope(_), scope) => tables.scope_path(ScopeId(scope as u32)),
            (ColourBy::Op, name) => tables.string(highwater_snapshots::StringId(name as u32)).to_owned(),
            (ColourBy::CallSite, line) => short_line(&tables.line_text(&self.found[line as usize])),
        }
    }
}

/// The ancestor of `scope` that has at most `depth` parts.
fn cut(trace: &Trace, scope: ScopeId, depth: usize) -> u64 {
    let parent = |id: ScopeId| id.index().and_then(|index| trace.tables.scopes.get(index)).map(|scope| scope.parent);
    let mut path = vec![scope];
    while let Some(above) = path.last().and_then(|id| parent(*id)).filter(|id| id.is_some()) {
        path.push(above);
    }
    let cut = path[path.len() - depth.clamp(1, path.len())];
    if cut.is_some() { u64::from(cut.0) } else { NO_CODE }
}

/// `function (folder/file:line)` with the leading folders left out.
pub fn short_line(text: &str) -> String {
    match text.rsplit_once(" (") {
        Some((function, place)) => {
            let kept = place.rsplit('/').next().unwrap_or(place);
            format!("{function} ({kept}")
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::text::trace_from_text;

    fn recording() -> Recording {
        let text = "
            baseline w 100 parameter @net.0
            alloc a 10 activation #linear @net.0 < forward < main
            alloc b 50 activation #relu @net.1 < forward < main
            alloc c 20 gradient #linear @net.0 < backward < main
        ";
        Recording::new("test", None, trace_from_text(text).unwrap())
    }

    fn names(by: ColourBy) -> Vec<String> {
        let recording = recording();
        let colouring = Colouring::build(&recording, 0, by, Metric::Requested, &Filter::default());
        colouring.entries.into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn the_legend_names_what_there_is_in_a_fixed_order() {
        assert_eq!(names(ColourBy::Category), ["parameter", "gradient", "activation"]);
        assert_eq!(names(ColourBy::Scope(1)), ["net"]);
        assert_eq!(names(ColourBy::Scope(2)), ["net.0", "net.1"]);
        assert_eq!(names(ColourBy::Scope(9)), ["net.0", "net.1"]);
        assert_eq!(names(ColourBy::Op), ["(none)", "linear", "relu"]);
        assert_eq!(names(ColourBy::CallSite), ["(none)", "forward", "backward"]);
        assert_eq!(names(ColourBy::Stream), ["stream 0"]);
    }

    #[test]
    fn categories_keep_their_colour_and_left_out_blocks_turn_grey() {
        let recording = recording();
        let filter: Filter = "category=activation".parse().unwrap();
        let colouring = Colouring::build(&recording, 0, ColourBy::Category, Metric::Requested, &filter);
        assert_eq!(colouring.entries[2].colour, theme::category(Category::Activation));
        assert_eq!(colouring.entry(BlockId(1)), colouring.entry(BlockId(2)));
        let grey = colouring.colour(BlockId(0));
        assert!(grey.r() == grey.g() && grey.g() == grey.b());
        assert_ne!(colouring.colour(BlockId(1)).r(), colouring.colour(BlockId(1)).g());
    }

    #[test]
    fn the_legend_is_of_the_chosen_device_alone() {
        let text = "
            baseline w 100 parameter #init device=1
            alloc a 10 activation #linear
            alloc g 20 gradient #relu device=1
        ";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let names = |device: usize, by: ColourBy| -> Vec<String> {
            let colouring = Colouring::build(&recording, device, by, Metric::Requested, &Filter::default());
            for block in recording.trace.blocks.ids() {
                colouring.instance_colour(block);
            }
            colouring.entries.into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(0, ColourBy::Category), ["activation"]);
        assert_eq!(names(1, ColourBy::Category), ["parameter", "gradient"]);
        assert_eq!(names(0, ColourBy::Lifetime), ["kept to the end"]);
        assert_eq!(names(0, ColourBy::Op), ["linear"]);
    }

    #[test]
    fn many_entries_are_kept_to_the_largest_and_the_rest_shares_one() {
        let text: String = (0..100).map(|n| format!("alloc b{n} {} #op{n}\n", n + 1)).collect();
        let recording = Recording::new("many", None, trace_from_text(&text).unwrap());
        let colouring = Colouring::build(&recording, 0, ColourBy::Op, Metric::Requested, &Filter::default());
        assert_eq!(colouring.entries.len(), theme::MOST_ENTRIES);
        assert_eq!(colouring.entries.last().unwrap().name, "(all others)");
        assert_eq!(colouring.entries[0].name, "op69");
        assert_eq!(colouring.entry(BlockId(3)), theme::MOST_ENTRIES - 1);
    }
}
