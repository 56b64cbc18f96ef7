//! Paints headings, rows and cells of a table.

use eframe::egui::{
    self, Align2, FontId, Id, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};

use highwater_analysis::diff::Change;

use super::{Cell, ShownColumn, TableState, Touched, keys};
use crate::gui::widgets::fit::{self, fitted};
use crate::gui::widgets::theme::{self, Shades};
use crate::gui::widgets::words::capital;
use crate::report::Unit;

/// Space on both sides of a number in its cell, in points.
const NUMBER_MARGIN: f32 = 14.0;

pub(super) struct Frame<'a> {
    pub label: &'a str,
    pub columns: &'a [ShownColumn<'a>],
    /// The left edges of the columns, relative to the table's, followed by the right end of the last one.
    pub across: Vec<f32>,
    /// The horizontal scroll distance of all columns that are not pinned, in points.
    pub aside: f32,
    pub rows: usize,
    pub body: Rect,
    pub id: Id,
}

impl Frame<'_> {
    /// Returns whether a column stays in place when the others are scrolled. True for the first column, which names the
    /// rows, unless it takes more than half of the width.
    fn is_pinned(&self, index: usize, rows: Rect) -> bool {
        index == 0 && self.across.get(1).is_some_and(|end| *end <= rows.width() / 2.0)
    }

    fn column(&self, index: usize, rows: Rect) -> Rect {
        let edge = |index: usize| rows.left() + self.across.get(index).copied().unwrap_or(0.0);
        let whole = Rect::from_min_max(pos2(edge(index), rows.top()), pos2(edge(index + 1), rows.bottom()));
        if self.is_pinned(index, rows) { whole } else { whole.translate(vec2(-self.aside, 0.0)) }
    }

    /// The part of a column that is not covered by the first one.
    fn seen(&self, index: usize, rows: Rect) -> Rect {
        let left = if index > 0 && self.is_pinned(0, rows) { self.column(0, rows).right() } else { rows.left() };
        self.column(index, rows).intersect(rows.with_min_x(left))
    }

    fn column_at(&self, x: f32, rows: Rect) -> Option<usize> {
        (0..self.columns.len()).find(|index| self.column(*index, rows).x_range().contains(x))
    }

    /// Paints the headings. Returns whether one was clicked, which sorts by its column, first in descending order.
    pub(super) fn heads_ui(&self, ui: &Ui, rect: Rect, state: &mut TableState) -> bool {
        let shades = Shades::in_ui(ui);
        let label = self.label;
        let head = Rect::from_min_size(rect.min, vec2(rect.width(), theme::ROW_HEIGHT));
        let mut is_resorted = false;
        for (index, column) in self.columns.iter().enumerate() {
            let (whole, place) = (self.column(index, head), self.seen(index, head));
            if !is_shown(column, whole, place) {
                continue;
            }
            let sense = if column.is_sortable { Sense::click() } else { Sense::hover() };
            let response = ui.interact(place, self.id.with(("head", index)), sense);
            let order = state.sort.filter(|(by, _)| *by == index).map(|(_, is_falling)| is_falling);
            // Words instead of symbols: the built-in fonts lack arrows.
            let title = capital(column.data.title);
            let text = match order {
                Some(true) => format!("{title} (largest first)"),
                Some(false) => format!("{title} (smallest first)"),
                None => title.clone(),
            };
            if column.is_sortable {
                response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Sort {label} by {text}")));
            } else {
                response.widget_info(|| WidgetInfo::labeled(Role::ColumnHeader, true, &title));
            }
            if column.is_sortable && response.clicked() {
                state.sort = Some((index, order != Some(true)));
                (state.first, state.chosen, is_resorted) = (0, None, true);
            }
            let mark = match order {
                Some(true) => " v",
                Some(false) => " ^",
                None => "",
            };
            let colour = match index {
                _ if order.is_some() || response.hovered() => shades.strong,
                0 => shades.text(),
                _ => shades.faint,
            };
            let painter = ui.painter().with_clip_rect(place);
            let format = egui::TextFormat::simple(FontId::proportional(12.0), colour);
            let text = format!("{title}{mark}");
            let galley = fit::line(&painter, text, format, (whole.width() - 8.0).max(8.0));
            let (anchor, at) = match column.data.unit.is_numeric() {
                true => (Align2::RIGHT_CENTER, pos2(figure_right(column, whole), whole.center().y)),
                false => (Align2::LEFT_CENTER, whole.left_center() + vec2(6.0, 0.0)),
            };
            painter.galley(anchor.anchor_size(at, galley.size()).min, galley, colour);
            if response.has_focus() {
                painter.rect_stroke(place, 2.0, Stroke::new(1.0, shades.strong), StrokeKind::Inside);
            }
            let has_none = column.tooltip.is_empty();
            response.on_hover_text(if has_none { &title } else { column.tooltip });
        }
        ui.painter().hline(rect.x_range(), head.bottom(), Stroke::new(1.0, shades.grid));
        is_resorted
    }

    /// Paints the visible rows. Returns the widget of the selected row; `None` unless it is visible.
    pub(super) fn rows_ui(
        &self,
        ui: &Ui,
        response: &Response,
        state: &mut TableState,
        row_of: impl Fn(usize) -> Option<usize>,
        touched: &mut Touched,
    ) -> Option<Id> {
        let shades = Shades::in_ui(ui);
        let body = self.body;
        let in_view = (body.height() / theme::ROW_HEIGHT).round().max(1.0) as usize;
        let pointer = ui.input(|input| input.pointer.hover_pos());
        let mut chosen = None;
        for row in state.first..self.rows.min(state.first.saturating_add(in_view)) {
            let top = body.top() + (row - state.first) as f32 * theme::ROW_HEIGHT;
            let whole = Rect::from_min_size(pos2(body.left(), top), vec2(body.width(), theme::ROW_HEIGHT));
            let place = whole.intersect(body);
            // The table has the focus, not each of its rows: Tab leaves it at once.
            let on_row = ui.interact(place, self.id.with(row), Sense::CLICK);
            if on_row.clicked() {
                response.request_focus();
                (state.chosen, touched.chosen) = (Some(row), Some(row));
                let at = on_row.interact_pointer_pos();
                touched.column = at.and_then(|at| self.column_at(at.x, whole));
            }
            if on_row.double_clicked() {
                touched.opened = Some(row);
            }
            if on_row.hovered() {
                touched.hovered = Some(row);
            }
            let is_chosen = state.chosen == Some(row);
            if is_chosen || on_row.hovered() {
                let colour = if is_chosen { shades.chosen } else { shades.bar.gamma_multiply(0.6) };
                ui.painter().rect_filled(place, 2.0, colour);
            }
            let mut words = Vec::with_capacity(self.columns.len());
            let mut tooltip = None;
            for (index, column) in self.columns.iter().enumerate() {
                let cell = row_of(row).map_or_else(Cell::default, |row| column.cell(row));
                let (whole, seen) = (self.column(index, whole), self.seen(index, whole).intersect(body));
                let is_cut = match is_shown(column, whole, seen) {
                    true => cell_ui(ui, whole, seen, column, &cell, &shades),
                    false => seen.is_positive(),
                };
                if is_cut && column.data.unit.is_numeric() && column.width > 0.0 {
                    let needed = fit::width(ui, &cell.text, &FontId::proportional(13.0)) + NUMBER_MARGIN;
                    if needed > state.needed[index] {
                        state.needed[index] = needed;
                        ui.ctx().request_discard("a number needs more room");
                    }
                }
                if on_row.hovered() && pointer.is_some_and(|pointer| seen.contains(pointer)) {
                    let more = row_of(row).and_then(|row| column.tooltip(row));
                    tooltip = match (is_cut, more) {
                        (true, Some(more)) if more != cell.text => Some(format!("{}\n{more}", cell.text)),
                        (true, _) => Some(cell.text.clone()),
                        (false, more) => more,
                    };
                }
                words.push(cell.whole.unwrap_or(cell.text));
            }
            if is_chosen {
                chosen = Some(on_row.id);
                if response.has_focus() {
                    ui.painter().rect_stroke(place, 2.0, Stroke::new(1.0, shades.faint), StrokeKind::Inside);
                }
                if keys::is_copying(ui, response) {
                    keys::copy(ui.ctx(), self.columns, &words);
                }
            }
            on_row.widget_info(|| WidgetInfo::selected(Role::Row, true, is_chosen, words.join(" · ")));
            ui.ctx().accesskit_node_builder(on_row.id, |node| node.set_row_index(row));
            if let Some(tooltip) = tooltip {
                on_row.on_hover_text_at_pointer(tooltip);
            }
        }
        chosen
    }
}

/// Returns the width that the heading of a column of numbers needs, with its sort mark; 0 for texts.
pub(super) fn head_width(ui: &Ui, column: &ShownColumn<'_>) -> f32 {
    if !column.data.unit.is_numeric() {
        return 0.0;
    }
    let mark = if column.is_sortable { " v" } else { "" };
    fit::width(ui, &format!("{}{mark}", capital(column.data.title)), &FontId::proportional(12.0)) + NUMBER_MARGIN
}

/// Returns whether to draw a cell at `whole` of which only `seen` is visible. A number with missing digits is not
/// drawn, since it would be misread.
fn is_shown(column: &ShownColumn<'_>, whole: Rect, seen: Rect) -> bool {
    let is_whole = seen.width() + 0.5 >= whole.width();
    seen.is_positive() && (is_whole || !column.data.unit.is_numeric())
}

/// Whether a column of differences has room for bars after its figures.
fn has_bar_after(column: &ShownColumn<'_>, whole: Rect) -> bool {
    column.data.unit == Unit::Difference && whole.width() > 2.0 * theme::DIFFERENCE_WIDTH
}

fn figure_right(column: &ShownColumn<'_>, whole: Rect) -> f32 {
    if has_bar_after(column, whole) { whole.left() + theme::DIFFERENCE_WIDTH - 6.0 } else { whole.right() - 6.0 }
}

/// Paints a cell in the rectangle `whole`, only `seen` of which is visible. Returns whether its text is truncated.
fn cell_ui(ui: &Ui, whole: Rect, seen: Rect, column: &ShownColumn<'_>, cell: &Cell, shades: &Shades) -> bool {
    let painter = ui.painter().with_clip_rect(seen);
    if let Some(share) = cell.share {
        let mut bar = whole.shrink2(vec2(1.0, 1.0));
        let figure = if column.data.unit == Unit::Number { theme::SHARE_WIDTH } else { theme::FIGURE_WIDTH };
        if column.data.unit.is_numeric() && bar.width() > 1.4 * figure {
            // Beside a figure there is room for a bar.
            bar = bar.with_max_x(bar.right() - figure).shrink2(vec2(4.0, 3.0));
        } else if column.data.unit.is_numeric() {
            // Below a figure, so that the bar ends in no digit.
            bar = bar.with_min_y(bar.bottom() - 3.0);
        }
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        bar.set_width((bar.width() * share).max(1.0));
        painter.rect_filled(bar, 2.0, cell.bar.unwrap_or(shades.bar));
    }
    let middle = whole.center().y;
    if let Some(share) = cell.diverging.filter(|_| has_bar_after(column, whole)) {
        let room = whole.with_min_x(whole.left() + theme::DIFFERENCE_WIDTH).shrink2(vec2(4.0, 3.0));
        let (from, to) = (room.center().x, room.center().x + room.width() / 2.0 * share.clamp(-1.0, 1.0));
        // The lighter of each pair in dark windows.
        let change = match (share > 0.0, ui.visuals().dark_mode) {
            (true, true) => Change::Grown,
            (true, false) => Change::OnlyInB,
            (false, true) => Change::Shrunk,
            (false, false) => Change::OnlyInA,
        };
        let bar = Rect::from_x_y_ranges(from.min(to)..=from.max(to).max(from.min(to) + 1.0), room.y_range());
        painter.rect_filled(bar, 1.0, cell.bar.unwrap_or(theme::change(change)));
        painter.rect_stroke(bar, 1.0, Stroke::new(1.0, shades.faint), StrokeKind::Inside);
        painter.vline(from, whole.y_range(), Stroke::new(1.0, shades.grid));
    }
    let mut left = whole.left() + 6.0;
    if let Some(colour) = cell.swatch {
        let field = vec2(theme::SWATCH, theme::SWATCH);
        painter.rect_filled(Rect::from_center_size(pos2(left + field.x / 2.0, middle), field), 2.0, colour);
        left += field.x + 6.0;
    }
    let colour = match cell {
        Cell { is_link: true, .. } => ui.visuals().hyperlink_color,
        Cell { is_faint: true, .. } => shades.faint,
        _ if column.data.unit.is_numeric() => shades.strong,
        _ => shades.text(),
    };
    let format = egui::TextFormat::simple(FontId::proportional(13.0), colour);
    let room = (whole.right() - left - 6.0).max(8.0);
    let text = fitted(ui, &cell.text, &format.font_id, room).unwrap_or_default();
    let is_shortened = *text != *cell.text;
    let galley = fit::line(&painter, text, format, room);
    let is_cut = is_shortened || galley.elided || seen.width() + 0.5 < whole.width();
    let x = if column.data.unit.is_numeric() { figure_right(column, whole) - galley.size().x } else { left };
    painter.galley(pos2(x, middle - galley.size().y / 2.0), galley, colour);
    is_cut
}

pub(super) fn handle(ui: &Ui, place: Rect, is_dragged: bool) {
    let shades = Shades::in_ui(ui);
    ui.painter().rect_filled(place, 3.0, if is_dragged { shades.faint } else { shades.grid });
}
