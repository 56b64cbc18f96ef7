//! The legend of colours, with the share of each in the moment's total.

use std::sync::Arc;

use eframe::egui::{Context, FontId, Painter, Rect, Response, Role, Sense, Stroke, Ui, Vec2, WidgetInfo, pos2, vec2};
use highwater_analysis::{Metric, Totals};
use highwater_snapshots::units::format_bytes;

use crate::gui::views::colouring::Colouring;
use crate::gui::widgets::theme::{self, Shades};
use crate::gui::widgets::worker::Worker;
use crate::session::Recording;

/// A moment of a recording, with its colouring.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The recording.
    pub recording: Arc<Recording>,
    /// Row of the device.
    pub device: usize,
    /// The drawn total.
    pub metric: Metric,
    /// Events that have happened by then.
    pub moment: usize,
    /// The colours.
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
    /// The bytes of each legend entry; they add up to the total.
    pub fn bytes_by_entry(&self) -> Vec<u64> {
        let trace = &self.recording.trace;
        let blocks = &trace.blocks;
        let sizes = if self.metric == Metric::Requested { &blocks.requested } else { &blocks.allocated };
        let mut sums = vec![0; self.colouring.entries.len()];
        for block in self.recording.devices[self.device].live.before_position(trace, self.metric, self.moment) {
            if let Some(sum) = sums.get_mut(self.colouring.entry(block)) {
                *sum += sizes[block.0 as usize];
            }
        }
        sums
    }
}

/// The legend's shares, computed on a background thread: a moment may have a million live blocks.
#[derive(Debug)]
pub struct Shares {
    worker: Worker<Asked, (Asked, Vec<u64>)>,
    known: Option<(Asked, Vec<u64>)>,
}

impl Default for Shares {
    fn default() -> Self {
        let worker = Worker::new("highwater-legend", |asked: Asked, _| {
            let sums = asked.bytes_by_entry();
            Some((asked, sums))
        });
        Self { worker, known: None }
    }
}

impl Shares {
    /// Asks for the shares at a moment, unless they were asked for last.
    pub fn ask(&mut self, ctx: &Context, asked: &Asked) {
        if let Some(known) = self.worker.take_newest() {
            self.known = Some(known);
        }
        self.worker.ask_once(ctx, asked);
    }

    /// Shows the legend with the latest known shares until new ones are ready.
    pub fn legend_ui(&self, ui: &mut Ui) {
        if let Some((asked, sums)) = &self.known {
            legend_ui(ui, &asked.colouring, sums);
        }
    }

    /// Whether they are being computed.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// Waits until they are known. For tests, and for pictures without a window.
    pub fn wait(&mut self) {
        if let Some(known) = self.worker.wait() {
            self.known = Some(known);
        }
    }
}

/// Shows the legend with each line's bytes, wrapped into as many rows as it needs.
pub fn legend_ui(ui: &mut Ui, colouring: &Colouring, sums: &[u64]) {
    let total = sums.iter().sum();
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        for (entry, &bytes) in colouring.entries.iter().zip(sums) {
            let sign = |painter: &Painter, rect: Rect| {
                painter.rect_filled(rect, 2.0, entry.colour);
            };
            let response = chip_ui(ui, sign, &entry.name, &share(bytes, total), bytes > 0);
            response.on_hover_text(format!("{}: {} of {}", entry.name, format_bytes(bytes), format_bytes(total)));
        }
    });
}

/// Shows the legend of the lines over the bands, with each total at the moment.
pub fn lines_ui(ui: &mut Ui, totals: &Totals, capacity: u64, is_sampled: bool) {
    let shades = Shades::in_ui(ui);
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    let lines = metrics.map(|metric| (metric.name(), shades.metric(metric), totals.get(metric)));
    let capacity = (capacity > 0).then(|| ("capacity", shades.capacity(), capacity));
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        for (name, stroke, bytes) in lines.chain(capacity) {
            let sign = |painter: &Painter, rect: Rect| {
                painter.hline(rect.x_range(), rect.center().y, Stroke::new(2.0, stroke.color));
            };
            chip_ui(ui, sign, &name.replace('_', " "), &format_bytes(bytes), true);
        }
    });
}

/// A symbol, its meaning and its amount, kept together so that rows wrap between chips.
pub(crate) fn chip_ui(
    ui: &mut Ui,
    sign: impl Fn(&Painter, Rect),
    name: &str,
    amount: &str,
    is_present: bool,
) -> Response {
    const GAP: f32 = 5.0;
    let shades = Shades::in_ui(ui);
    let font = FontId::proportional(13.0);
    let colour = if is_present { shades.strong } else { shades.faint };
    let name_galley = ui.painter().layout_no_wrap(name.to_owned(), font.clone(), colour);
    let amount_galley = ui.painter().layout_no_wrap(amount.to_owned(), font, shades.faint);
    let width = theme::SWATCH + name_galley.size().x + amount_galley.size().x + 2.0 * GAP + 14.0;
    let (rect, response) = ui.allocate_exact_size(vec2(width, theme::ROW_HEIGHT), Sense::hover());
    let middle = rect.center().y;
    let field = Rect::from_center_size(pos2(rect.left() + theme::SWATCH / 2.0, middle), Vec2::splat(theme::SWATCH));
    sign(ui.painter(), field);
    let place = pos2(field.right() + GAP, middle - name_galley.size().y / 2.0);
    let beside = pos2(place.x + name_galley.size().x + GAP, place.y);
    ui.painter().galley(place, name_galley, colour);
    ui.painter().galley(beside, amount_galley, shades.faint);
    let label = format!("{name} {amount}");
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
    response
}

/// A share of a total, formatted as `61%`, `0.4%` or `0%`.
pub fn share(bytes: u64, total: u64) -> String {
    if bytes == 0 || total == 0 {
        return "0%".to_owned();
    }
    let percent = bytes as f64 / total as f64 * 100.0;
    match percent {
        10.0.. => format!("{percent:.0}%"),
        0.1.. => format!("{percent:.1}%"),
        _ => "<0.1%".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_short_and_never_vanish() {
        assert_eq!(
            [share(0, 9), share(1, 1_000_000), share(1, 200), share(1, 3), share(3, 3)],
            ["0%", "<0.1%", "0.5%", "33%", "100%"]
        );
        assert_eq!(share(0, 0), "0%");
    }
}
