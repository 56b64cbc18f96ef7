//! Legend: what the colours mean, and how much of the moment's total each has.

use eframe::egui::{Label, RichText, Sense, Ui, WidgetInfo, WidgetType, vec2};
use highwater_snapshots::analysis::Totals;
use highwater_snapshots::analysis::bands::Stack;
use highwater_snapshots::units::format_bytes;

use super::block::swatch_ui;
use super::colouring::Colouring;
use super::theme::{self, Shades};
use highwater_snapshots::analysis::Metric;

/// Each line of the legend with its bytes in `stack`; the bytes add up to the stack's total.
pub fn bytes_by_entry(colouring: &Colouring, stack: &Stack) -> Vec<u64> {
    let mut sums = vec![0; colouring.entries.len()];
    for (block, bytes) in &stack.bands {
        sums[colouring.entry(*block)] += bytes.end - bytes.start;
    }
    sums
}

/// Shows the legend with the shares of `stack`, wrapped into as many rows as it needs.
pub fn legend_ui(ui: &mut Ui, colouring: &Colouring, stack: &Stack) {
    let sums = bytes_by_entry(colouring, stack);
    let total = stack.total();
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(5.0, 2.0);
        for (entry, &bytes) in colouring.entries.iter().zip(&sums) {
            let shown = ui.horizontal(|ui| {
                swatch_ui(ui, entry.colour);
                let name = if bytes > 0 { RichText::new(&entry.name) } else { RichText::new(&entry.name).weak() };
                ui.add(Label::new(name));
                ui.add(Label::new(RichText::new(share(bytes, total)).weak()));
                ui.add_space(7.0);
            });
            let label = format!("Legend: {} {}", entry.name, share(bytes, total));
            let response = shown.response.interact(Sense::hover());
            response.widget_info(|| WidgetInfo::labeled(WidgetType::Label, true, &label));
            response.on_hover_text(format!("{}: {} of {}", entry.name, format_bytes(bytes), format_bytes(total)));
        }
    });
}

/// Shows what the lines over the bands mean, with each total at the moment.
pub fn lines_ui(ui: &mut Ui, totals: &Totals, capacity: u64, is_sampled: bool) {
    let shades = Shades::in_ui(ui);
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    let lines = metrics.map(|metric| (metric.name(), shades.metric(metric), totals.get(metric)));
    let capacity = (capacity > 0).then(|| ("capacity", shades.capacity(), capacity));
    for (name, stroke, bytes) in lines.chain(capacity) {
        let (rect, _) = ui.allocate_exact_size(vec2(16.0, theme::SWATCH), Sense::hover());
        ui.painter().hline(rect.x_range(), rect.center().y, stroke);
        ui.label(name.replace('_', " "));
        ui.add(Label::new(RichText::new(format_bytes(bytes)).weak()));
        ui.add_space(7.0);
    }
}

/// A share of a total, as people read it: `61%`, `0.4%`, `0%`.
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
        assert_eq!([share(0, 9), share(1, 1_000_000), share(1, 200), share(1, 3), share(3, 3)], ["0%", "<0.1%", "0.5%", "33%", "100%"]);
        assert_eq!(share(0, 0), "0%");
    }
}
