//! Statistics of a recording: steps, blocks that are never freed, sizes, lifetimes, and the accuracy of the figures.

mod sheets;
mod kept;

use std::sync::Arc;

use eframe::egui::{Label, RichText, Ui};
use highwater_analysis::growth::steps_or_bursts;
use highwater_analysis::statistics::{StatisticsQuery, TrustNote, trust_notes};
use highwater_analysis::{Between, Matches, Metric, Statistics};

use crate::gui::views::sheet::Sheet;
use crate::gui::views::view::{Action, OfDevice, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::{Query, Shades, SortedTable, computed, least_height_ui, tabs_ui, theme};

#[derive(Clone, Debug, PartialEq)]
struct Key {
    of: OfDevice,
    metric: Metric,
    matches: Arc<Matches>,
}

#[derive(Debug)]
struct Counted {
    sheets: Vec<Sheet>,
    notes: Vec<TrustNote>,
}

impl Counted {
    fn of(key: &Key) -> Option<Self> {
        let recording = key.of.recording.get()?;
        let trace = &recording.trace;
        let index = recording.devices.get(key.of.device)?;
        let peak = index.peak(trace, key.metric);
        let compared = steps_or_bursts(&recording.source, index.device);
        let (matches, compared) = (&*key.matches, compared.as_ref());
        let between = compared.map_or(Between::Steps, |window| window.between);
        let window = compared.filter(|_| between == Between::Steps);
        let statistics = Statistics::of(trace, &StatisticsQuery { peak, live: &index.live, matches, window });
        let mut kept = kept::kept(trace, &recording.absent, (&index.live, compared), key.metric, matches);
        // A verdict on blocks does not cover segments.
        let reserved = kept::reserved(&recording.source, index.device, between).filter(|_| matches.is_all());
        kept.lead.extend(reserved);
        let sheets = vec![
            sheets::steps(&statistics),
            kept,
            sheets::sizes(&statistics),
            sheets::lifetimes(&statistics),
            sheets::lived(&statistics),
            sheets::facts(trace, &statistics),
        ];
        Some(Self { sheets, notes: trust_notes(trace) })
    }
}

/// The names of the sheets, in order, and their tooltips.
const SHEETS: [(&str, &str); 6] = [
    ("Steps", "Memory of each step. Double click or Enter shows the step in the timeline."),
    ("Kept", "Blocks allocated and never freed, and growth per step. Double click or Enter shows only these."),
    ("Sizes", "Block sizes, in powers of two. Double click or Enter shows only blocks of that size."),
    ("Freed", "How long the blocks are live, in phases and steps. Double click or Enter shows only these."),
    ("Lifetimes", "Lifetimes of blocks, in events."),
    ("Recording", "The origin of the recording, the allocator settings, and what limits the accuracy of the numbers."),
];

/// The Statistics view: the current sheet, and the computed rows.
#[derive(Debug)]
pub struct StatisticsView {
    shown: usize,
    pages: [SortedTable; SHEETS.len()],
    query: Query<Key, Counted>,
}

computed!(StatisticsView: query);

impl Default for StatisticsView {
    fn default() -> Self {
        Self {
            shown: 0,
            pages: Default::default(),
            query: Query::new("highwater-statistics", |key, _| Counted::of(key)),
        }
    }
}

impl RecordingView for StatisticsView {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        least_height_ui(ui, "statistics", theme::STATISTICS_MIN, |ui| self.statistics_ui(ui, context))
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        whole_table(self.csv(), "the statistics are")
    }
}

impl StatisticsView {
    fn statistics_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui, context);
        let Some(counted) = self.query.answer() else {
            self.query.pending_ui(ui, "counting");
            return Vec::new();
        };
        let mut actions = Vec::new();
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 2.0;
            let sheets = std::array::from_fn::<_, { SHEETS.len() }, _>(|sheet| sheet);
            let clicked = tabs_ui(ui, &sheets, Some(self.shown), |sheet| SHEETS[sheet].0, |sheet| SHEETS[sheet].1);
            self.shown = clicked.unwrap_or(self.shown);
            if self.query.is_busy() {
                ui.weak("counting");
            } else if !context.matches.is_all() {
                ui.weak("only blocks that meet the search conditions");
            }
        });
        let (Some(sheet), Some(page)) = (counted.sheets.get(self.shown), self.pages.get_mut(self.shown)) else {
            return actions;
        };
        if sheet.measure.is_none() {
            notes_ui(ui, &counted.notes);
        }
        for (row, text) in sheet.lead.iter().enumerate() {
            let text = RichText::new(text);
            ui.add(Label::new(if row == 0 { text.strong() } else { text }).wrap());
        }
        if sheet.lines.is_empty() && !sheet.lead.is_empty() {
            return actions;
        }
        let touched = page.table_ui(ui, sheet.name, &sheet.rows());
        if let Some(line) = touched.opened.and_then(|row| sheet.lines.get(row)) {
            actions.extend(line.action.clone());
        }
        actions
    }

    /// Shows the sheet with this name, if there is one.
    pub(crate) fn show(&mut self, name: &str) {
        self.shown = SHEETS.iter().position(|(sheet, _)| *sheet == name).unwrap_or(self.shown);
    }

    /// Shows the next sheet, wrapping around.
    pub(crate) fn show_next(&mut self) {
        self.shown = (self.shown + 1) % SHEETS.len();
    }

    /// The current sheet as CSV, with exact figures, in the displayed order; `None` until it is computed.
    pub(crate) fn csv(&self) -> Option<String> {
        let sheet = self.query.answer()?.sheets.get(self.shown)?;
        Some(self.pages.get(self.shown)?.csv(&sheet.rows()))
    }

    fn refresh(&mut self, ui: &Ui, context: &ViewContext<'_>) {
        let (of, metric, matches) =
            (OfDevice::selected(context), context.selection.metric, Arc::clone(context.matches));
        self.query.ask(ui.ctx(), &Key { of, metric, matches });
        if self.query.receive() {
            let sheets = self.query.answer().into_iter().flat_map(|counted| &counted.sheets);
            for (page, sheet) in self.pages.iter_mut().zip(sheets) {
                page.renew(&sheet.rows());
            }
        }
        self.query.keep_if(|key| key.of.recording.is(context.recording));
    }
}

fn notes_ui(ui: &mut Ui, notes: &[TrustNote]) {
    if notes.is_empty() {
        ui.label("Nothing was lost, inferred or guessed: every number is exact.");
    }
    let warning = Shades::in_ui(ui).warning;
    for note in notes {
        ui.colored_label(warning, format!("{}.", note.fact));
        ui.indent(&note.fact, |ui| ui.label(note.means));
    }
    ui.add_space(6.0);
}

#[cfg(test)]
mod tests;
