//! The parts of the peak as a stacked bar.

use eframe::egui::{
    Color32, FontId, Painter, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};
use highwater_analysis::explain::CategoryAndPhase;
use highwater_analysis::{Composition, Filter, GroupKey, Moment, PeakPiece};
use highwater_snapshots::{count_of, format_bytes, format_count, format_share};

use super::{Looks, is_in_force, only};
use crate::figures::moment::total_name;
use crate::gui::legend::Chip;
use crate::gui::views::view::Action;
use crate::gui::widgets::{Shades, fit, theme};
use crate::report::column_of;

/// Pieces below this share of the whole, in thousandths, are left out of the legend.
const MIN_ENTRY: u64 = 4;
/// Distance between the lines of a pattern, in points.
const PERIOD: f32 = 5.0;

/// Shows the bar, and a legend of the pieces that have no room for their labels, without the smallest ones. If
/// `can_click`, a click selects the blocks of a piece. Shares refer to the peak; pieces outside of blocks have none.
pub(super) fn bar_ui(
    ui: &mut Ui,
    composition: &Composition,
    peak: &Moment,
    looks: Looks<'_>,
    (filter, can_click): (&Filter, bool),
) -> Option<Action> {
    if composition.bytes == 0 {
        return None;
    }
    let shades = Shades::in_ui(ui);
    let name = |piece: PeakPiece| looks.name(piece.name());
    let pieces: Vec<(PeakPiece, u64, Color32)> = coloured(composition, looks, &shades);
    let whole = format!("{} {}", format_bytes(composition.bytes), total_name(composition.metric));
    let (rect, bar) = ui.allocate_exact_size(vec2(ui.available_width(), theme::PIECES_HEIGHT), Sense::hover());
    let count = count_of(pieces.len() as u64, "piece");
    let of = if peak.is_state { "state" } else { "peak" };
    bar.widget_info(|| WidgetInfo::labeled(Role::Group, true, format!("Composition of the {of}: {count}, {whole}")));
    let mut action = None;
    let condition = |piece: PeakPiece| piece.condition().filter(|_| can_click);
    let sense = |piece: PeakPiece| if condition(piece).is_some() { Sense::click() } else { Sense::hover() };
    let mut piece_ui = |ui: &Ui, response: Response, (piece, bytes): (PeakPiece, u64)| {
        let label = label_of(&name(piece), piece, bytes, peak);
        let Some(condition) = condition(piece) else {
            response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &label));
            return drop(response.on_hover_text(label));
        };
        let is_chosen = is_in_force(&condition, filter);
        response.widget_info(|| WidgetInfo::selected(Role::Button, true, is_chosen, &label));
        if response.hovered() || response.has_focus() || is_chosen {
            ui.painter().rect_stroke(response.rect, 1.0, Stroke::new(1.5, shades.strong), StrokeKind::Inside);
        }
        if response.clicked() {
            action = Some(only(&condition, filter));
        }
        response.on_hover_text(format!("{label}\nClick to show only these blocks, again to show all."));
    };
    let mut before = 0_u64;
    let x = |bytes: u64| rect.left() + (f64::from(rect.width()) * bytes as f64 / composition.bytes as f64) as f32;
    let is_entry = |bytes: u64| u128::from(bytes) * 1000 >= u128::from(composition.bytes) * u128::from(MIN_ENTRY);
    let (mut rest, size) = (Vec::new(), column_of(pieces.iter().map(|(_, bytes, _)| *bytes)));
    for (row, &(piece, bytes, colour)) in pieces.iter().enumerate() {
        let place = Rect::from_x_y_ranges(x(before)..=x(before + bytes), rect.y_range());
        before += bytes;
        paint(ui.painter(), place, (piece, colour), &shades);
        let part = part_of(piece, bytes, peak).map_or_else(String::new, |share| format!("  {share}"));
        let (name, size) = (name(piece), size(bytes));
        let amount = format!("{size}{part}");
        let forms = [format!("{name}  {amount}"), format!("{name}  {size}")];
        if label_ui(ui, place, &forms, colour) || !is_entry(bytes) {
            piece_ui(ui, ui.interact(place, bar.id.with(row), sense(piece)), (piece, bytes));
        } else {
            rest.push((piece, bytes, colour, amount));
        }
    }
    if rest.is_empty() {
        return action;
    }
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        for (piece, bytes, colour, amount) in rest {
            let sign = |painter: &Painter, rect: Rect| paint(painter, rect, (piece, colour), &shades);
            let chip = Chip::new(ui, &name(piece), &amount, true).show_as(ui, sign, sense(piece));
            piece_ui(ui, chip, (piece, bytes));
        }
    });
    action
}

/// Describes a piece, such as `gradient made in backward: 2.00 GiB (2,147,483,648 B), 25% of 8.00 GiB requested`.
fn label_of(name: &str, piece: PeakPiece, bytes: u64, peak: &Moment) -> String {
    let part = part_of(piece, bytes, peak).map(|part| format!(", {part} of {}", base(peak)));
    format!("{name}: {} ({} B){}", format_bytes(bytes), format_count(bytes), part.unwrap_or_default())
}

/// The total to which all shares refer, such as `8.00 GiB requested`.
fn base(peak: &Moment) -> String {
    format!("{} {}", format_bytes(peak.bytes), total_name(peak.metric))
}

/// Returns the share of a piece in the peak; `None` for pieces outside of live blocks.
fn part_of(piece: PeakPiece, bytes: u64, peak: &Moment) -> Option<String> {
    matches!(piece, PeakPiece::Blocks(_)).then(|| format_share(bytes, peak.bytes))
}

/// Returns every piece with its colour, which is that of its category in the timeline, darker for each further phase;
/// grey if the timeline is coloured by another key.
fn coloured(composition: &Composition, looks: Looks<'_>, shades: &Shades) -> Vec<(PeakPiece, u64, Color32)> {
    let (mut last, mut colour) = (None, theme::NEUTRAL);
    let look = |(piece, bytes): &(PeakPiece, u64)| {
        let PeakPiece::Blocks(CategoryAndPhase { category, .. }) = piece else { return (*piece, *bytes, shades.bar) };
        let of_category = || looks.colour(GroupKey::Category, category.name()).unwrap_or(theme::NEUTRAL);
        colour = if last == Some(*category) { theme::edge(colour) } else { of_category() };
        last = Some(*category);
        (*piece, *bytes, colour)
    };
    composition.pieces.iter().map(look).collect()
}

/// Paints a piece. Pieces outside of live blocks have a pattern, so that they can be distinguished without colours:
/// vertical lines for rounding, diagonal stripes for blocks awaiting free, horizontal lines for free memory, and a
/// frame for memory outside the allocator.
fn paint(painter: &Painter, rect: Rect, (piece, colour): (PeakPiece, Color32), shades: &Shades) {
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    // A gap to the next piece, if there is room.
    let inner = rect.with_max_x(rect.right() - if rect.width() > 4.0 { 1.0 } else { 0.0 });
    painter.rect_filled(inner, 0.0, colour);
    let line = Stroke::new(1.0, shades.faint);
    let steps = |length: f32| (0..=(length / PERIOD) as usize).map(|step| step as f32 * PERIOD);
    match piece {
        PeakPiece::Blocks(_) => {}
        PeakPiece::Rounding => {
            for x in steps(inner.width()) {
                painter.vline(inner.left() + x, inner.y_range(), line);
            }
        }
        PeakPiece::Waiting => {
            let height = inner.height();
            for x in steps(inner.width() + height) {
                let foot = pos2(inner.left() + x - height, inner.bottom());
                painter.line_segment([foot, foot + vec2(height, -height)], line);
            }
        }
        PeakPiece::Free => {
            for y in steps(inner.height()) {
                painter.hline(inner.x_range(), inner.top() + y, Stroke::new(1.0, shades.grid));
            }
        }
        PeakPiece::Outside => {
            painter.rect_filled(inner, 0.0, shades.canvas);
            painter.rect_stroke(inner, 0.0, line, StrokeKind::Inside);
        }
    }
}

/// Writes the first of `forms` on a piece for which there is room. Returns whether there is one.
fn label_ui(ui: &Ui, place: Rect, forms: &[String], colour: Color32) -> bool {
    const MARGIN: f32 = 4.0;
    let (room, font, ink) = (place.width() - 2.0 * MARGIN, FontId::proportional(12.0), theme::ink(colour));
    let fitting = forms.iter().find(|words| fit::width(ui, words, &font) <= room);
    if let Some(words) = fitting {
        let galley = ui.painter().layout_no_wrap(words.clone(), font, ink);
        let at = pos2(place.left() + MARGIN, place.center().y - galley.size().y / 2.0);
        // Patterns stay clear of letters.
        let ground = Rect::from_min_size(at, galley.size()).expand2(vec2(2.0, 0.0));
        ui.painter().rect_filled(ground, 2.0, colour);
        ui.painter().galley(at, galley, ink);
    }
    fitting.is_some()
}
