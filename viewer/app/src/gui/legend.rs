//! The legend of colours, with the share of the total of each colour at some moment.

use std::sync::Arc;

use eframe::egui::{
    Color32, Context, CursorIcon, FontId, Galley, Painter, Rect, Response, RichText, Role, Sense, Stroke, Ui, Vec2,
    WidgetInfo, pos2, vec2,
};
use highwater_analysis::beside::non_block_bytes;
use highwater_analysis::{DeviceSummary, Metric, Moment, bytes_of};
use highwater_snapshots::{Trace, count_of, format_bytes, format_count, format_share};

use crate::figures::cause::cause_text;
use crate::gui::colouring::{Colouring, Entry};
use crate::gui::widgets::{MEANING_OF_NONE, Query, Shades, capital, computed, fit, fitted, theme, when};
use crate::{DeviceIndex, Recording, Selection};

/// The moment of a recording for which shares are requested.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub recording: Arc<Recording>,
    pub device: usize,
    pub metric: Metric,
    /// Number of events before the moment.
    pub moment: usize,
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
    /// Requests the shares after `moment` events of the selected device, in the colours of a timeline.
    pub(crate) fn new(
        recording: &Arc<Recording>,
        selection: &Selection,
        moment: usize,
        colouring: &Arc<Colouring>,
    ) -> Self {
        let (device, metric) = (selection.device, selection.metric);
        Self { recording: Arc::clone(recording), device, metric, moment, colouring: Arc::clone(colouring) }
    }

    /// Returns the legend entries with their bytes, which add up to the total: the largest at the peak first, and
    /// entries for bytes outside of blocks last.
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

/// Computes the legend's shares on a background thread, because there may be a million live blocks.
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
    /// Requests the shares at a moment, unless the last request was the same.
    pub(crate) fn ask(&mut self, ctx: &Context, asked: &Asked) {
        self.query.receive();
        self.query.ask(ctx, asked);
    }

    /// Shows the legend in at most `most_rows` rows after the text `when`, with the latest shares until new ones are
    /// computed. Until the first are computed, shows an empty row, so that the size of the timeline below rarely
    /// changes. Returns the condition of a clicked entry.
    pub(crate) fn legend_ui(&self, ui: &mut Ui, most_rows: usize, when: &str) -> Option<String> {
        match self.query.answer() {
            Some(entries) => legend_ui(ui, entries, most_rows, when),
            None => {
                ui.horizontal_wrapped(|ui| ui.allocate_space(vec2(0.0, theme::ROW_HEIGHT)));
                None
            }
        }
    }
}

/// The moment of a legend's figures, as its first words, such as `At the peak:` or `At event 2,684:`.
pub(crate) fn at_text(moment: &Moment, is_peak: bool) -> String {
    match moment.number() {
        _ if is_peak => "At the peak:".to_owned(),
        Some(event) => format!("At event {}:", format_count(event)),
        None => format!("{}:", capital(&when(moment))),
    }
}

/// Maximum widths of names in a legend, in points, in the order in which they are tried.
const NAME_WIDTHS: [f32; 6] = [Chip::MAX_NAME, 150.0, 125.0, 110.0, 97.0, 84.0];

/// Shows the legend with each entry's share after the text `when`, wrapped into at most `most_rows` rows, with names as
/// long as the space permits. If there is not enough room, the smallest entries share the last one, which lists them
/// when hovered. Returns the condition of a clicked entry.
pub(crate) fn legend_ui(ui: &mut Ui, entries: &[(Entry, u64)], most_rows: usize, when: &str) -> Option<String> {
    let (total, most_rows) = (entries.iter().map(|(_, bytes)| bytes).sum(), most_rows.min(entries.len().max(1)));
    let named = entries.iter().filter(|(entry, _)| entry.values == 1);
    let (sums, exact): (Vec<u64>, Vec<String>) = named
        .clone()
        .map(|(entry, bytes)| {
            let why = if entry.name == "(none)" { format!("; {MEANING_OF_NONE}") } else { String::new() };
            (*bytes, format!("{}: {} of {}{why}", entry.name, format_bytes(*bytes), format_bytes(total)))
        })
        .unzip();
    let chip = |(entry, bytes): &(Entry, u64), room: f32| {
        Chip::within(ui, &entry.name, &format_share(*bytes, total), *bytes > 0, room)
    };
    let mut others = Others::default();
    for (entry, bytes) in entries.iter().filter(|(entry, _)| entry.values > 1) {
        let values = count_of(entry.values as u64, "further group");
        others.push(entry.colour, *bytes, format!("{values}: {} of {}", format_bytes(*bytes), format_bytes(total)));
    }
    let lead = lead_width(ui, when);
    let fits = |chips: &[Chip], shown: &[bool], rows: usize| {
        let is_whole = others.lines.is_empty() && shown.iter().all(|is_shown| *is_shown);
        let last = (!is_whole).then(|| Chip::new(ui, OTHERS, "100%", false).width());
        let shown = chips.iter().zip(shown).filter(|(_, is_shown)| **is_shown).map(|(chip, _)| chip.width());
        rows_of(lead.into_iter().chain(shown).chain(last), ui.available_width()) <= rows
    };
    let chips = |room: f32| named.clone().map(|entry| chip(entry, room)).collect::<Vec<Chip>>();
    let all = vec![true; sums.len()];
    // Names are shortened a little before a second row is used, and most if there is no further row.
    let forms = (1..=most_rows).flat_map(|rows| {
        let cut = if rows == most_rows { NAME_WIDTHS.len() } else { NAME_WIDTHS.len() - 2 };
        NAME_WIDTHS[..cut].iter().map(move |room| (rows, *room))
    });
    let fitting = forms.map(|(rows, room)| (rows, chips(room))).find(|(rows, chips)| fits(chips, &all, *rows));
    let (chips, shown) = match fitting {
        Some((_, chips)) => (chips, all),
        None => {
            // As many entries as possible, with names as long as the remaining space permits.
            let forms = NAME_WIDTHS.map(|room| {
                let chips = chips(room);
                let shown = largest_that_fit(&sums, |shown| fits(&chips, shown, most_rows));
                (chips, shown)
            });
            let count = |shown: &[bool]| shown.iter().filter(|is_shown| **is_shown).count();
            let best = forms.into_iter().rev().max_by_key(|(_, shown)| count(shown));
            best.unwrap_or_default()
        }
    };
    let mut clicked = None;
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        lead_ui(ui, when);
        for (((chip, (entry, bytes)), is_shown), exact) in chips.into_iter().zip(named).zip(shown).zip(exact) {
            if !is_shown {
                others.push(entry.colour, *bytes, exact);
                continue;
            }
            let sign = |painter: &Painter, rect: Rect| _ = painter.rect_filled(rect, 2.0, entry.colour);
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
        others.others_ui(ui, OTHERS, &format_share(others.bytes, total), sign);
    });
    clicked
}

const LETTERS: f32 = 13.0;
const OTHERS: &str = "others";
/// Distance of the first entry from the text before it, in points.
const AFTER_LEAD: f32 = 10.0;

/// Returns the width of the text before a legend, including the distance to the first entry; `None` without text.
fn lead_width(ui: &Ui, text: &str) -> Option<f32> {
    (!text.is_empty()).then(|| fit::width(ui, text, &FontId::proportional(LETTERS)) + AFTER_LEAD)
}

fn lead_ui(ui: &mut Ui, text: &str) {
    if !text.is_empty() {
        ui.label(RichText::new(text).size(LETTERS).weak());
        ui.add_space(AFTER_LEAD);
    }
}

#[derive(Default)]
struct Others {
    bytes: u64,
    /// The colour and text of each entry in the tooltip.
    lines: Vec<(Color32, String)>,
}

impl Others {
    fn push(&mut self, colour: Color32, bytes: u64, text: String) {
        self.bytes += bytes;
        self.lines.push((colour, text));
    }

    /// Shows a single entry for all omitted entries, which are listed on hover. Does nothing if none are omitted.
    fn others_ui(&self, ui: &mut Ui, name: &str, amount: &str, sign: impl Fn(&Painter, Rect)) {
        if self.lines.is_empty() {
            return;
        }
        Chip::new(ui, name, amount, false).show(ui, sign).on_hover_ui(|ui| {
            for (colour, text) in &self.lines {
                ui.horizontal(|ui| {
                    theme::swatch_ui(ui, *colour);
                    ui.label(text);
                });
            }
        });
    }
}

/// Returns, for each entry, whether it is among the largest `sums` that fit. Always shows at least one entry.
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

const MORE: &str = "more";

/// Shows the legend of the totals, with their values at some moment, in one row below the entries that follow the text
/// `when`; entries that do not fit are listed when the last one is hovered. `summary` describes the whole device;
/// `bands` is the total of the bands, `has_line` returns whether a total is drawn as a line, and the plot ends at `top`
/// bytes.
pub(crate) fn lines_ui(
    ui: &mut Ui,
    trace: &Trace,
    index: &DeviceIndex,
    summary: &DeviceSummary,
    (moment, when): (usize, &str),
    (bands, has_line, top): (Metric, impl Fn(Metric) -> bool, f64),
) {
    let shades = Shades::in_ui(ui);
    let totals = index.series.before_position(trace, moment);
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric == bands || has_line(*metric));
    // The last item left out has the highest rank; the capacity's is between.
    let rank = |metric: Metric| if metric == bands || metric == Metric::Reserved { 4 } else { 2 };
    let lines = metrics.map(|metric| (metric.name(), shades.metric(metric), totals.get(metric), rank(metric)));
    let name = if summary.capacity_is_inferred { "capacity (inferred)" } else { "capacity" };
    let is_in_view = summary.capacity_bytes > 0 && summary.capacity_bytes as f64 <= top;
    let capacity = is_in_view.then(|| (name, shades.capacity(), summary.capacity_bytes, 3));
    let lines: Vec<_> = lines.chain(capacity).collect();
    let texts = lines.iter().map(|(name, _, bytes, _)| (name.replace('_', " "), format_bytes(*bytes)));
    let chips: Vec<Chip> = texts.map(|(name, amount)| Chip::new(ui, &name, &amount, true)).collect();
    let widths: Vec<f32> = chips.iter().map(Chip::width).collect();
    let (ranks, lead): (Vec<u64>, _) = (lines.iter().map(|(.., rank)| *rank).collect(), lead_width(ui, when));
    let more = Chip::new(ui, MORE, "", false).width();
    let shown = largest_that_fit(&ranks, |shown| {
        let last = shown.contains(&false).then_some(more);
        let shown = widths.iter().zip(shown).filter(|(_, is_shown)| **is_shown).map(|(width, _)| *width);
        rows_of(lead.into_iter().chain(shown).chain(last), ui.available_width()) <= 1
    });
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        // Aligned with the entries above, whose text names the moment.
        ui.add_space(lead.unwrap_or_default());
        let mut others = Others::default();
        for ((chip, (name, stroke, bytes, _)), is_shown) in chips.into_iter().zip(&lines).zip(shown) {
            if !is_shown {
                let text = format!("{}: {}", name.replace('_', " "), format_bytes(*bytes));
                others.push(stroke.color, *bytes, text);
                continue;
            }
            chip.show(ui, |painter, rect| {
                let y = if *name == bands.name() { rect.top() + 2.0 } else { rect.center().y };
                if *name == bands.name() {
                    painter.rect_filled(rect.with_min_y(y), 0.0, theme::NEUTRAL);
                }
                if *name != bands.name() || has_line(bands) {
                    painter.hline(rect.x_range(), y, Stroke::new(2.0, stroke.color));
                }
            });
        }
        others.others_ui(ui, MORE, "", |_, _| ());
    });
}

/// A symbol, its meaning and its amount. A line break is possible only between chips.
pub(crate) struct Chip {
    name: Arc<Galley>,
    amount: Arc<Galley>,
    colour: Color32,
}

impl Chip {
    const GAP: f32 = 5.0;
    /// Maximum width of the meaning in points; a longer text is truncated, so that no name dominates the layout.
    const MAX_NAME: f32 = 220.0;

    /// Lays out the texts, in a paler colour unless `is_present`.
    pub(crate) fn new(ui: &Ui, name: &str, amount: &str, is_present: bool) -> Self {
        Self::within(ui, name, amount, is_present, Self::MAX_NAME)
    }

    /// Like [`new`](Self::new), with a name of at most `room` points.
    fn within(ui: &Ui, name: &str, amount: &str, is_present: bool, room: f32) -> Self {
        let shades = Shades::in_ui(ui);
        let font = FontId::proportional(LETTERS);
        let colour = if is_present { shades.strong } else { shades.faint };
        let name = fitted(ui, name, &font, room).unwrap_or_default().into_owned();
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

    /// Shows the chip like [`show`](Self::show); if `sense` includes clicks, the chip is a button.
    pub(crate) fn show_as(self, ui: &mut Ui, sign: impl Fn(&Painter, Rect), sense: Sense) -> Response {
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

/// The cause of a total's peak on a device, as text; see [`cause_text`].
pub(crate) fn peak_cause(recording: &Recording, device: usize, metric: Metric) -> Option<String> {
    let (index, trace) = (&recording.devices[device], &recording.trace);
    let cause = index.cause(&recording.source, metric);
    cause_text(trace, &index.peak(trace, metric), cause, index.leaked(trace, metric))
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
