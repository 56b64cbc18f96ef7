//! The ranks of a folder as a table with the peaks of each. Marks outliers, missing ranks and unreadable files.

use std::sync::Arc;

use eframe::egui::{Color32, RichText, ScrollArea, Ui, vec2};
use highwater_analysis::{Metric, Moment};
use highwater_snapshots::count_of;

use crate::answers::outliers::{RULE, Standing};
use crate::figures::ranks::{COMPARED, Caveat, headlines, limits, notes, passed_by, ranks_table};
use crate::files::fleet::Fleet;
use crate::gui::widgets::{Cell, Shades, ShownColumn, ShownTable, SortedTable, place_ui, theme};
use crate::report::Column;

type Standings = [Vec<Standing>; COMPARED.len()];

/// The view of one folder.
#[derive(Debug)]
pub struct FleetView {
    fleet: Arc<Fleet>,
    headlines: Vec<String>,
    /// Notes on the accuracy of the recordings.
    limits: Vec<Caveat>,
    standings: Standings,
    table: SortedTable,
}

/// The columns that are hidden in narrow windows, in the order in which they are hidden.
const GIVING_WAY: [usize; 5] = [2, 8, 1, 5, 10];
/// Minimum width of the last column, in points.
const MIN_STANDING: f32 = 340.0;
/// Maximum share of the height for notes if the table does not fit otherwise.
const NOTES_SHARE: f32 = 0.3;

impl FleetView {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Self {
        let mut view = Self {
            headlines: Vec::new(),
            limits: Vec::new(),
            standings: Standings::default(),
            table: SortedTable::default(),
            fleet: Arc::default(),
        };
        view.renew(fleet);
        // Arrow down and Enter open a rank at once.
        view.table.choose(view.fleet.outlier(COMPARED[0]).unwrap_or(0));
        view.table.focus();
        view
    }

    /// Updates the ranks, and keeps their order and the selected one.
    pub(crate) fn renew(&mut self, fleet: Arc<Fleet>) {
        let chosen = self.table.chosen().and_then(|row| self.fleet.ranks.get(row)).map(|rank| rank.path.clone());
        self.headlines = headlines(&fleet);
        self.limits = limits(&fleet);
        self.standings = COMPARED.map(|metric| fleet.standings(metric));
        self.fleet = fleet;
        self.table.renew(&rows(&self.fleet, &self.standings, Color32::PLACEHOLDER));
        self.table.mark(chosen.and_then(|path| self.fleet.ranks.iter().position(|rank| rank.path == path)));
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Returns the row of a rank to open.
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
        let rows = rows(&self.fleet, &self.standings, shades.warning);
        let shown = self.shown_columns(&rows.columns, ui.available_width() - theme::SCROLL_WIDTH - 2.0);
        let rows = rows.narrowed(&shown);
        let all = ui.available_size();
        let needed = (rows.count as f32 + 1.0) * theme::ROW_HEIGHT + theme::SCROLL_WIDTH + 4.0;
        let (_, place) = ui.allocate_space(vec2(all.x, needed.min(all.y * (1.0 - NOTES_SHARE))));
        let show = |ui: &mut Ui| self.table.table_ui(ui, "Ranks of the folder", &rows);
        let opened = place_ui(ui, "ranks of the folder", place, show).opened;
        self.notes_ui(ui);
        opened
    }

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

    /// Returns the columns to show in a table `width` points wide. Empty columns are left out, and less important ones
    /// if there is no room.
    fn shown_columns(&self, columns: &[ShownColumn<'_>], width: f32) -> Vec<usize> {
        let ranks = &self.fleet.ranks;
        let is_empty = |column: usize| match column {
            1 => ranks.iter().all(|rank| rank.header.host.is_empty()),
            6 => ranks.iter().all(|rank| rank.peak(Metric::Allocated).step.is_none()),
            9 => ranks.iter().all(|rank| rank.trust.events_lost == 0),
            _ => false,
        };
        let mut shown: Vec<usize> = (0..columns.len()).filter(|column| !is_empty(*column)).collect();
        let needed = |shown: &[usize]| -> f32 {
            let least = |column: &ShownColumn<'_>| if column.width == 0.0 { MIN_STANDING } else { column.width };
            shown.iter().map(|column| least(&columns[*column])).sum()
        };
        for column in GIVING_WAY {
            if needed(&shown) > width {
                shown.retain(|other| *other != column);
            }
        }
        shown
    }

    /// The table as CSV, with sizes in bytes.
    pub fn csv(&self) -> String {
        ranks_table(&self.fleet, |row| self.table.order()[row]).csv()
    }
}

/// Returns the ranks as table rows, with their recordings' paths as tooltips, and outliers in the colour `warning`.
fn rows<'a>(fleet: &'a Fleet, standings: &'a Standings, warning: Color32) -> ShownTable<'a> {
    let ranks = &fleet.ranks;
    let of = move |row: usize| standings.each_ref().map(|standings| standings[row]);
    let is_out = move |row: usize| of(row).iter().any(|standing| *standing != Standing::Usual);
    let peak = move |row: usize| ranks[row].peak(Metric::Allocated);
    let most = fleet.highest(Metric::Allocated).map_or(1, |row| peak(row).bytes).max(1);
    let or = move |none: &'static str, is_none: fn(&Moment) -> bool| {
        move |row: usize, cell: Cell| if is_none(&peak(row)) { Cell { text: none.to_owned(), ..cell } } else { cell }
    };
    let columns = [
        Column::count("rank", "rank", move |row| ranks[row].rank)
            .wide(58.0, "The rank, from the recording or its file name; the file name if the rank is unknown.")
            .look(move |row, cell| Cell {
                text: ranks[row].number().map_or_else(|| ranks[row].name.clone(), |_| cell.text.clone()),
                swatch: is_out(row).then_some(warning),
                ..cell
            }),
        Column::text("host", "host", move |row| ranks[row].header.host.clone()).wide(110.0, "The machine."),
        Column::count("events", "events", move |row| ranks[row].events).wide(84.0, "Number of events."),
        Column::bytes("allocated_peak_bytes", "peak allocated", move |row| peak(row).bytes)
            .wide(104.0, "Peak of allocated bytes.")
            .look(move |row, cell| Cell { share: Some(peak(row).bytes as f32 / most as f32), ..cell }),
        Column::bytes("reserved_peak_bytes", "peak reserved", move |row| ranks[row].peak(Metric::Reserved).bytes)
            .wide(104.0, "Peak of reserved bytes."),
        Column::count("peak_event", "at event", move |row| peak(row).number())
            .wide(84.0, "The event of the peak of allocated bytes.")
            .look(or("before", |peak| peak.number().is_none())),
        Column::count("peak_step", "step", move |row| peak(row).step)
            .wide(54.0, "The step of that event.")
            .look(or("-", |peak| peak.step.is_none())),
        Column::text("peak_phase", "phase", move |row| peak(row).phase.name()).wide(84.0, "The phase of that event."),
        Column::bytes("end_allocated_bytes", "at the end", move |row| ranks[row].main().summary.end.allocated)
            .wide(96.0, "Allocated bytes at the end."),
        Column::count("events_lost", "lost events", move |row| ranks[row].trust.events_lost)
            .wide(84.0, "Number of lost events."),
        Column::count("notes", "notes", move |row| ranks[row].trust_sentences.len())
            .wide(58.0, "Number of notes below on what was lost, inferred or guessed in this recording."),
        Column::text("stands_out", "stands out", move |row| notes(&ranks[row], &of(row))).wide(0.0, RULE),
    ];
    let path = move |row: usize| Some(ranks[row].path.display().to_string());
    ShownTable::new(ranks.len(), columns.map(|column| column.tip(path)))
}
