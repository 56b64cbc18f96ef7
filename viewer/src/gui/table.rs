//! Table: rows of which only those in view are laid out, however many there are; sortable, and walked by keyboard.

use eframe::egui::{
    self, Align2, Color32, EventFilter, FontId, Key, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo,
    pos2, vec2,
};

use super::theme::{self, Shades};

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
}

impl TableState {
    /// Chooses a row, as a click would, and brings it into view when the table is next shown.
    pub fn choose(&mut self, row: usize) {
        self.chosen = Some(row);
        self.first = row.saturating_sub(3);
    }
}

/// What the user did to a table in this frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The row under the pointer.
    pub hovered: Option<usize>,
    /// The row that was chosen, by click or by key.
    pub chosen: Option<usize>,
    /// The row that was double-clicked, or on which Enter was pressed.
    pub opened: Option<usize>,
    /// Whether [`TableState::sort`] has changed.
    pub is_resorted: bool,
}

/// Shows a table called `label` of `rows` rows in the room that there is. `cell` gives the cell of a row and column; it
/// is asked for rows in view only.
pub fn table_ui(
    ui: &mut Ui,
    label: &str,
    columns: &[Column],
    rows: usize,
    state: &mut TableState,
    cell: impl FnMut(usize, usize) -> Cell,
) -> Touched {
    let room = ui.available_size().max(vec2(120.0, 3.0 * theme::ROW_HEIGHT));
    let (rect, _) = ui.allocate_exact_size(room, Sense::hover());
    let mut body = rect;
    body.min.y += theme::ROW_HEIGHT;
    let id = ui.scope_id().with(("table", label));
    let in_view = (body.height() / theme::ROW_HEIGHT) as usize;
    let bar = Rect::from_min_max(pos2(rect.right() - theme::SCROLL_WIDTH, body.top()), rect.max);
    let mut touched = Touched::default();
    let across = widths(columns, rect.width() - theme::SCROLL_WIDTH - 2.0);
    touched.is_resorted = heads_ui(ui, rect, columns, &across, state, label);
    body.max.x = bar.left() - 2.0;
    let response = ui.interact(body, id, Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Table, true, format!("{label}: {rows} rows")));
    walk(ui, &response, rows, in_view, state, &mut touched);
    turn(ui, body, rows, in_view, state);
    scroll_bar_ui(ui, bar, rows, in_view, state, id);
    rows_ui(ui, &response, body, (columns, &across), rows, state, cell, &mut touched);
    touched
}

/// The left edges of the columns, relative to the table's, and after them the right end.
fn widths(columns: &[Column], room: f32) -> Vec<f32> {
    let fixed: f32 = columns.iter().map(|column| column.width).sum();
    let open = columns.iter().filter(|column| column.width == 0.0).count().max(1) as f32;
    let share = ((room - fixed) / open).max(60.0);
    let mut edges = vec![0.0];
    let mut edge = 0.0;
    for column in columns {
        edge += if column.width == 0.0 { share } else { column.width };
        edges.push(edge);
    }
    edges
}

/// The headings; whether one was clicked, which sorts by it, first the largest, then the smallest.
fn heads_ui(ui: &Ui, rect: Rect, columns: &[Column], across: &[f32], state: &mut TableState, label: &str) -> bool {
    let shades = Shades::in_ui(ui);
    let mut is_resorted = false;
    for (row, column) in columns.iter().enumerate() {
        let place = Rect::from_min_max(
            pos2(rect.left() + across[row], rect.top()),
            pos2(rect.left() + across[row + 1], rect.top() + theme::ROW_HEIGHT),
        );
        let sense = if column.is_sortable { Sense::click() } else { Sense::hover() };
        let response = ui.interact(place, ui.scope_id().with((label, "head", row)), sense);
        let order = state.sort.filter(|(by, _)| *by == row).map(|(_, is_falling)| is_falling);
        // Words, not signs: the built-in fonts lack arrows.
        let text = match order {
            Some(true) => format!("{} (largest first)", column.name),
            Some(false) => format!("{} (smallest first)", column.name),
            None => column.name.to_owned(),
        };
        if column.is_sortable {
            response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Sort {label} by {text}")));
        }
        if column.is_sortable && response.clicked() {
            state.sort = Some((row, order != Some(true)));
            (state.first, state.chosen, is_resorted) = (0, None, true);
        }
        let painter = ui.painter().with_clip_rect(place.intersect(rect));
        let colour = if order.is_some() { shades.strong } else { shades.faint };
        let (anchor, at) = match column.is_number {
            true => (Align2::RIGHT_CENTER, place.right_center() - vec2(6.0, 0.0)),
            false => (Align2::LEFT_CENTER, place.left_center() + vec2(6.0, 0.0)),
        };
        let mark = match order {
            Some(true) => " v",
            Some(false) => " ^",
            None => "",
        };
        painter.text(at, anchor, format!("{}{mark}", column.name), FontId::proportional(12.0), colour);
        response.on_hover_text(column.tooltip);
    }
    let below = rect.top() + theme::ROW_HEIGHT;
    ui.painter().hline(rect.x_range(), below, Stroke::new(1.0, shades.grid));
    is_resorted
}

/// Follows the keys while the table has the keyboard.
fn walk(ui: &Ui, response: &Response, rows: usize, in_view: usize, state: &mut TableState, touched: &mut Touched) {
    if response.clicked() {
        response.request_focus();
    }
    if !response.has_focus() || rows == 0 {
        return;
    }
    let filter = EventFilter { tab: false, horizontal_arrows: false, vertical_arrows: true, escape: false };
    ui.memory_mut(|memory| memory.set_focus_lock_filter(response.id, filter));
    let pressed = |key| ui.input_mut(|input| input.count_and_consume_key(egui::Modifiers::NONE, key));
    let page = in_view.saturating_sub(1).max(1) as i64;
    let by = pressed(Key::ArrowDown) as i64 - pressed(Key::ArrowUp) as i64
        + page * (pressed(Key::PageDown) as i64 - pressed(Key::PageUp) as i64);
    let last = rows as i64 - 1;
    let now = state.chosen.map_or(if by >= 0 { -1 } else { 0 }, |row| row as i64);
    let next = match (pressed(Key::Home), pressed(Key::End)) {
        (1.., _) => 0,
        (_, 1..) => last,
        _ if by != 0 => (now + by).clamp(0, last),
        _ => now,
    };
    if next != now && next >= 0 {
        let next = next as usize;
        (state.chosen, touched.chosen) = (Some(next), Some(next));
        state.first = state.first.min(next).max((next + 1).saturating_sub(in_view));
    }
    if pressed(Key::Enter) > 0 {
        touched.opened = state.chosen;
    }
}

/// Follows the wheel.
fn turn(ui: &Ui, body: Rect, rows: usize, in_view: usize, state: &mut TableState) {
    if ui.rect_contains_pointer(body) {
        let turned = ui.input(|input| input.smooth_scroll_delta().y);
        state.turned += turned / theme::ROW_HEIGHT;
        let whole = state.turned.trunc();
        state.turned -= whole;
        state.first = (state.first as i64 - whole as i64).max(0) as usize;
    }
    state.first = state.first.min(rows.saturating_sub(in_view));
}

fn scroll_bar_ui(ui: &Ui, bar: Rect, rows: usize, in_view: usize, state: &mut TableState, id: egui::Id) {
    if rows <= in_view {
        return;
    }
    let shades = Shades::in_ui(ui);
    let response = ui.interact(bar, id.with("bar"), Sense::click_and_drag());
    let handle = (bar.height() * in_view as f32 / rows as f32).max(18.0);
    let way = (bar.height() - handle).max(1.0);
    let most = rows - in_view;
    if let Some(at) = response.interact_pointer_pos() {
        let share = f64::from((at.y - bar.top() - handle / 2.0) / way).clamp(0.0, 1.0);
        state.first = (share * most as f64).round() as usize;
    }
    let top = bar.top() + way * (state.first as f64 / most as f64) as f32;
    let place = Rect::from_min_size(pos2(bar.left() + 2.0, top), vec2(bar.width() - 4.0, handle));
    let colour = if response.hovered() || response.dragged() { shades.faint } else { shades.grid };
    ui.painter().rect_filled(place, 3.0, colour);
}

#[expect(clippy::too_many_arguments, reason = "what a table is, once")]
fn rows_ui(
    ui: &Ui,
    response: &Response,
    body: Rect,
    (columns, across): (&[Column], &[f32]),
    rows: usize,
    state: &mut TableState,
    mut cell: impl FnMut(usize, usize) -> Cell,
    touched: &mut Touched,
) {
    let shades = Shades::in_ui(ui);
    let in_view = (body.height() / theme::ROW_HEIGHT).ceil() as usize;
    for row in state.first..rows.min(state.first + in_view) {
        let top = body.top() + (row - state.first) as f32 * theme::ROW_HEIGHT;
        let whole = Rect::from_min_size(pos2(body.left(), top), vec2(body.width(), theme::ROW_HEIGHT));
        let place = whole.intersect(body);
        let on_row = ui.interact(place, response.id.with(row), Sense::click());
        if on_row.clicked() {
            response.request_focus();
            (state.chosen, touched.chosen) = (Some(row), Some(row));
        }
        if on_row.double_clicked() {
            touched.opened = Some(row);
        }
        if on_row.hovered() {
            touched.hovered = Some(row);
        }
        let is_chosen = state.chosen == Some(row);
        if is_chosen || on_row.hovered() {
            ui.painter().rect_filled(
                place,
                2.0,
                if is_chosen { shades.chosen } else { shades.bar.gamma_multiply(0.6) },
            );
        }
        if is_chosen && response.has_focus() {
            ui.painter().rect_stroke(place, 2.0, Stroke::new(1.0, shades.faint), StrokeKind::Inside);
        }
        let mut words = Vec::with_capacity(columns.len());
        for (index, column) in columns.iter().enumerate() {
            let cell = cell(row, index);
            let left = body.left() + across[index];
            let right = (body.left() + across[index + 1]).min(body.right());
            let room = Rect::from_min_max(pos2(left, whole.top()), pos2(right, whole.bottom())).intersect(body);
            cell_ui(ui, room, whole.center().y, column, &cell, &shades);
            words.push(cell.text);
        }
        on_row.widget_info(|| WidgetInfo::selected(Role::Row, true, is_chosen, words.join(" · ")));
    }
}

fn cell_ui(ui: &Ui, room: Rect, middle: f32, column: &Column, cell: &Cell, shades: &Shades) {
    let painter = ui.painter().with_clip_rect(room);
    if let Some(share) = cell.share {
        let mut bar = room.shrink2(vec2(1.0, 1.0));
        bar.set_width((bar.width() * share.clamp(0.0, 1.0)).max(1.0));
        painter.rect_filled(bar, 2.0, shades.bar);
    }
    let mut left = room.left() + 6.0;
    if let Some(colour) = cell.swatch {
        let field = vec2(theme::SWATCH, theme::SWATCH);
        painter.rect_filled(Rect::from_center_size(pos2(left + field.x / 2.0, middle), field), 2.0, colour);
        left += field.x + 6.0;
    }
    let colour = if cell.is_faint { shades.faint } else { shades.strong };
    let format = egui::TextFormat::simple(FontId::proportional(13.0), colour);
    let mut job = egui::text::LayoutJob::single_section(cell.text.clone(), format);
    job.break_on_newline = false;
    job.wrap = egui::text::TextWrapping::truncate_at_width((room.right() - left - 6.0).max(8.0));
    let galley = painter.layout_job(job);
    let x = if column.is_number { room.right() - 6.0 - galley.size().x } else { left };
    painter.galley(pos2(x, middle - galley.size().y / 2.0), galley, colour);
}

/// The table as comma-separated values, headings first; text in quotes, numbers bare.
pub fn csv(columns: &[Column], rows: usize, mut cell: impl FnMut(usize, usize) -> String) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut out = columns.iter().map(|column| quoted(column.name)).collect::<Vec<_>>().join(",") + "\n";
    for row in 0..rows {
        let line = columns.iter().enumerate().map(|(index, column)| {
            let text = cell(row, index);
            if column.is_number && text.parse::<f64>().is_ok() { text } else { quoted(&text) }
        });
        out += &(line.collect::<Vec<_>>().join(",") + "\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [
        Column { name: "name", tooltip: "", width: 0.0, is_number: false, is_sortable: true },
        Column { name: "bytes", tooltip: "", width: 90.0, is_number: true, is_sortable: true },
    ];

    #[test]
    fn values_with_commas_and_quotes_come_back_from_csv() {
        let rows = [["a \"b\", c", "12"], ["d", "1 KiB"]];
        let text = csv(&COLUMNS, rows.len(), |row, column| rows[row][column].to_owned());
        assert_eq!(text, "\"name\",\"bytes\"\n\"a \"\"b\"\", c\",12\n\"d\",\"1 KiB\"\n");
    }

    #[test]
    fn columns_share_the_room_that_fixed_ones_leave() {
        assert_eq!(widths(&COLUMNS, 400.0), [0.0, 310.0, 400.0]);
    }
}
