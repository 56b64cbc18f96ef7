//! A strip with a small cell for each open file and device, or for each rank of a folder, which shows its peak to scale
//! and marks outliers.

mod cells;

use eframe::egui::{
    Align2, Color32, FontId, Id, Key, Painter, Rect, Response, Role, ScrollArea, Sense, Shape, Stroke, StrokeKind, Ui,
    WidgetInfo, pos2, vec2,
};
use highwater_analysis::Metric;
use highwater_snapshots::format_bytes;

use self::cells::{Cell, Known, cells};
use crate::answers::outliers::Standing;
use crate::gui::views::timeline::paint_cross;
use crate::gui::widgets::{Shades, fit, pressed_keys, theme};

pub(crate) use self::cells::{CellPlace, ShownCell};

#[derive(Debug, Default)]
pub(crate) struct Ranks {
    cells: Vec<Cell>,
    known: Option<(Known, Metric)>,
    /// The cell to which the strip was last scrolled.
    shown: Option<CellPlace>,
}

const SAMPLES: usize = 64;
const NARROWEST: f32 = 11.0;
const WIDEST: f32 = 170.0;
/// Minimum width, in points, of a cell with a curve next to its bar.
const WITH_CURVE: f32 = 56.0;
const BAR_WIDTH: f32 = 12.0;
const PLOT_HEIGHT: f32 = 34.0;
const NAME_HEIGHT: f32 = 14.0;
/// Candidate distances between labels, in cells, used if not all labels fit.
const STRIDES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

impl Ranks {
    /// Shows the strip if there are several cells. Returns the cell that the user selects; `in_front` is the current
    /// one.
    pub(crate) fn ranks_ui(
        &mut self,
        ui: &mut Ui,
        shown: ShownCell<'_>,
        metric: Metric,
        in_front: Option<CellPlace>,
    ) -> Option<CellPlace> {
        self.refresh(shown, metric);
        if self.cells.len() < 2 {
            return None;
        }
        let front = self.cells.iter().position(|cell| Some(cell.place) == in_front);
        let mut action = None;
        let width = (ui.available_width() / self.cells.len() as f32).clamp(NARROWEST, WIDEST).floor();
        let area = ScrollArea::horizontal().id_salt("ranks").auto_shrink([false, true]);
        area.show(ui, |ui| {
            let size = vec2(width * self.cells.len() as f32, PLOT_HEIGHT + NAME_HEIGHT + 2.0);
            let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
            // Its own name keeps the focus whatever widgets appear around it.
            let strip = ui.interact(rect, Id::unique("strip of ranks"), Sense::focusable_noninteractive());
            let words = format!("Ranks: {} of {}", front.map_or(0, |row| row + 1), self.cells.len());
            strip.widget_info(|| WidgetInfo::labeled(Role::TabList, true, &words));
            action = walk(ui, &strip, front, self.cells.len()).map(|row| self.cells[row].place);
            let place =
                |row: usize| Rect::from_min_size(rect.min + vec2(row as f32 * width, 0.0), vec2(width, rect.height()));
            if let Some(row) = front
                && self.shown != in_front
            {
                ui.scroll_to_rect(place(row), None);
                self.shown = in_front;
            }
            let top = self.top();
            let labels = labelled(ui, &self.cells, width);
            for (row, cell) in self.cells.iter().enumerate() {
                let place = place(row);
                if !ui.is_rect_visible(place) {
                    continue;
                }
                let response = ui.interact(place, strip.id.with(row), Sense::CLICK);
                let is_front = front == Some(row);
                let oom = if cell.failed > 0 { ", out of memory" } else { "" };
                let label = format!("{}: peak {}{oom}", cell.name, format_bytes(cell.peak));
                response.widget_info(|| WidgetInfo::selected(Role::Tab, true, is_front, &label));
                if response.clicked() {
                    strip.request_focus();
                    action = Some(cell.place);
                }
                paint(ui, place, cell, top, (is_front, is_front && strip.has_focus(), response.hovered()));
                if let Some(text) = &labels[row] {
                    paint_label(ui.painter(), place, text, is_front, &Shades::in_ui(ui));
                }
                response.on_hover_ui(|ui| {
                    ui.set_max_width(theme::TOOLTIP_WIDTH);
                    ui.label(cell.words(metric));
                });
            }
        });
        action
    }

    fn refresh(&mut self, shown: ShownCell<'_>, metric: Metric) {
        let known = Some((Known::of(shown), metric));
        if self.known != known {
            self.known = known;
            let count = self.cells.len();
            self.cells = cells(shown, metric);
            // Where others have appeared, cells have another place.
            self.shown = self.shown.filter(|_| self.cells.len() == count);
        }
    }

    /// Returns the bytes at the upper edge: the capacity, or less if the bars would be too low to compare.
    fn top(&self) -> u64 {
        let most = |of: fn(&Cell) -> u64| self.cells.iter().map(of).max().unwrap_or(0);
        let (peak, capacity) = (most(|cell| cell.peak), most(|cell| cell.capacity));
        if capacity >= peak && capacity / 4 <= peak { capacity } else { peak }.max(1)
    }
}

/// Handles keys while the strip has the keyboard focus. Returns the row selected by them, if it is another one.
fn walk(ui: &Ui, strip: &Response, front: Option<usize>, count: usize) -> Option<usize> {
    let pressed = pressed_keys(ui, strip, [true, false])?;
    let by = pressed(Key::ArrowRight) - pressed(Key::ArrowLeft);
    let last = count as i64 - 1;
    let now = front.map_or(0, |row| row as i64);
    let next = match (pressed(Key::Home), pressed(Key::End)) {
        (1.., _) => 0,
        (_, 1..) => last,
        _ => (now + by).clamp(0, last),
    };
    (next != now).then_some(next as usize)
}

/// The label of each cell: all names if they fit, otherwise numbers at regular intervals, to avoid overlap.
fn labelled(ui: &Ui, cells: &[Cell], width: f32) -> Vec<Option<String>> {
    let measured = |text: &str| fit::width(ui, text, &FontId::proportional(10.5)) + 6.0;
    let long = |cell: &Cell| format!("{}  {}", cell.name, format_bytes(cell.peak));
    for text in [long, |cell: &Cell| cell.name.clone()] {
        if cells.iter().all(|cell| measured(&text(cell)) <= width) {
            return cells.iter().map(|cell| Some(text(cell))).collect();
        }
    }
    let widest = cells.iter().map(|cell| measured(&cell.short)).fold(0.0, f32::max);
    let stride = STRIDES.into_iter().find(|stride| *stride as f32 * width >= widest).unwrap_or(cells.len());
    cells.iter().enumerate().map(|(row, cell)| (row % stride == 0).then(|| cell.short.clone())).collect()
}

fn paint_label(painter: &Painter, place: Rect, text: &str, is_front: bool, shades: &Shades) {
    let colour = if is_front { shades.strong } else { shades.faint };
    let at = pos2(place.left() + 2.0, place.bottom() - 1.0);
    painter.text(at, Align2::LEFT_BOTTOM, text, FontId::proportional(10.5), colour);
}

fn paint(ui: &Ui, place: Rect, cell: &Cell, top: u64, (is_front, has_focus, is_hovered): (bool, bool, bool)) {
    let shades = Shades::in_ui(ui);
    let painter = ui.painter().with_clip_rect(place.intersect(ui.clip_rect()));
    let mut plot = place.shrink2(vec2(if place.width() < 24.0 { 1.0 } else { 3.0 }, 0.0));
    plot.min.y += 1.0;
    plot.max.y = plot.min.y + PLOT_HEIGHT;
    if is_front || is_hovered {
        painter.rect_filled(place, 2.0, if is_front { shades.chosen } else { shades.bar.gamma_multiply(0.6) });
    }
    let height = |bytes: u64| (bytes as f64 / top as f64).min(1.0) as f32 * plot.height();
    let has_curve = place.width() >= WITH_CURVE;
    let bar_width = if has_curve { BAR_WIDTH } else { plot.width() };
    let bar = Rect::from_min_size(plot.min, vec2(bar_width, plot.height()));
    painter.rect_filled(bar, 1.0, shades.bar.gamma_multiply(0.5));
    let colour = if cell.standing == Standing::Usual { shades.faint } else { shades.warning };
    let upto = |bytes: u64| Rect::from_min_max(pos2(bar.left(), bar.bottom() - height(bytes)), bar.max);
    painter.rect_filled(upto(cell.peak), 1.0, colour);
    hatch(&painter, upto(cell.baseline), shades.canvas);
    if has_curve {
        let left = bar.right() + 4.0;
        let step = (plot.right() - left) / (cell.curve.len().max(2) - 1) as f32;
        let points = cell.curve.iter().enumerate();
        let points = points.map(|(n, &bytes)| pos2(left + n as f32 * step, plot.bottom() - height(bytes))).collect();
        painter.add(Shape::line(points, Stroke::new(1.0, colour)));
    }
    if cell.standing != Standing::Usual {
        // Marked by more than colour.
        painter.text(
            pos2(bar.center().x, plot.top()),
            Align2::CENTER_TOP,
            "!",
            FontId::proportional(11.0),
            shades.canvas,
        );
    }
    if cell.failed > 0 {
        // Beside the curve, or on the bar below the outlier's mark.
        let at = if has_curve { plot.right_top() + vec2(-6.0, 6.0) } else { plot.center() };
        paint_cross(&painter, at, 4.0, &shades);
    }
    if is_front {
        let width = if has_focus { 2.0 } else { 1.0 };
        painter.rect_stroke(place, 2.0, Stroke::new(width, shades.strong), StrokeKind::Inside);
    }
}

/// Paints diagonal lines over the memory that was live before the recording.
fn hatch(painter: &Painter, rect: Rect, colour: Color32) {
    const DISTANCE: f32 = 4.0;
    if rect.height() < 1.0 {
        return;
    }
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    let mut x = rect.left() - rect.height();
    while x < rect.right() {
        painter.line_segment(
            [pos2(x, rect.bottom()), pos2(x + rect.height(), rect.top())],
            Stroke::new(1.2, colour.gamma_multiply(0.75)),
        );
        x += DISTANCE;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use eframe::egui::Vec2;
    use eframe::egui::accesskit::Toggled;
    use egui_kittest::Harness;
    use egui_kittest::kittest::{NodeT as _, Queryable as _};
    use highwater_notation::trace_from_text;

    use std::sync::Arc;

    use super::*;
    use crate::session::Recording;

    fn recording(rank: u32, mebibytes: u64) -> Arc<Recording> {
        let text = format!("baseline w 1000\nalloc a {}\nfree a\n", mebibytes << 20);
        let trace = trace_from_text(&text).unwrap().edited(|trace| trace.header.rank = Some(rank));
        Arc::new(Recording::new(format!("r{rank}.snap"), None, trace))
    }

    fn harness(files: Vec<Arc<Recording>>, width: f32) -> (Harness<'static>, Rc<RefCell<CellPlace>>) {
        let front = Rc::new(RefCell::new(CellPlace { file: 0, device: 0 }));
        let (shown, mut ranks) = (Rc::clone(&front), Ranks::default());
        let mut harness = Harness::builder().with_size(Vec2::new(width, 80.0)).build_ui(move |ui| {
            let files: Vec<&Arc<Recording>> = files.iter().collect();
            let now = *shown.borrow();
            if let Some(place) = ranks.ranks_ui(ui, ShownCell::Files(&files), Metric::Requested, Some(now)) {
                *shown.borrow_mut() = place;
            }
        });
        harness.run_steps(2);
        (harness, front)
    }

    #[test]
    fn cells_stand_in_the_order_of_ranks_and_are_brought_to_the_front_by_click_and_by_key() {
        let files = vec![recording(2, 1000), recording(0, 1000), recording(1, 3000), recording(3, 1000)];
        let (mut harness, front) = harness(files.clone(), 700.0);
        harness.get_by_label("Ranks: 3 of 4");
        let cell = |harness: &Harness<'_>, label: &str| harness.get_by_role_and_label(Role::Tab, label).rect();
        let (first, last) = (cell(&harness, "rank 0: peak 1000.00 MiB"), cell(&harness, "rank 3: peak 1000.00 MiB"));
        assert!(first.right() < last.left(), "{first:?} {last:?}");
        harness.get_by_label("rank 1: peak 2.93 GiB").click();
        harness.run_steps(2);
        assert_eq!(*front.borrow(), CellPlace { file: 2, device: 0 });
        harness.key_press(Key::ArrowRight);
        harness.run_steps(3);
        assert_eq!(*front.borrow(), CellPlace { file: 0, device: 0 });
        harness.key_press(Key::End);
        harness.run_steps(3);
        assert_eq!(*front.borrow(), CellPlace { file: 3, device: 0 });
        let node = harness.get_by_label("rank 3: peak 1000.00 MiB");
        assert!(node.accesskit_node().toggled() == Some(Toggled::True));
    }

    #[test]
    fn a_rank_that_stands_out_is_reported_in_words() {
        let files: Vec<_> = (0..8).map(|rank| recording(rank, if rank == 5 { 1812 } else { 1000 })).collect();
        let mut ranks = Ranks::default();
        ranks.refresh(ShownCell::Files(&files.iter().collect::<Vec<_>>()), Metric::Requested);
        let words: Vec<String> = ranks.cells.iter().map(|cell| cell.words(Metric::Requested)).collect();
        assert!(words[5].ends_with("This is 812 MiB above the median of 8 ranks."), "{}", words[5]);
        assert!(words[4].ends_with("; it was 1000 B before the recording."), "{}", words[4]);
    }

    #[test]
    fn many_ranks_are_all_there_and_their_labels_do_not_meet() {
        let files: Vec<_> = (0..128).map(|rank| recording(rank, 1000)).collect();
        let (harness, _) = harness(files.clone(), 1500.0);
        assert_eq!(harness.get_all_by_role(Role::Tab).count(), 128);
        let mut ranks = Ranks::default();
        ranks.refresh(ShownCell::Files(&files.iter().collect::<Vec<_>>()), Metric::Requested);
        let shown: Vec<usize> = {
            let found = Rc::new(RefCell::new(Vec::new()));
            let (heard, cells) = (Rc::clone(&found), ranks.cells.clone());
            let mut harness = Harness::new_ui(move |ui| *heard.borrow_mut() = labelled(ui, &cells, NARROWEST));
            harness.run_steps(1);
            found.borrow().iter().enumerate().filter(|(_, label)| label.is_some()).map(|(row, _)| row).collect()
        };
        assert!(shown.len() >= 16 && shown.windows(2).all(|pair| pair[1] - pair[0] >= 2), "{shown:?}");
    }

    #[test]
    fn one_device_alone_has_no_strip_and_a_closed_recording_is_not_kept() {
        let file = recording(0, 10);
        let (harness, _) = harness(vec![Arc::clone(&file)], 300.0);
        assert!(harness.query_by_label_contains("Ranks").is_none());
        let other = recording(1, 10);
        let mut ranks = Ranks::default();
        ranks.refresh(ShownCell::Files(&[&file, &other]), Metric::Requested);
        assert_eq!((ranks.cells.len(), Arc::strong_count(&other)), (2, 1));
    }
}
