//! The legend of colours, with each colour's share of the total at some moment.

use std::sync::Arc;

use eframe::egui::{
    Color32, Context, CursorIcon, FontId, Galley, Painter, Rect, Response, Role, Sense, Stroke, Ui, Vec2, WidgetInfo,
    pos2, vec2,
};
use highwater_analysis::beside::non_block_bytes;
use highwater_analysis::{DeviceSummary, Metric, PeakCause, bytes_of};
use highwater_snapshots::line_text::shorten_line;
use highwater_snapshots::{Category, Trace, format_bytes, format_share};

use crate::gui::colouring::{Colouring, Entry};
use crate::gui::widgets::{MEANING_OF_NONE, Query, Shades, computed, fitted, theme};
use crate::{DeviceIndex, Recording, Selection};

/// A moment of a recording, for which shares are computed.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The recording whose blocks are coloured.
    pub recording: Arc<Recording>,
    /// Index of the device.
    pub device: usize,
    /// The total that is shown.
    pub metric: Metric,
    /// Number of events before the moment.
    pub moment: usize,
    /// The colours of the blocks and their names.
    pub colouring: Arc<Colouring>,
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recording, &other.recording)
            && Arc::ptr_eq(&self.colouring, &other.colouring)
            && (self.device, self.metric, self.moment) == (other.device, other.metric, other.moment)
    }
}

impl Asked {
    /// The moment after `moment` events of the selected device, in the colours of a timeline.
    pub(crate) fn new(
        recording: &Arc<Recording>,
        selection: &Selection,
        moment: usize,
        colouring: &Arc<Colouring>,
    ) -> Self {
        let (device, metric) = (selection.device, selection.metric);
        Self { recording: Arc::clone(recording), device, metric, moment, colouring: Arc::clone(colouring) }
    }

    /// The legend entries with their bytes, largest at the peak first, followed by entries for bytes outside of blocks;
    /// they add up to the total.
    pub(crate) fn entries(&self) -> Vec<(Entry, u64)> {
        let trace = &self.recording.trace;
        let index = &self.recording.devices[self.device];
        let (is_split, beside) = non_block_bytes(trace, (&index.series, &index.live), self.metric, self.moment);
        let mut entries: Vec<(Entry, u64)> = self.colouring.entries.iter().map(|entry| (entry.clone(), 0)).collect();
        for block in index.live.before_position(trace, self.metric, self.moment).into_iter().filter(|_| is_split) {
            if let Some((_, sum)) = entries.get_mut(self.colouring.entry(block)) {
                *sum += bytes_of(trace, self.metric, block);
            }
        }
        for (beside, bytes) in beside {
            let own = || entries.iter().position(|(entry, _)| entry.name == beside.name());
            match self.colouring.entry_beside(trace, beside).or_else(own) {
                Some(row) => entries[row].1 += bytes,
                None => entries.push((Entry::neutral(beside.name().to_owned()), bytes)),
            }
        }
        entries.sort_by_key(|(entry, _)| entry.rank);
        entries
    }
}

/// Computes the legend's shares on a background thread: there may be a million live blocks.
#[derive(Debug)]
pub(crate) struct Shares {
    query: Query<Asked, Vec<(Entry, u64)>>,
}

computed!(Shares: query);

impl Default for Shares {
    fn default() -> Self {
        Self { query: Query::new("highwater-legend", |asked: &Asked, _| Some(asked.entries())).showing_late() }
    }
}

impl Shares {
    /// Requests the shares at a moment, unless they were requested last.
    pub(crate) fn ask(&mut self, ctx: &Context, asked: &Asked) {
        self.query.receive();
        self.query.ask(ctx, asked);
    }

    /// Shows the legend in at most `most_rows` rows, with the latest shares until new ones are computed. Until the
    /// first are computed, shows an empty row, so that the size of the timeline below rarely changes. Returns the
    /// condition of a clicked entry.
    pub(crate) fn legend_ui(&self, ui: &mut Ui, most_rows: usize) -> Option<String> {
        match self.query.answer() {
            Some(entries) => legend_ui(ui, entries, most_rows),
            None => {
                ui.horizontal_wrapped(|ui| ui.allocate_space(vec2(0.0, theme::ROW_HEIGHT)));
                None
            }
        }
    }
}

/// The opacity of an entry without bytes.
const ABSENT: f32 = 0.35;

/// Shows the legend with each entry's share, wrapped into at most `most_rows` rows. If there is not enough room, the
/// smallest entries are counted in a last one, which lists them when hovered. Returns the condition of a clicked entry.
pub(crate) fn legend_ui(ui: &mut Ui, entries: &[(Entry, u64)], most_rows: usize) -> Option<String> {
    let total = entries.iter().map(|(_, bytes)| bytes).sum();
    // Entries that are left out are counted with the others, if these have a separate entry.
    let sums: Vec<u64> = entries.iter().map(|(entry, bytes)| if entry.values > 1 { 0 } else { *bytes }).collect();
    let values: Vec<usize> = entries.iter().map(|(entry, _)| entry.values).collect();
    let chips: Vec<Chip> = entries
        .iter()
        .map(|(entry, bytes)| Chip::new(ui, &entry.name, &format_share(*bytes, total), *bytes > 0))
        .collect();
    let widths: Vec<f32> = chips.iter().map(Chip::width).collect();
    let shown = largest_that_fit(&sums, |shown| fits(ui, (&widths, &values), shown, most_rows, "100%"));
    let mut clicked = None;
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        let mut others = Others::default();
        for ((chip, (entry, bytes)), is_shown) in chips.into_iter().zip(entries).zip(shown) {
            let why = if entry.name == "(none)" { format!("; {MEANING_OF_NONE}") } else { String::new() };
            let exact = format!("{}: {} of {}{why}", entry.name, format_bytes(*bytes), format_bytes(total));
            if !is_shown {
                others.count += entry.values;
                others.bytes += bytes;
                others.lines.push((entry.colour, exact));
                continue;
            }
            let sign = |painter: &Painter, rect: Rect| {
                let colour = if *bytes > 0 { entry.colour } else { entry.colour.gamma_multiply(ABSENT) };
                painter.rect_filled(rect, 2.0, colour);
            };
            match &entry.condition {
                Some(condition) => {
                    let shown = chip.show_as(ui, sign, Sense::click()).on_hover_cursor(CursorIcon::PointingHand);
                    if shown.on_hover_text(format!("{exact}\nClick to show only these blocks: {condition}")).clicked() {
                        clicked = Some(condition.clone());
                    }
                }
                None => drop(chip.show(ui, sign).on_hover_text(exact)),
            }
        }
        let sign = |painter: &Painter, rect: Rect| _ = painter.rect_filled(rect, 2.0, theme::NEUTRAL);
        others.others_ui(ui, &format_share(others.bytes, total), sign);
    });
    clicked
}

/// Whether the chips that are shown, and one for all others, fit into `most_rows` rows.
fn fits(ui: &Ui, (widths, values): (&[f32], &[usize]), shown: &[bool], most_rows: usize, amount: &str) -> bool {
    let left_out: usize = values.iter().zip(shown).filter(|(_, is_shown)| !**is_shown).map(|(values, _)| values).sum();
    let last = (left_out > 0).then(|| Chip::new(ui, &format!("+{left_out} others"), amount, false).width());
    let shown = widths.iter().zip(shown).filter(|(_, is_shown)| **is_shown).map(|(width, _)| *width);
    rows_of(shown.chain(last), ui.available_width()) <= most_rows
}

/// The entries omitted from a legend.
#[derive(Default)]
struct Others {
    count: usize,
    bytes: u64,
    /// The colour and text of each entry, for the tooltip.
    lines: Vec<(Color32, String)>,
}

impl Others {
    /// Shows how many there are, and lists them on hover.
    fn others_ui(&self, ui: &mut Ui, amount: &str, sign: impl Fn(&Painter, Rect)) {
        let name = match self.count {
            0 => return,
            1 => "+1 other".to_owned(),
            count => format!("+{count} others"),
        };
        Chip::new(ui, &name, amount, false).show(ui, sign).on_hover_ui(|ui| {
            for (colour, text) in &self.lines {
                ui.horizontal(|ui| {
                    theme::swatch_ui(ui, *colour);
                    ui.label(text);
                });
            }
        });
    }
}

/// For each entry, whether to show it if only those with the largest `sums` fit: as many as possible, and at least one.
fn largest_that_fit(sums: &[u64], fits: impl Fn(&[bool]) -> bool) -> Vec<bool> {
    let mut shown = vec![true; sums.len()];
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by_key(|entry| (sums[*entry], std::cmp::Reverse(*entry)));
    for smallest in order.into_iter().take(sums.len().saturating_sub(1)) {
        if fits(&shown) {
            break;
        }
        shown[smallest] = false;
    }
    shown
}

/// Number of rows needed by chips of these widths.
fn rows_of(widths: impl Iterator<Item = f32>, available: f32) -> usize {
    let (mut rows, mut used) = (0, f32::MAX);
    for width in widths {
        used += width;
        if used > available {
            (rows, used) = (rows + 1, width);
        }
    }
    rows
}

/// Shows the legend of the lines over the bands, with the device's totals at some moment, in one row; entries that do
/// not fit are listed when the last one is hovered. `summary` describes the whole device; `is_apart` returns whether
/// two lines differ visibly anywhere in the picture.
pub(crate) fn lines_ui(
    ui: &mut Ui,
    trace: &Trace,
    index: &DeviceIndex,
    summary: &DeviceSummary,
    moment: usize,
    is_apart: impl Fn([Metric; 2]) -> bool,
) {
    let shades = Shades::in_ui(ui);
    let totals = index.series.before_position(trace, moment);
    let is_sampled = summary.peak(Metric::DeviceUsed).is_some();
    // A total that is the one above it everywhere in the picture has no line, and no entry.
    let is_covered = |metric: Metric| match metric {
        Metric::Allocated => !is_apart([metric, Metric::Requested]),
        Metric::Active => !is_apart([metric, Metric::Requested]) || !is_apart([metric, Metric::Allocated]),
        _ => false,
    };
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    let metrics = metrics.filter(|metric| !is_covered(*metric));
    // What is left out last has the highest rank; the capacity's is between.
    let rank = |metric: Metric| if matches!(metric, Metric::Requested | Metric::Reserved) { 4 } else { 2 };
    let lines = metrics.map(|metric| (metric.name(), shades.metric(metric), totals.get(metric), rank(metric)));
    let name = if summary.capacity_is_inferred { "capacity (inferred)" } else { "capacity" };
    let capacity = (summary.capacity_bytes > 0).then(|| (name, shades.capacity(), summary.capacity_bytes, 3));
    let lines: Vec<_> = lines.chain(capacity).collect();
    let texts = lines.iter().map(|(name, _, bytes, _)| (name.replace('_', " "), format_bytes(*bytes)));
    let chips: Vec<Chip> = texts.map(|(name, amount)| Chip::new(ui, &name, &amount, true)).collect();
    let widths: Vec<f32> = chips.iter().map(Chip::width).collect();
    let ranks: Vec<u64> = lines.iter().map(|(.., rank)| *rank).collect();
    let shown = largest_that_fit(&ranks, |shown| fits(ui, (&widths, &vec![1; widths.len()]), shown, 1, ""));
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        let mut others = Others::default();
        for ((chip, (name, stroke, bytes, _)), is_shown) in chips.into_iter().zip(&lines).zip(shown) {
            if !is_shown {
                others.count += 1;
                others.lines.push((stroke.color, format!("{}: {}", name.replace('_', " "), format_bytes(*bytes))));
                continue;
            }
            chip.show(ui, |painter, rect| {
                painter.hline(rect.x_range(), rect.center().y, Stroke::new(2.0, stroke.color));
            });
        }
        others.others_ui(ui, "", |_, _| ());
    });
}

/// A symbol, its meaning and its amount, kept together so that rows wrap between chips.
pub(crate) struct Chip {
    name: Arc<Galley>,
    amount: Arc<Galley>,
    colour: Color32,
}

impl Chip {
    const GAP: f32 = 5.0;
    /// Maximum width of the meaning in points; longer ones are truncated, so that no name dominates the layout.
    const MAX_NAME: f32 = 220.0;

    /// Lays out the texts; in a paler colour if the amount is zero.
    pub(crate) fn new(ui: &Ui, name: &str, amount: &str, is_present: bool) -> Self {
        let shades = Shades::in_ui(ui);
        let font = FontId::proportional(13.0);
        let colour = if is_present { shades.strong } else { shades.faint };
        let name = fitted(ui, name, &font, Self::MAX_NAME, true).unwrap_or_default().into_owned();
        Self {
            name: ui.painter().layout_no_wrap(name, font.clone(), colour),
            amount: ui.painter().layout_no_wrap(amount.to_owned(), font, shades.faint),
            colour,
        }
    }

    /// Width in points, including the distance to the next chip.
    fn width(&self) -> f32 {
        theme::SWATCH + self.name.size().x + self.amount.size().x + 2.0 * Self::GAP + 14.0
    }

    /// Shows the chip, with the symbol painted by `sign`.
    pub(crate) fn show(self, ui: &mut Ui, sign: impl Fn(&Painter, Rect)) -> Response {
        self.show_as(ui, sign, Sense::hover())
    }

    /// Shows it like [`show`](Self::show); if `sense` includes clicks, it is a button.
    fn show_as(self, ui: &mut Ui, sign: impl Fn(&Painter, Rect), sense: Sense) -> Response {
        let (rect, response) = ui.allocate_exact_size(vec2(self.width(), theme::ROW_HEIGHT), sense);
        let role = if sense.senses_click() { Role::Button } else { Role::Label };
        if response.has_focus() || (sense.senses_click() && response.hovered()) {
            let look = ui.style().interact(&response);
            ui.painter().rect_filled(rect.shrink2(vec2(0.0, 1.0)).translate(vec2(-4.0, 0.0)), 3.0, look.weak_bg_fill);
        }
        let middle = rect.center().y;
        let field = Rect::from_center_size(pos2(rect.left() + theme::SWATCH / 2.0, middle), Vec2::splat(theme::SWATCH));
        sign(ui.painter(), field);
        let label = format!("{} {}", self.name.text(), self.amount.text());
        let place = pos2(field.right() + Self::GAP, middle - self.name.size().y / 2.0);
        let beside = pos2(place.x + self.name.size().x + Self::GAP, place.y);
        ui.painter().galley(place, self.name, self.colour);
        ui.painter().galley(beside, self.amount, Shades::in_ui(ui).faint);
        response.widget_info(|| WidgetInfo::labeled(role, true, label.trim_end()));
        response
    }
}

/// Maximum length of an operation or line in the cause of a peak.
const MAX_NAME: usize = 40;

/// Describes the cause of a peak of `bytes`: `+2.87 GiB activation from forward`; with its share if it was not
/// allocated in the peak's step.
pub(crate) fn cause_text(trace: &Trace, cause: &PeakCause, bytes: u64) -> String {
    let amount =
        if cause.is_rise { format!("+{}", format_bytes(cause.bytes)) } else { format_share(cause.bytes, bytes) };
    let guess = if trace.trust.categories_guessed { " (guess)" } else { "" };
    let name = cause.cause.name();
    match (cause.cause.category, cause.allocated_by.as_ref().map(|by| shorten_line(by, MAX_NAME))) {
        // A line says more than that the category is unknown.
        (Category::Unknown, Some(by)) => format!("{amount} by {by}"),
        (Category::Unknown, None) => format!("{amount} {name}"),
        (_, Some(by)) => format!("{amount} {name}{guess}, {by}"),
        (_, None) => format!("{amount} {name}{guess}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{largest_that_fit, rows_of};

    #[test]
    fn the_smallest_entries_are_left_out_where_there_is_no_room() {
        let fits = |most: usize| move |shown: &[bool]| shown.iter().filter(|is_shown| **is_shown).count() <= most;
        assert_eq!(largest_that_fit(&[5, 0, 9, 0], fits(4)), [true; 4]);
        assert_eq!(largest_that_fit(&[5, 0, 9, 0], fits(3)), [true, true, true, false]);
        assert_eq!(largest_that_fit(&[5, 0, 9, 0], fits(2)), [true, false, true, false]);
        assert_eq!(largest_that_fit(&[5, 0, 9, 0], fits(0)), [false, false, true, false]);
        assert_eq!(rows_of([40.0, 50.0, 20.0, 90.0].into_iter(), 100.0), 3);
        assert_eq!(rows_of([].into_iter(), 100.0), 0);
    }
}
