//! A sortable table with keyboard navigation that lays out only the rows in view.

mod keys;
mod paint;

use std::io::{self, Write};

use eframe::egui::{self, Color32, Rect, Role, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

use super::theme;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// What it holds, in a sentence.
    pub tooltip: &'static str,
    /// Its width in points; 0 takes what the others leave.
    pub width: f32,
    /// Whether its cells are numbers, which stand at the right.
    pub is_number: bool,
    /// Whether rows can be sorted by it.
    pub is_sortable: bool,
}

/// What one cell shows.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Its text, on one line.
    pub text: String,
    /// A field of this colour before the text.
    pub swatch: Option<Color32>,
    /// A bar behind the text, from 0 to 1 of the cell's width.
    pub share: Option<f32>,
    /// Whether it matters less than others.
    pub is_faint: bool,
    /// Whether a click on it leads elsewhere.
    pub is_link: bool,
    /// Whether the end of its text tells most: where there is no room for all, the beginning is left out.
    pub keeps_end: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// What a table remembers from frame to frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableState {
    /// The first row in view. Counted in rows: points would lose the last digits of a place among millions.
    pub first: usize,
    /// The chosen row.
    pub chosen: Option<usize>,
    /// The column that rows are sorted by, and whether the largest come first.
    pub sort: Option<(usize, bool)>,
    /// What of a row the wheel has turned and `first` does not show yet.
    turned: f32,
    /// How far columns are moved to the left, in points, where not all have room.
    aside: f32,
    /// Where the handle of the scroll bar is held, in points below its top.
    grip: Option<f32>,
    /// The row to bring into view when the table is next shown.
    due: Option<usize>,
    /// Whether the table takes the keyboard focus when next shown.
    wants_focus: bool,
}

impl TableState {
    /// Chooses a row, as a click would, and brings it into view when the table is next shown.
    pub fn choose(&mut self, row: usize) {
        self.chosen = Some(row);
        self.reveal(row);
    }

    /// Moves the keyboard focus to the table when it is next shown.
    pub fn focus(&mut self) {
        self.wants_focus = true;
    }

    /// Brings a row into view when the table is next shown; where it is in view already, nothing moves.
    pub fn reveal(&mut self, row: usize) {
        self.due = Some(row);
    }

    /// Scrolls so that the row that is due is in view, a few rows from the top if it was not.
    fn settle(&mut self, rows: usize, in_view: usize) {
        if let Some(row) = self.due.take().filter(|row| *row < rows)
            && !(self.first..self.first.saturating_add(in_view)).contains(&row)
        {
            self.first = row.saturating_sub(3.min(in_view / 2));
        }
        self.first = self.first.min(rows.saturating_sub(in_view));
        self.chosen = self.chosen.filter(|row| *row < rows);
    }
}

/// What the user did to a table in this frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The row under the pointer.
    pub hovered: Option<usize>,
    /// The row that was chosen, by click or by key.
    pub chosen: Option<usize>,
    /// The column that was clicked in it.
    pub column: Option<usize>,
    /// The row that was double-clicked, or on which Enter was pressed.
    pub opened: Option<usize>,
    /// Whether [`TableState::sort`] has changed.
    pub is_resorted: bool,
}

/// Shows a table called `label` of `rows` rows in the available space. `cell` gives the cell of a row and column; it
/// is asked for rows in view only.
pub fn table_ui(
    ui: &mut Ui,
    label: &str,
    columns: &[Column],
    rows: usize,
    state: &mut TableState,
    cell: impl FnMut(usize, usize) -> Cell,
) -> Touched {
    table_with_tips_ui(ui, label, columns, rows, state, (cell, |_, _| None))
}

/// Like [`table_ui`]; the second function says more about a cell, which is shown when the pointer rests on it. It is
/// asked for that cell only. A cell whose text is cut off shows all of it in any case.
pub fn table_with_tips_ui(
    ui: &mut Ui,
    label: &str,
    columns: &[Column],
    rows: usize,
    state: &mut TableState,
    (cell, tip): (impl FnMut(usize, usize) -> Cell, impl FnMut(usize, usize) -> Option<String>),
) -> Touched {
    let room = ui.available_size().max(vec2(120.0, 3.0 * theme::ROW_HEIGHT));
    let (rect, _) = ui.allocate_exact_size(room, Sense::hover());
    let id = ui.scope_id().with(("table", label));
    let bar = Rect::from_min_max(pos2(rect.right() - theme::SCROLL_WIDTH, rect.top() + theme::ROW_HEIGHT), rect.max);
    let columns_rect = Rect::from_min_max(rect.min, pos2(bar.left() - 2.0, rect.max.y));
    let across = widths(columns, columns_rect.width());
    let width = across.last().copied().unwrap_or(0.0);
    let most_aside = (width - columns_rect.width()).max(0.0);
    let below = if most_aside > 0.5 { theme::SCROLL_WIDTH } else { 0.0 };
    let body = Rect::from_min_max(pos2(rect.left(), bar.top()), columns_rect.max - vec2(0.0, below));
    let in_view = ((body.height() / theme::ROW_HEIGHT) as usize).max(1);
    // What is shown here is another row's when the table scrolls: that is as it should be.
    ui.ctx().allow_widget_id_changes_in(rect);
    let response = ui.interact(body, id, Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Table, true, format!("{label}: {rows} rows")));
    if std::mem::take(&mut state.wants_focus) {
        response.request_focus();
    }
    // Rows and headings are told as parts of the table.
    let inside = UiBuilder::new().id_salt(("in table", label)).max_rect(rect).accessibility_parent(id);
    let mut inside = ui.new_child(inside);
    inside.set_clip_rect(ui.clip_rect().intersect(rect));
    let mut frame = paint::Frame { label, columns, across, rows, body, id };
    let mut touched = Touched { is_resorted: frame.heads_ui(&inside, columns_rect, state), ..Touched::default() };
    keys::walk(&inside, &response, (rows, in_view), state, &mut touched);
    state.settle(rows, in_view);
    turn(&inside, columns_rect, (rows, in_view), most_aside, state);
    scroll_bar_ui(&inside, bar, (rows, in_view), state, &format!("Scroll {label}"), id);
    if most_aside > 0.5 {
        let bar = Rect::from_min_max(pos2(rect.left(), body.bottom() + 1.0), columns_rect.max);
        aside_bar_ui(&inside, bar, columns_rect.width() / width, most_aside, state, id);
    }
    frame.across.iter_mut().for_each(|edge| *edge -= state.aside);
    let chosen = frame.rows_ui(&inside, &response, state, cell, tip, &mut touched);
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

/// The left edges of the columns, relative to the table's, and after them the right end.
fn widths(columns: &[Column], room: f32) -> Vec<f32> {
    let fixed: f32 = columns.iter().map(|column| column.width).sum();
    let open = columns.iter().filter(|column| column.width == 0.0).count().max(1) as f32;
    let share = ((room - fixed) / open).max(theme::LEAST_OPEN_COLUMN);
    let mut edges = vec![0.0];
    let mut edge = 0.0;
    for column in columns {
        edge += if column.width == 0.0 { share } else { column.width };
        edges.push(edge);
    }
    edges
}

/// Follows the wheel, which then turns nothing around the table.
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
    // Not reached by Tab: whoever uses the keyboard walks the rows.
    let response = ui.interact(bar, id.with("bar"), Sense::CLICK | Sense::DRAG);
    response.widget_info(|| WidgetInfo::labeled(Role::ScrollBar, true, name));
    let handle = (bar.height() * in_view as f32 / rows as f32).max(18.0).min(bar.height());
    let way = (bar.height() - handle).max(1.0);
    let most = rows - in_view;
    let top_of = |first: usize| bar.top() + way * (first as f64 / most as f64) as f32;
    if let Some(at) = response.interact_pointer_pos() {
        // Taken by the handle, it stays under the pointer; elsewhere its middle comes to the pointer.
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

/// The bar below a table whose columns do not all have room.
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

/// The table as CSV, headings first; text in quotes, numbers bare.
pub fn csv(columns: &[Column], rows: usize, cell: impl FnMut(usize, usize) -> String) -> String {
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = write_csv(&mut out, columns, rows, cell);
    String::from_utf8(out).unwrap_or_default()
}

/// Writes what [`csv`] gives, line by line: a table of millions of rows is never held as text.
pub fn write_csv(
    out: &mut impl Write,
    columns: &[Column],
    rows: usize,
    mut cell: impl FnMut(usize, usize) -> String,
) -> io::Result<()> {
    let write = |out: &mut dyn Write, index: usize, text: &str, is_number: bool| {
        out.write_all(if index > 0 { b"," } else { b"" })?;
        if is_number { out.write_all(text.as_bytes()) } else { write!(out, "\"{}\"", text.replace('"', "\"\"")) }
    };
    for (index, column) in columns.iter().enumerate() {
        write(out, index, column.name, false)?;
    }
    out.write_all(b"\n")?;
    for row in 0..rows {
        for (index, column) in columns.iter().enumerate() {
            let text = cell(row, index);
            write(out, index, &text, column.is_number && is_bare_number(&text))?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Whether `text` is a number in digits; `inf` and `nan`, which are read as numbers too, are words here.
fn is_bare_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.starts_with(|first: char| first.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests;
