//! Assigns a colour to each block, and builds the legend of these colours.

use std::sync::Arc;

use eframe::egui::Color32;
use highwater_analysis::block_values::label_beside;
use highwater_analysis::diff::Change;
use highwater_analysis::{Beside, BlockPool, BlockValues, GroupKey, Leaks, Matches, Metric, NO_LABEL, Origin};
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::yielding::tick;
use highwater_snapshots::{BlockId, Category, DeviceId, ScopeId, Trace};
use rayon::prelude::*;

use crate::gui::widgets::{name_of_none, theme};
use crate::{ColourBy, Recording};

/// One line of the legend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value shared by the blocks of this colour, in short form.
    pub name: String,
    /// The label of these blocks' group in tables.
    pub label: String,
    /// The colour of these blocks.
    pub colour: Color32,
    /// The position in the legend: the largest at the peak first, the entry for all other values last.
    pub rank: usize,
    /// Number of values with this colour: 1, except in the entry for all other values.
    pub values: usize,
    /// The `--where` condition for these blocks; `None` if there is none.
    pub condition: Option<String>,
}

/// The legend entry of each block of a recording.
#[derive(Clone, Debug)]
pub struct Colouring {
    /// The legend, in stacking order.
    pub entries: Vec<Entry>,
    /// For each block, by row, the index of its legend entry, combined with [`SECOND_LAYER`].
    entry_of: Vec<u8>,
    matches: Arc<Matches>,
    by: ColourBy,
}

/// The colour of leaked blocks, regardless of their category.
pub(crate) const LEAK: Color32 = theme::change(Change::OnlyInB);

/// Bit in the entry index of blocks in every second layer.
const SECOND_LAYER: u8 = 0x80;

/// Minimum number of blocks per parallel task.
const RUN: usize = 1 << 14;

impl Colouring {
    /// Assigns colours to the blocks of device `device` of `recording`. The legend has entries for the values with the
    /// most bytes at the peak of `metric`, largest first; categories and lifetimes have a fixed order. Blocks that are
    /// not among `matches` are grey. Takes a few parallel passes over the blocks.
    pub(crate) fn build(
        recording: &Recording,
        device: usize,
        by: ColourBy,
        metric: Metric,
        matches: &Arc<Matches>,
    ) -> Self {
        let trace = &recording.trace;
        let ColourBy(key) = by;
        recording.step_ends(device);
        // Needed for any colours, since the label of the peak names the leaks.
        let leaks = recording.devices[device].leaks(&recording.source).filter(|_| key == GroupKey::Category);
        let values = Values { of_blocks: BlockValues::of(trace, key), leaks, trace };
        // The legend covers the chosen device only.
        let weights = weigh(recording, device, metric, &values);
        let (weights, leaking) = weights.split_at(values.of_blocks.count());
        let mut order = match key.has_fixed_order() {
            true => (0..weights.len()).collect(),
            false => most_important(weights),
        };
        order.retain(|value| weights[*value].blocks > 0);
        let mut entries = values.entries(key, &order);
        for entry in entries.iter_mut().filter(|entry| entry.label == NO_LABEL) {
            entry.name = name_of_none(recording, key).to_owned();
        }
        let mut at_peak: Vec<u64> = order.iter().map(|value| weights[*value].at_peak).collect();
        if let Some(leaks) = leaks.filter(|_| leaking.iter().any(|weight| weight.blocks > 0)) {
            // No condition selects leaked blocks.
            entries.push(Entry { colour: LEAK, ..Entry::neutral(leaks.name()) });
            at_peak.push(leaking.iter().map(|weight| weight.at_peak).sum());
        }
        let mut ranked: Vec<usize> = (0..entries.len()).collect();
        ranked.sort_by_key(|entry| std::cmp::Reverse(at_peak[*entry]));
        ranked.into_iter().enumerate().for_each(|(rank, entry)| entries[entry].rank = rank);
        let rest = entries.len() as u8;
        // Leaks have the last entry, if there are any.
        let mut rows = vec![rest; weights.len()];
        rows.resize(weights.len() + leaking.len(), rest.saturating_sub(1));
        for (row, &value) in (0..rest).zip(&order) {
            rows[value] = row;
        }
        let blocks = 0..trace.blocks.len();
        let is_second = second_layers(trace);
        let entry_of = blocks.into_par_iter().with_min_len(RUN).map(|row| {
            tick();
            let is_second = is_second.get(trace.blocks.scope[row].0 as usize).is_some_and(|is_second| *is_second);
            rows[values.value(row)] | if is_second { SECOND_LAYER } else { 0 }
        });
        let entry_of = entry_of.collect();
        let others = weights.iter().zip(&rows).filter(|(weight, row)| weight.blocks > 0 && **row == rest).count();
        if others > 0 {
            entries.push(Entry { rank: entries.len(), values: others, ..Entry::neutral("others".to_owned()) });
        }
        Self { entries, entry_of, matches: Arc::clone(matches), by }
    }

    /// The block's legend colour, or grey if it is filtered out or on another device.
    pub fn colour(&self, block: BlockId) -> Color32 {
        let colour = self.entries.get(self.entry(block)).map_or(theme::NEUTRAL, |entry| entry.colour);
        let is_second = self.entry_of.get(block.0 as usize).is_some_and(|entry| entry & SECOND_LAYER != 0);
        match self.matches.contains(block) {
            true if is_second => theme::second_layer(colour),
            true => colour,
            false => theme::left_out(colour),
        }
    }

    /// The block's colour, modified so that its band can be distinguished from its neighbours.
    pub(crate) fn instance_colour(&self, block: BlockId) -> Color32 {
        let colour = self.colour(block);
        if self.matches.contains(block) { theme::instance(colour, block.0 as usize) } else { colour }
    }

    /// Returns the legend entry of bytes outside of blocks: the entry of the blocks with which tables group these
    /// bytes; `None` if there is no such entry.
    pub(crate) fn entry_beside(&self, trace: &Trace, beside: Beside) -> Option<usize> {
        let label = label_beside(trace, self.by.0, beside);
        self.entries.iter().position(|entry| entry.label == label)
    }

    /// The colour of the blocks with this value of `key`; `None` if the timeline is coloured by another key.
    pub(crate) fn colour_of(&self, key: GroupKey, label: &str) -> Option<Color32> {
        let entry = || self.entries.iter().find(|entry| entry.label == label);
        (self.by.0 == key).then(|| entry().map_or(theme::NEUTRAL, |entry| entry.colour))
    }

    /// Returns the index of the block's legend entry; past the end for blocks of other devices.
    pub(crate) fn entry(&self, block: BlockId) -> usize {
        usize::from(self.entry_of.get(block.0 as usize).copied().unwrap_or(u8::MAX) & !SECOND_LAYER)
    }
}

impl Entry {
    /// A grey entry of the legend. Its blocks cannot be selected by a search condition.
    pub(crate) fn neutral(name: String) -> Self {
        Self { label: name.clone(), name, colour: theme::NEUTRAL, rank: usize::MAX, values: 1, condition: None }
    }
}

/// The values of blocks. Leaked blocks have separate values.
struct Values<'a> {
    of_blocks: BlockValues<'a>,
    leaks: Option<&'a Leaks>,
    trace: &'a Trace,
}

impl Values<'_> {
    /// Returns the value of the block in `row`; the second half of the values is for leaked blocks.
    #[inline]
    fn value(&self, row: usize) -> usize {
        let leaks = self.leaks.is_some_and(|leaks| leaks.has(self.trace, BlockId(row as u32)));
        self.of_blocks.value(row) + if leaks { self.of_blocks.count() } else { 0 }
    }

    /// Returns the legend entries of the values in `order`, not yet ranked.
    fn entries(&self, key: GroupKey, order: &[usize]) -> Vec<Entry> {
        let fixed = |value: &usize| fixed_colour(key, self.of_blocks.number(*value)?);
        let fixed: Option<Vec<Color32>> = order.iter().map(fixed).collect();
        let mut entries: Vec<Entry> = Vec::with_capacity(order.len() + 2);
        for ((at, value), name) in order.iter().enumerate().zip(self.of_blocks.names(order)) {
            let label = self.of_blocks.label(*value);
            let colour = match &fixed {
                Some(colours) => colours[at],
                None if label == NO_LABEL => theme::NEUTRAL,
                None => theme::entry(entries.iter().filter(|entry| entry.colour != theme::NEUTRAL).count()),
            };
            let condition = self.of_blocks.condition(*value);
            entries.push(Entry { name, label, colour, rank: usize::MAX, values: 1, condition });
        }
        entries
    }
}

/// Returns the fixed colour of the value of `key` with this index; `None` if the colour depends on the view.
pub(crate) fn fixed_colour(key: GroupKey, number: u64) -> Option<Color32> {
    match key {
        GroupKey::Category => Category::from_code(number as u8).map(theme::category),
        GroupKey::Phase => match Origin::from_code(number as usize) {
            Origin::Phase(phase) => Some(theme::entry(phase as usize)),
            Origin::BeforeRecording | Origin::Unmarked => Some(theme::NEUTRAL),
        },
        GroupKey::Lifetime => Some(theme::entry(number as usize)),
        GroupKey::Pool => match BlockPool::from_code(number) {
            BlockPool::Shared(pool) => Some(theme::entry(pool as usize)),
            BlockPool::Private(..) => None,
        },
        _ => None,
    }
}

/// For each module path, whether its outermost number is odd, to distinguish every second layer of a model.
fn second_layers(trace: &Trace) -> Vec<bool> {
    let is_second = |scope| {
        let names: Vec<&str> = trace.tables.scope_rows(scope).map(|scope| trace.tables.string(scope.name)).collect();
        let number = names.iter().rev().find_map(|name| name.parse::<u64>().ok());
        number.is_some_and(|number| number % 2 == 1)
    };
    (0..trace.tables.scopes.len() as u32).map(ScopeId).map(is_second).collect()
}

/// Sums over the blocks of one value on one device.
#[derive(Clone, Copy, Debug)]
struct Weight {
    /// Allocated bytes at the peak.
    at_peak: u64,
    /// Allocated bytes of all blocks of the recording.
    in_all: u64,
    blocks: u64,
}

impl Weight {
    const NOTHING: Self = Self { at_peak: 0, in_all: 0, blocks: 0 };

    fn add(&mut self, other: &Self) {
        self.at_peak += other.at_peak;
        self.in_all += other.in_all;
        self.blocks += other.blocks;
    }
}

fn weigh(recording: &Recording, device: usize, metric: Metric, values: &Values<'_>) -> Vec<Weight> {
    let trace = &recording.trace;
    let index = &recording.devices[device];
    let nothing = || vec![Weight::NOTHING; values.of_blocks.count() * if values.leaks.is_some() { 2 } else { 1 }];
    // A few long runs, since each has its own sums for all values.
    let run = trace.blocks.len().div_ceil(2 * rayon::current_num_threads()).max(RUN);
    let weigh = |(run_index, devices): (usize, &[DeviceId])| {
        let mut weights = nothing();
        let ours = devices.iter().enumerate().filter(|(_, device)| **device == index.device);
        for row in ours.map(|(row, _)| run_index * run + row) {
            tick();
            let one = Weight { at_peak: 0, in_all: trace.blocks.allocated[row], blocks: 1 };
            weights[values.value(row)].add(&one);
        }
        weights
    };
    let join = |mut weights: Vec<Weight>, others: Vec<Weight>| {
        weights.iter_mut().zip(&others).for_each(|(weight, other)| weight.add(other));
        weights
    };
    let mut weights = trace.blocks.device.par_chunks(run).enumerate().map(weigh).reduce(nothing, join);
    let peak = index.peak(trace, metric).position();
    for id in index.live.before_position(trace, metric, peak) {
        let row = id.0 as usize;
        weights[values.value(row)].at_peak += trace.blocks.allocated[row];
    }
    weights
}

/// The values with the most bytes at the peak, then in the whole recording, largest first. Of more than
/// [`theme::MAX_ENTRIES`], keeps one fewer, since the others share an entry.
fn most_important(weights: &[Weight]) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..weights.len()).filter(|value| weights[*value].blocks > 0).collect();
    ranked.sort_by_key(|value| (std::cmp::Reverse((weights[*value].at_peak, weights[*value].in_all)), *value));
    if ranked.len() > theme::MAX_ENTRIES {
        ranked.truncate(theme::MAX_ENTRIES - 1);
    }
    ranked
}

/// Returns a line of code without leading folders, such as `folder/file.py:184 function`.
pub(crate) fn short_line(text: &str) -> String {
    if let Some((address, module)) = text.split_once(" in ").filter(|(address, _)| address.starts_with("0x")) {
        return format!("{address} in {}", LineText { path: module, line: 0, function: "" }.file_name());
    }
    let line = LineText::parse(text);
    LineText { path: line.file_name(), function: &line.short_function(), ..line }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_analysis::peak::Query;
    use highwater_analysis::{Filter, Peak, Siblings};
    use highwater_notation::trace_from_text;

    use crate::gui::views::group_keys::group_keys;

    fn recording() -> Recording {
        let text = "
            baseline w 100 parameter @net.0
            alloc a 10 activation #linear @net.0 < forward < main
            alloc b 50 activation #relu @net.1 < forward < main
            alloc c 20 gradient #linear @net.0 < backward < main
        ";
        Recording::new("test", None, trace_from_text(text).unwrap())
    }

    fn names(by: GroupKey) -> Vec<String> {
        let recording = recording();
        let colouring = Colouring::build(&recording, 0, ColourBy(by), Metric::Requested, &Arc::default());
        colouring.entries.into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn the_legend_names_what_there_is_by_bytes_at_the_peak_and_categories_in_a_fixed_order() {
        assert_eq!(names(GroupKey::Category), ["parameter", "gradient", "activation"]);
        assert_eq!(names(GroupKey::ScopeTo(1)), ["net"]);
        assert_eq!(names(GroupKey::ScopeTo(2)), ["net.0", "net.1"]);
        assert_eq!(names(GroupKey::ScopeTo(9)), ["net.0", "net.1"]);
        assert_eq!(names(GroupKey::Op), ["before the recording", "relu", "linear"]);
        assert_eq!(names(GroupKey::Frame), ["before the recording", "forward", "backward"]);
        assert_eq!(names(GroupKey::Stream), ["stream 0"]);
        assert_eq!(names(GroupKey::Pool), ["large"]);
    }

    #[test]
    fn every_key_that_is_offered_colours_blocks_as_tables_group_them() {
        let recording = recording();
        let (trace, index) = (&recording.trace, &recording.devices[0]);
        let moment = index.peak(trace, Metric::Requested);
        let offered: Vec<GroupKey> = group_keys(recording.deepest_scope).collect();
        assert!(GroupKey::ALL.iter().all(|key| offered.contains(key)));
        for key in offered {
            let query = Query { keys: &[key], top: usize::MAX, filter: &Filter::default(), siblings: Siblings::Each };
            let groups = Peak::at(trace, &index.live, &index.series, moment, &query).breakdown.groups;
            let colouring = Colouring::build(&recording, 0, ColourBy(key), Metric::Requested, &Arc::default());
            let mut entries = colouring.entries;
            entries.sort_by_key(|entry| entry.rank);
            let labels: Vec<&String> = entries.iter().map(|entry| &entry.label).collect();
            assert_eq!(labels, groups.iter().map(|group| &group.key[0]).collect::<Vec<_>>(), "{key}");
        }
    }

    #[test]
    fn blocks_that_leak_are_distinguished_from_others_of_their_category() {
        let step =
            |n: u32| format!("step {n}\nalloc kept{n} 10 < cache < main\nalloc t{n} 50 < forward < main\nfree t{n}\n");
        let text: String = (0..5).map(step).collect();
        let recording = Recording::new("test", None, trace_from_text(&text).unwrap());
        let colouring =
            Colouring::build(&recording, 0, ColourBy(GroupKey::Category), Metric::Requested, &Arc::default());
        let names: Vec<&str> = colouring.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["unknown", "leak at cache"]);
        assert_eq!([0, 1].map(|block| colouring.entry(BlockId(block))), [1, 0]);
        assert_eq!(colouring.entries[1].colour, LEAK);
    }

    #[test]
    fn categories_keep_their_colour_and_left_out_blocks_turn_grey() {
        let recording = recording();
        let filter: Filter = "category=activation".parse().unwrap();
        let matches = Arc::new(Matches::of(&recording.trace, &filter));
        let colouring = Colouring::build(&recording, 0, ColourBy(GroupKey::Category), Metric::Requested, &matches);
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
        let names = |device: usize, by: GroupKey| -> Vec<String> {
            let colouring = Colouring::build(&recording, device, ColourBy(by), Metric::Requested, &Arc::default());
            for block in recording.trace.blocks.ids() {
                colouring.instance_colour(block);
            }
            colouring.entries.into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(0, GroupKey::Category), ["activation"]);
        assert_eq!(names(1, GroupKey::Category), ["parameter", "gradient"]);
        assert_eq!(names(0, GroupKey::Lifetime), ["kept to the end"]);
        assert_eq!(names(0, GroupKey::Op), ["linear"]);
    }

    #[test]
    fn many_entries_are_kept_to_the_largest_and_the_rest_shares_one() {
        let text: String = (0..100).map(|n| format!("alloc b{n} {} #op{n}\n", n + 1)).collect();
        let recording = Recording::new("many", None, trace_from_text(&text).unwrap());
        let colouring = Colouring::build(&recording, 0, ColourBy(GroupKey::Op), Metric::Requested, &Arc::default());
        assert_eq!(colouring.entries.len(), theme::MAX_ENTRIES);
        let last = colouring.entries.last().unwrap();
        assert_eq!((last.name.as_str(), last.values), ("others", 93));
        assert_eq!(colouring.entries[0].name, "op99");
        assert_eq!(colouring.entry(BlockId(3)), theme::MAX_ENTRIES - 1);
    }
}
