//! A sortable table with keyboard navigation that lays out only the visible rows.

mod column;
mod keys;
mod paint;
mod sorted;

use eframe::egui::{self, Rect, Role, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};
use highwater_snapshots::count_of;

pub(crate) use column::{Cell, ShownColumn, ShownTable};
pub(crate) use sorted::SortedTable;

use crate::gui::widgets::theme;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableState {
    /// The index of the first visible row. A position in points would lose precision among millions of rows.
    pub first: usize,
    pub chosen: Option<usize>,
    /// The sort column, and whether the order is descending.
    pub sort: Option<(usize, bool)>,
    /// The fraction of a row scrolled by the wheel that `first` does not include yet.
    turned: f32,
    /// Horizontal scroll position in points, if not all columns fit.
    aside: f32,
    /// For each column of numbers, the width needed by the cells shown up to now, in points. Columns of names are
    /// narrowed if necessary.
    needed: Vec<f32>,
    /// The position at which the handle of the scroll bar was grabbed, in points from its top.
    grip: Option<f32>,
    /// The row to scroll to when the table is next shown.
    due: Option<usize>,
    wants_focus: bool,
}

impl TableState {
    /// Selects a row as if it were clicked, and scrolls to it when the table is next shown.
    pub(crate) fn choose(&mut self, row: usize) {
        self.chosen = Some(row);
        self.reveal(row);
    }

    pub(crate) fn focus(&mut self) {
        self.wants_focus = true;
    }

    /// Scrolls to a row when the table is next shown, unless it is already visible.
    pub(crate) fn reveal(&mut self, row: usize) {
        self.due = Some(row);
    }

    /// Scrolls to the pending row, placing it a few rows from the top if it was not visible.
    fn follow(&mut self, rows: usize, in_view: usize) {
        if let Some(row) = self.due.take().filter(|row| *row < rows)
            && !(self.first..self.first.saturating_add(in_view)).contains(&row)
        {
            self.first = row.saturating_sub(3.min(in_view / 2));
        }
        self.first = self.first.min(rows.saturating_sub(in_view));
        self.chosen = self.chosen.filter(|row| *row < rows);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    pub hovered: Option<usize>,
    /// The row that was selected, by click or by key.
    pub chosen: Option<usize>,
    /// The column in which the row was clicked.
    pub column: Option<usize>,
    /// The row that was double-clicked, or on which Enter was pressed.
    pub opened: Option<usize>,
    /// Whether [`TableState::sort`] has changed.
    pub is_resorted: bool,
}

/// Shows a table called `label` in the available space, with its rows in order. Only visible cells are computed. A
/// tooltip shows truncated text in full.
pub(crate) fn table_ui(ui: &mut Ui, label: &str, rows: &ShownTable<'_>, state: &mut TableState) -> Touched {
    shown_ui(ui, label, (&rows.columns, rows.count), state, Some)
}

/// Shows a table like [`table_ui`], with the rows ordered by `row_of`.
fn shown_ui(
    ui: &mut Ui,
    label: &str,
    (columns, rows): (&[ShownColumn<'_>], usize),
    state: &mut TableState,
    row_of: impl Fn(usize) -> Option<usize>,
) -> Touched {
    let room = ui.available_size().max(vec2(120.0, 3.0 * theme::ROW_HEIGHT));
    let (rect, _) = ui.allocate_exact_size(room, Sense::hover());
    let id = ui.scope_id().with(("table", label));
    let bar = Rect::from_min_max(pos2(rect.right() - theme::SCROLL_WIDTH, rect.top() + theme::ROW_HEIGHT), rect.max);
    let columns_rect = Rect::from_min_max(rect.min, pos2(bar.left() - 2.0, rect.max.y));
    state.needed.resize(columns.len(), 0.0);
    for (needed, column) in state.needed.iter_mut().zip(columns) {
        *needed = needed.max(paint::head_width(ui, column));
    }
    let across = widths(columns, &state.needed, columns_rect.width());
    let width = across.last().copied().unwrap_or(0.0);
    let most_aside = (width - columns_rect.width()).max(0.0);
    let below = if most_aside > 0.5 { theme::SCROLL_WIDTH } else { 0.0 };
    let body = Rect::from_min_max(pos2(rect.left(), bar.top()), columns_rect.max - vec2(0.0, below));
    let in_view = ((body.height() / theme::ROW_HEIGHT) as usize).max(1);
    // Only whole rows are shown, and a horizontal scroll bar is right below them.
    let height = in_view.min(rows.max(1)) as f32 * theme::ROW_HEIGHT;
    let body = body.with_max_y(body.bottom().min(body.top() + height));
    // Widgets are reused for other rows when the table scrolls, on purpose.
    ui.ctx().allow_widget_id_changes_in(rect);
    let response = ui.interact(body, id, Sense::click());
    response
        .widget_info(|| WidgetInfo::labeled(Role::Table, true, format!("{label}: {}", count_of(rows as u64, "row"))));
    if std::mem::take(&mut state.wants_focus) {
        response.request_focus();
    }
    // Rows and headings are children of the table in the accessibility tree.
    let inside = UiBuilder::new().id_salt(("in table", label)).max_rect(rect).accessibility_parent(id);
    let mut inside = ui.new_child(inside);
    inside.set_clip_rect(ui.clip_rect().intersect(rect));
    let mut frame = paint::Frame { label, columns, across, aside: state.aside, rows, body, id };
    let mut touched = Touched { is_resorted: frame.heads_ui(&inside, columns_rect, state), ..Touched::default() };
    keys::walk(&inside, &response, (rows, in_view), state, &mut touched);
    state.follow(rows, in_view);
    turn(&inside, columns_rect, (rows, in_view), most_aside, state);
    scroll_bar_ui(&inside, bar, (rows, in_view), state, &format!("Scroll {label}"), id);
    if most_aside > 0.5 {
        let bar = Rect::from_min_size(pos2(rect.left(), body.bottom() + 1.0), vec2(columns_rect.width(), below - 1.0));
        aside_bar_ui(&inside, bar, columns_rect.width() / width, most_aside, state, id);
    }
    frame.aside = state.aside;
    let chosen = frame.rows_ui(&inside, &response, state, row_of, &mut touched);
    let columns = columns.len();
    ui.ctx().accesskit_node_builder(id, |node| {
        node.set_row_count(rows);
        node.set_column_count(columns);
        if let Some(row) = chosen {
            node.set_active_descendant(row.accesskit_id());
        }
    });
    touched
}

/// The left edges of the columns, relative to the table's, followed by the right end of the last one.
fn widths(columns: &[ShownColumn<'_>], needed: &[f32], room: f32) -> Vec<f32> {
    let own =
        |(column, needed): (&ShownColumn<'_>, &f32)| if column.width == 0.0 { 0.0 } else { column.width.max(*needed) };
    let own: Vec<f32> = columns.iter().zip(needed).map(own).collect();
    let fixed: f32 = own.iter().sum();
    let open = columns.iter().filter(|column| column.width == 0.0).count().max(1) as f32;
    let has_bars = columns.iter().any(|column| column.has_bars);
    let mut share = (room - fixed) / open;
    if share < theme::MIN_OPEN_COLUMN {
        // The other columns can be scrolled.
        share = (room * 0.4).clamp(theme::MIN_OPEN_COLUMN, theme::NAMES_BEFORE_BARS);
    }
    if has_bars {
        // Bars get most of the space that names do not need.
        share -= (share - theme::NAMES_BEFORE_BARS).max(0.0) * 0.75;
        share = share.min(theme::MAX_OPEN_COLUMN);
    }
    let for_bars = (room - fixed - share * open).max(0.0);
    let mut edges = vec![0.0];
    let mut edge = 0.0;
    for (column, own) in columns.iter().zip(own) {
        edge += if column.width == 0.0 { share } else { own };
        edge += if column.has_bars { for_bars } else { 0.0 };
        edges.push(edge);
    }
    edges
}

/// Handles the mouse wheel. If the table can scroll, consumes the event, so that nothing around the table scrolls.
fn turn(ui: &Ui, rect: Rect, (rows, in_view): (usize, usize), most_aside: f32, state: &mut TableState) {
    if ui.rect_contains_pointer(rect) {
        let moved = ui.input(|input| input.smooth_scroll_delta);
        let can_turn = rows > in_view;
        if can_turn && moved.y != 0.0 {
            state.turned += moved.y / theme::ROW_HEIGHT;
            let whole = state.turned.trunc();
            state.turned -= whole;
            state.first = (state.first as i64).saturating_sub(whole as i64).max(0) as usize;
        }
        state.aside -= moved.x;
        ui.input_mut(|input| {
            if can_turn {
                input.smooth_scroll_delta.y = 0.0;
            }
            if most_aside > 0.0 {
                input.smooth_scroll_delta.x = 0.0;
            }
        });
    }
    state.aside = state.aside.clamp(0.0, most_aside);
    state.first = state.first.min(rows.saturating_sub(in_view));
}

fn scroll_bar_ui(
    ui: &Ui,
    bar: Rect,
    (rows, in_view): (usize, usize),
    state: &mut TableState,
    name: &str,
    id: egui::Id,
) {
    if rows <= in_view {
        return;
    }
    // Not reached by Tab: the keyboard navigates the rows.
    let response = ui.interact(bar, id.with("bar"), Sense::CLICK | Sense::DRAG);
    response.widget_info(|| WidgetInfo::labeled(Role::ScrollBar, true, name));
    let handle = (bar.height() * in_view as f32 / rows as f32).max(18.0).min(bar.height());
    let way = (bar.height() - handle).max(1.0);
    let most = rows - in_view;
    let top_of = |first: usize| bar.top() + way * (first as f64 / most as f64) as f32;
    if let Some(at) = response.interact_pointer_pos() {
        // Dragged by the handle, it stays under the pointer; elsewhere its middle jumps to the pointer.
        let below = at.y - top_of(state.first);
        let is_on_handle = (0.0..=handle).contains(&below);
        let grip = *state.grip.get_or_insert(if is_on_handle { below } else { handle / 2.0 });
        let share = f64::from((at.y - grip - bar.top()) / way).clamp(0.0, 1.0);
        state.first = (share * most as f64).round() as usize;
    } else {
        state.grip = None;
    }
    let place = Rect::from_min_size(pos2(bar.left() + 2.0, top_of(state.first)), vec2(bar.width() - 4.0, handle));
    paint::handle(ui, place, response.hovered() || response.dragged());
}

fn aside_bar_ui(ui: &Ui, bar: Rect, share: f32, most: f32, state: &mut TableState, id: egui::Id) {
    let response = ui.interact(bar, id.with("aside"), Sense::CLICK | Sense::DRAG);
    let handle = (bar.width() * share).clamp(18.0_f32.min(bar.width()), bar.width());
    let way = (bar.width() - handle).max(1.0);
    if let Some(at) = response.interact_pointer_pos() {
        state.aside = ((at.x - bar.left() - handle / 2.0) / way).clamp(0.0, 1.0) * most;
    }
    let left = bar.left() + way * state.aside / most;
    let place = Rect::from_min_size(pos2(left, bar.top() + 2.0), vec2(handle, bar.height() - 4.0));
    paint::handle(ui, place, response.hovered() || response.dragged());
}

#[cfg(test)]
mod tests;
