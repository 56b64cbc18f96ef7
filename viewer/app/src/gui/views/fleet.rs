//! The ranks of a folder as a table with the peaks of each; marks outliers, missing ranks and unreadable files.

use std::cmp::Reverse;
use std::sync::Arc;

use eframe::egui::{RichText, ScrollArea, Ui, UiBuilder, vec2};
use highwater_analysis::Metric;
use highwater_snapshots::units::{format_bytes, format_count};

use crate::answers::outliers::{RULE, Standing};
use crate::figures::moment::count_of;
use crate::figures::ranks::{COMPARED, Caveat, headlines, limits, notes, passed_by, ranks_table};
use crate::files::fleet::{Fleet, Rank};
use crate::gui::widgets::table::{Cell, Column, TableState, table_with_tips_ui};
use crate::gui::widgets::theme::{self, Shades};

/// The view of one folder.
#[derive(Debug)]
pub struct FleetView {
    fleet: Arc<Fleet>,
    headlines: Vec<String>,
    /// The notes on the accuracy of the recordings.
    limits: Vec<Caveat>,
    standings: [Vec<Standing>; COMPARED.len()],
    /// The ranks in the order of the table.
    order: Vec<usize>,
    table: TableState,
}

/// The columns.
const COLUMNS: [Column; 12] = [
    column("Rank", "The rank; with ? if it was taken from the file name.", 58.0, true),
    column("Host", "The machine.", 110.0, false),
    column("Events", "Number of events.", 84.0, true),
    column("Peak allocated", "Peak of allocated bytes.", 104.0, true),
    column("Peak reserved", "Peak of reserved bytes.", 104.0, true),
    column("At event", "The event of the peak of allocated bytes.", 84.0, true),
    column("Step", "The step of that event.", 54.0, true),
    column("Phase", "The phase of that event.", 84.0, false),
    column("At the end", "Allocated bytes at the end.", 96.0, true),
    column("Lost events", "Number of lost events.", 84.0, true),
    column("Notes", "Number of notes below on what was lost, inferred or guessed in this recording.", 58.0, true),
    column("Stands out", RULE, 0.0, false),
];

/// Columns that are dropped first in narrow windows, in this order.
const GIVING_WAY: [usize; 5] = [2, 8, 1, 5, 10];
/// Least width of the last column, in points.
const MIN_STANDING: f32 = 340.0;
/// Largest share of the height for notes if the table needs more room.
const NOTES_SHARE: f32 = 0.3;

const fn column(name: &'static str, tooltip: &'static str, width: f32, is_number: bool) -> Column {
    Column { name, tooltip, width, is_number, is_sortable: true }
}

impl FleetView {
    /// A view of `fleet`.
    pub fn new(fleet: Arc<Fleet>) -> Self {
        let mut table = TableState::default();
        // Arrow down and Enter open a rank at once.
        table.choose(fleet.outlier(COMPARED[0]).unwrap_or(0));
        table.focus();
        Self {
            headlines: headlines(&fleet),
            limits: limits(&fleet),
            standings: COMPARED.map(|metric| fleet.standings(metric)),
            order: (0..fleet.ranks.len()).collect(),
            table,
            fleet,
        }
    }

    /// The ranks that are shown.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Shows the ranks. Returns the row of the one that the user opens.
    pub(crate) fn fleet_ui(&mut self, ui: &mut Ui) -> Option<usize> {
        let shades = Shades::in_ui(ui);
        ui.add_space(4.0);
        let count = count_of(self.fleet.ranks.len() as u64, "recording");
        ui.label(RichText::new(format!("{}: {count}", self.fleet.name)).color(shades.faint));
        for (row, sentence) in self.headlines.iter().enumerate() {
            let text = RichText::new(sentence);
            ui.label(if row == 0 { text.strong().size(16.0) } else { text.strong() });
        }
        ui.add_space(4.0);
        let shown = self.shown_columns(ui.available_width() - theme::SCROLL_WIDTH - 2.0);
        let columns: Vec<Column> = shown.iter().map(|column| COLUMNS[*column]).collect();
        let (order, fleet, standings) = (&self.order, &self.fleet, &self.standings);
        let most = fleet.highest(Metric::Allocated).map_or(1, |row| fleet.ranks[row].peak(Metric::Allocated).bytes);
        let cell = |row: usize, column: usize| {
            let column = shown[column];
            order.get(row).map_or_else(Cell::default, |&at| {
                let is_out = standings.iter().any(|standings| standings[at] != Standing::Usual);
                let text = text(&fleet.ranks[at], &standings.each_ref().map(|standings| standings[at]), column);
                let bytes = fleet.ranks[at].peak(Metric::Allocated).bytes;
                let share = (column == 3).then_some(bytes as f32 / most.max(1) as f32);
                Cell { share, swatch: (column == 0 && is_out).then_some(shades.warning), ..text.into() }
            })
        };
        let tip = |row: usize, _: usize| order.get(row).map(|&at| fleet.ranks[at].path.display().to_string());
        let rows = order.len();
        let all = ui.available_size();
        let needed = (rows as f32 + 1.0) * theme::ROW_HEIGHT + theme::SCROLL_WIDTH + 4.0;
        let (_, place) = ui.allocate_space(vec2(all.x, needed.min(all.y * (1.0 - NOTES_SHARE))));
        let show =
            |ui: &mut Ui| table_with_tips_ui(ui, "Ranks of the folder", &columns, rows, &mut self.table, (cell, tip));
        let touched = ui.scope_builder(UiBuilder::new().id_salt("ranks of the folder").max_rect(place), show).inner;
        let opened = touched.opened.and_then(|row| self.order.get(row)).copied();
        if touched.is_resorted {
            self.sort(&shown);
        }
        self.notes_ui(ui);
        opened
    }

    /// The notes below the table: the rule for outliers, limits of accuracy, and how to open a rank.
    fn notes_ui(&self, ui: &mut Ui) {
        let shades = Shades::in_ui(ui);
        ui.add_space(4.0);
        ScrollArea::vertical().id_salt("notes").auto_shrink([false, true]).show(ui, |ui| {
            let open = "To open a rank, double-click its row, press Enter, or click it in the strip above.";
            ui.label(RichText::new(open).color(shades.faint));
            ui.label(RichText::new(format!("{RULE}.")).color(shades.faint));
            for Caveat { is_warning, text: sentence } in &self.limits {
                let colour = if *is_warning { shades.warning } else { shades.faint };
                ui.label(RichText::new(sentence).color(colour));
            }
            if self.fleet.skipped > 0 {
                ui.label(RichText::new(passed_by(self.fleet.skipped)).color(shades.faint));
            }
        });
    }

    /// The columns that fit into `width` points: columns without values are left out, and then, if needed, the less
    /// important ones.
    fn shown_columns(&self, width: f32) -> Vec<usize> {
        let ranks = &self.fleet.ranks;
        let is_empty = |column: usize| match column {
            1 => ranks.iter().all(|rank| rank.header.host.is_empty()),
            6 => ranks.iter().all(|rank| rank.peak(Metric::Allocated).step.is_none()),
            9 => ranks.iter().all(|rank| rank.trust.events_lost == 0),
            _ => false,
        };
        let mut shown: Vec<usize> = (0..COLUMNS.len()).filter(|column| !is_empty(*column)).collect();
        let needed = |shown: &[usize]| -> f32 {
            let least = |column: &Column| if column.width == 0.0 { MIN_STANDING } else { column.width };
            shown.iter().map(|column| least(&COLUMNS[*column])).sum()
        };
        for column in GIVING_WAY {
            if needed(&shown) > width {
                shown.retain(|other| *other != column);
            }
        }
        shown
    }

    /// The table as CSV, sizes as bare bytes.
    pub fn csv(&self) -> String {
        ranks_table(&self.fleet, |row| self.order[row]).csv()
    }

    /// Sorts the rows by the table's current column; the selected rank stays selected.
    fn sort(&mut self, shown: &[usize]) {
        let chosen = self.table.chosen.and_then(|row| self.order.get(row)).copied();
        self.order = (0..self.fleet.ranks.len()).collect();
        if let Some((column, is_down)) =
            self.table.sort.and_then(|(column, is_down)| Some((*shown.get(column)?, is_down)))
        {
            let (fleet, standings) = (&self.fleet, &self.standings);
            let key = |&at: &usize| {
                let rank = &fleet.ranks[at];
                let text = text(rank, &standings.each_ref().map(|standings| standings[at]), column);
                (number(rank, column), text)
            };
            if is_down {
                self.order.sort_by_cached_key(|at| Reverse(key(at)));
            } else {
                self.order.sort_by_cached_key(key);
            }
        }
        if let Some(row) = self.order.iter().position(|at| Some(*at) == chosen) {
            self.table.choose(row);
        }
    }
}

/// The number in a column, if the column is numeric.
fn number(rank: &Rank, column: usize) -> Option<u64> {
    let peak = rank.peak(Metric::Allocated);
    match column {
        0 => Some(u64::from(rank.rank)),
        2 => Some(rank.events),
        3 => Some(peak.bytes),
        4 => Some(rank.peak(Metric::Reserved).bytes),
        5 => peak.number(),
        6 => peak.step.map(u64::from),
        8 => Some(rank.main().summary.end.allocated),
        9 => Some(rank.trust.events_lost),
        10 => Some(rank.trust_sentences.len() as u64),
        _ => None,
    }
}

/// The text of a column for a rank.
fn text(rank: &Rank, standings: &[Standing; COMPARED.len()], column: usize) -> String {
    match (column, number(rank, column)) {
        (0, _) if rank.number().is_none() => rank.name.clone(),
        (3 | 4 | 8, Some(bytes)) => format_bytes(bytes),
        (_, Some(number)) => format_count(number),
        (1, _) => rank.header.host.clone(),
        (5, _) => "before".to_owned(),
        (7, _) => rank.peak(Metric::Allocated).phase.name().to_owned(),
        (11, _) => notes(rank, standings),
        _ => "-".to_owned(),
    }
}
