//! Shows one column of a table as a bar chart; labels that do not fit are omitted, and hovering shows exact values.

use eframe::egui::{FontId, Rect, Role, Sense, Stroke, Ui, WidgetInfo, pos2, vec2};

use crate::gui::colouring::short_line;
use crate::gui::views::sheet::Sheet;
use crate::gui::widgets::{Shades, theme};

/// Shows column `measure` of a sheet as bars. Returns the row of the bar that was clicked. The bar of row `chosen` is
/// highlighted.
pub(super) fn bars_ui(ui: &mut Ui, sheet: &Sheet, measure: usize, chosen: Option<usize>) -> Option<usize> {
    let shades = Shades::in_ui(ui);
    let size = vec2(ui.available_width().max(60.0), theme::CHART_HEIGHT);
    let (rect, response) = ui.allocate_exact_size(size, Sense::CLICK);
    let length = |row: usize| sheet.length(row, measure).unwrap_or(0);
    let rows = sheet.lines.len();
    let largest = (0..rows).max_by_key(|row| (length(*row), std::cmp::Reverse(*row)));
    let name = sheet.columns.get(measure).map_or("", |column| column.name);
    let text_of = |row: usize| {
        let text = sheet.text(row, measure);
        let exact = sheet.exact(row, measure).filter(|exact| *exact != text);
        let exact = exact.map_or_else(String::new, |exact| format!(" ({exact})"));
        format!("{}: {text}{exact}", sheet.text(row, 0))
    };
    let label = match largest {
        Some(row) => format!("{}, {name}: {rows} bars, the largest at {}", sheet.name, text_of(row)),
        None => format!("{}, {name}: no bars", sheet.name),
    };
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &label));
    ui.painter().rect_filled(rect, 2.0, shades.canvas);
    let largest = largest?;
    let most = length(largest).max(1);
    let font = FontId::proportional(11.0);
    let text_height = ui.fonts_mut(|fonts| fonts.row_height(&font)) + 3.0;
    let plot = Rect::from_min_max(rect.min + vec2(0.0, text_height), rect.max - vec2(0.0, text_height));
    // Few bars are not stretched.
    let plot = plot.with_max_x(plot.right().min(plot.left() + rows as f32 * theme::WIDEST_BAR));
    let place = Place { left: plot.left(), width: plot.width(), rows };
    let over = response.hover_pos().filter(|at| plot.x_range().contains(at.x));
    let pointed = over.map(|at| place.largest_at(at.x, length));
    let chosen_x = chosen.map(|row| place.x(row));
    // Where bars are thinner than a point, each point shows the largest of its bars.
    let step = place.bar().max(1.0);
    let mut x = plot.left();
    while x < plot.right() - 0.01 {
        let row = place.largest_at(x + step / 2.0, length);
        let height = (length(row) as f64 / most as f64) as f32 * plot.height();
        let gap = if step > 3.0 { 1.0 } else { 0.0 };
        let bar = Rect::from_min_max(
            pos2(x, plot.bottom() - height),
            pos2((x + step - gap).min(plot.right()), plot.bottom()),
        );
        let is_chosen = chosen_x.is_some_and(|chosen| (x - 0.01..x + step - 0.01).contains(&chosen));
        let colour = if is_chosen || pointed == Some(row) { shades.strong } else { shades.curve };
        if length(row) > 0 {
            // Nonzero bars are always visible.
            ui.painter().rect_filled(
                Rect::from_min_max(pos2(bar.left(), bar.top().min(plot.bottom() - 1.0)), bar.max),
                0.0,
                colour,
            );
        }
        x += step;
    }
    let heading = format!("{name}, up to {}", sheet.text(largest, measure));
    ui.painter().text(rect.min + vec2(4.0, 1.0), eframe::egui::Align2::LEFT_TOP, heading, font.clone(), shades.faint);
    let mut free_from = plot.left();
    let layout = |row: usize| ui.painter().layout_no_wrap(short_line(&sheet.text(row, 0)), font.clone(), shades.faint);
    // Steps may begin after a row for the time before them.
    let first = usize::from(rows > 1 && sheet.text(0, 0).parse::<u32>().is_err());
    for row in (0..first).chain(place.labelled(first, layout(rows - 1).size().x + LABEL_GAP)) {
        let galley = layout(row);
        let middle = place.x(row) + place.bar() / 2.0;
        let left = (middle - galley.size().x / 2.0).max(plot.left());
        // Moved further, it would be under another bar.
        let is_under_bar = left + galley.size().x / 2.0 - middle <= MAX_MOVED.max(place.bar());
        if is_under_bar && left >= free_from && left + galley.size().x <= plot.right() {
            free_from = left + galley.size().x + LABEL_GAP;
            ui.painter().vline(middle, plot.bottom()..=plot.bottom() + TICK, Stroke::new(1.0, shades.faint));
            ui.painter().galley(pos2(left, plot.bottom() + TICK), galley, shades.faint);
        }
    }
    let is_clicked = response.clicked();
    if let Some(row) = pointed {
        response.on_hover_text_at_pointer(text_of(row));
    }
    pointed.filter(|_| is_clicked)
}

/// Maximum distance of a label at the left edge from the middle of its bar, in points.
const MAX_MOVED: f32 = 20.0;
/// Length of the line from a bar to its label, in points.
const TICK: f32 = 3.0;
/// Minimum distance between two labels, in points.
const LABEL_GAP: f32 = 8.0;

/// The layout of the bars.
struct Place {
    left: f32,
    width: f32,
    rows: usize,
}

impl Place {
    /// Width of a bar in points; may be far less than one.
    fn bar(&self) -> f32 {
        self.width / self.rows.max(1) as f32
    }

    /// The left edge of a bar.
    fn x(&self, row: usize) -> f32 {
        self.left + (f64::from(self.width) * row as f64 / self.rows.max(1) as f64) as f32
    }

    /// The row with the longest bar among those at `x`, within one point.
    fn largest_at(&self, x: f32, length: impl Fn(usize) -> u64) -> usize {
        let row = |x: f32| {
            let share = f64::from((x - self.left) / self.width).clamp(0.0, 1.0);
            ((share * self.rows as f64) as usize).min(self.rows.saturating_sub(1))
        };
        if self.bar() >= 1.0 {
            return row(x);
        }
        let point = self.left + (x - self.left).floor();
        let (first, end) = (row(point), row(point + 1.0).max(row(point) + 1));
        (first..end).max_by_key(|row| (length(*row), std::cmp::Reverse(*row))).unwrap_or(first)
    }

    /// The rows from `first` on to label, at regular intervals of 1, 2 or 5 times a power of ten, so that labels of
    /// `width` points do not overlap.
    fn labelled(&self, first: usize, width: f32) -> impl Iterator<Item = usize> + use<> {
        let least = (width / self.bar()).ceil().max(1.0) as usize;
        let power = 10_usize.pow(least.ilog10());
        let step = [1, 2, 5, 10].into_iter().map(|factor| factor * power).find(|step| *step >= least);
        (first..self.rows).step_by(step.unwrap_or(least))
    }
}

/// The text of the first column, by which bars are labelled.
pub(super) fn step_name(step: Option<u32>, is_before: bool) -> String {
    match (step, is_before) {
        (Some(step), _) => step.to_string(),
        (None, true) => "before".to_owned(),
        (None, false) => "outside".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_bars_thinner_than_a_point_the_largest_is_shown_and_each_row_lies_under_one_point() {
        let place = Place { left: 10.0, width: 100.0, rows: 10_000 };
        let length = |row: usize| if row == 4242 { 9 } else { 1 };
        assert_eq!(place.largest_at(10.0 + 42.5, length), 4242);
        assert_eq!(place.largest_at(10.0 + 43.5, length), 4300);
        let wide = Place { left: 0.0, width: 100.0, rows: 4 };
        assert_eq!([0.0, 24.0, 26.0, 99.0, 100.0].map(|x| wide.largest_at(x, |_| 1)), [0, 0, 1, 3, 3]);
    }

    #[test]
    fn labels_are_at_regular_round_distances_and_do_not_overlap() {
        let labelled = |rows: usize, first: usize| {
            Place { left: 0.0, width: 200.0, rows }.labelled(first, 20.0).collect::<Vec<_>>()
        };
        assert_eq!(labelled(10, 0), (0..10).collect::<Vec<_>>());
        assert_eq!(labelled(17, 1), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(labelled(10_000, 0), [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]);
    }
}
