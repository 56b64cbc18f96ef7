//! Moment: who holds memory at one moment, as a table that adds up to the total.

use eframe::egui::{Align, ComboBox, FontId, Layout, RichText, Role, ScrollArea, Sense, Ui, WidgetInfo, vec2};
use highwater_snapshots::Category;
use highwater_snapshots::analysis::peak::Query;
use highwater_snapshots::analysis::{Breakdown, Filter, Group, GroupKey, Moment, Peak};
use highwater_snapshots::units::{format_bytes, format_count};

use super::block::moment_text;
use super::colouring::short_line;
use super::legend::share;
use super::scene::Reason;
use super::theme::{self, Shades};
use crate::session::Recording;

/// The panel's state: what to group by, and the table last made.
#[derive(Debug)]
pub struct MomentPanel {
    /// What blocks are grouped by.
    pub key: GroupKey,
    made: Option<(Moment, GroupKey, Filter, Breakdown)>,
}

impl Default for MomentPanel {
    fn default() -> Self {
        Self { key: GroupKey::Category, made: None }
    }
}

impl MomentPanel {
    /// The table of `moment` among the blocks that pass `filter`.
    pub fn breakdown(&mut self, recording: &Recording, device: usize, moment: Moment, filter: &Filter) -> &Breakdown {
        let is_made =
            |made: &(Moment, GroupKey, Filter, Breakdown)| made.0 == moment && made.1 == self.key && made.2 == *filter;
        if !self.made.as_ref().is_some_and(is_made) {
            let index = &recording.devices[device];
            let query = Query { keys: &[self.key], top: usize::MAX, filter };
            let peak = Peak::at(&recording.trace, &index.live, &index.series, moment, &query);
            self.made = Some((moment, self.key, filter.clone(), peak.breakdown));
        }
        &self.made.as_ref().expect("it was made just now").3
    }

    /// The table as comma-separated values, with a last line for the total.
    pub fn csv(&mut self, recording: &Recording, device: usize, moment: Moment, filter: &Filter) -> String {
        let key = self.key.name();
        let breakdown = self.breakdown(recording, device, moment, filter);
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let line = |group: &Group| format!("{},{},{}\n", quoted(&group.key.join(" ")), group.bytes, group.blocks);
        let lines: String = breakdown.groups.iter().map(line).collect();
        let blocks: u64 = breakdown.groups.iter().map(|group| group.blocks).sum();
        format!("{key},bytes,blocks\n{lines}\"total\",{},{blocks}\n", breakdown.total)
    }

    /// Shows the panel.
    pub fn moment_ui(
        &mut self,
        ui: &mut Ui,
        recording: &Recording,
        device: usize,
        (moment, reason): (Moment, Reason),
        filter: &Filter,
    ) {
        ui.horizontal(|ui| {
            let what = match reason {
                Reason::Peak => "At the peak",
                Reason::Pointer => "Under the pointer",
                Reason::Pinned => "At the pinned moment",
            };
            ui.label(RichText::new(what).weak());
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let chosen = ComboBox::from_id_salt("group by").selected_text(format!("by {}", self.key.name()));
                let shown = chosen.show_ui(ui, |ui| {
                    for &key in GroupKey::ALL {
                        ui.selectable_value(&mut self.key, key, key.name());
                    }
                });
                let label = format!("Group by {}", self.key.name());
                shown.response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, &label));
            });
        });
        ui.label(RichText::new(format_bytes(moment.bytes)).font(FontId::proportional(26.0)).strong());
        ui.label(
            RichText::new(format!("{} · {}", moment.metric.name().replace('_', " "), moment_text(&moment))).weak(),
        );
        if !filter.is_empty() {
            ui.label(RichText::new("Below: only blocks that meet the conditions.").weak());
        }
        ui.add_space(4.0);
        let key = self.key;
        let breakdown = self.breakdown(recording, device, moment, filter);
        let has_hints = reason == Reason::Peak;
        table_ui(ui, key, breakdown, if has_hints { theme::HINTS_HEIGHT } else { 0.0 });
        if has_hints {
            hints_ui(ui);
        }
    }
}

/// The groups, largest first, each with a bar as long as its share, and the total below them, which leaves `room_below`
/// free. Only rows in view are laid out.
fn table_ui(ui: &mut Ui, key: GroupKey, breakdown: &Breakdown, room_below: f32) {
    let rows = breakdown.groups.len();
    let most = breakdown.groups.first().map_or(1, |group| group.bytes.max(1));
    ui.spacing_mut().item_spacing.y = 1.0;
    let room = (ui.available_height() - 2.0 * theme::ROW_HEIGHT - room_below).max(4.0 * theme::ROW_HEIGHT);
    ScrollArea::vertical().id_salt("groups").max_height(room).auto_shrink([false, true]).show_rows(
        ui,
        theme::ROW_HEIGHT,
        rows,
        |ui, shown| {
            for group in &breakdown.groups[shown] {
                group_ui(ui, key, group, breakdown.total, most);
            }
        },
    );
    ui.separator();
    let blocks: u64 = breakdown.groups.iter().map(|group| group.blocks).sum();
    ui.horizontal(|ui| {
        let (groups, blocks) = (counted(rows as u64, "group"), counted(blocks, "block"));
        ui.strong(format!("Total of {groups}, {blocks}"));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.strong(format_bytes(breakdown.total)));
    });
}

/// A number of things: `1 block`, `2,000 blocks`.
fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", format_count(count))
}

/// What to do next, for those who see this for the first time.
fn hints_ui(ui: &mut Ui) {
    ui.add_space(14.0);
    ui.spacing_mut().item_spacing.y = 4.0;
    let hints = [
        "Each band is one block of memory, from its allocation to its free.",
        "Point at the picture to see who holds memory then; click a band to keep its block here.",
        "Wheel zooms, drag moves, double click shows a block's whole life.",
        "P shows the peak, F everything, F1 finds any command.",
    ];
    for hint in hints {
        ui.label(RichText::new(hint).weak().size(12.0));
    }
}

fn group_ui(ui: &mut Ui, key: GroupKey, group: &Group, total: u64, most: u64) {
    let shades = Shades::in_ui(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), theme::ROW_HEIGHT), Sense::hover());
    let full = group.key.join(" ");
    let painter = ui.painter().with_clip_rect(rect);
    let mut bar = rect.shrink2(vec2(0.0, 1.0));
    bar.set_width((rect.width() * (group.bytes as f64 / most as f64) as f32).max(1.0));
    painter.rect_filled(bar, 2.0, shades.bar);
    let font = FontId::proportional(13.0);
    let numbers = format!("{}   {:>5}", format_bytes(group.bytes), share(group.bytes, total));
    let numbers = painter.layout_no_wrap(numbers, font.clone(), shades.strong);
    let middle = |height: f32| rect.center().y - height / 2.0;
    let right = rect.right() - 4.0 - numbers.size().x;
    let mut left = rect.left() + 4.0;
    if key == GroupKey::Category
        && let Some(category) = Category::from_name(&full)
    {
        let field = eframe::egui::Rect::from_center_size(
            eframe::egui::pos2(left + theme::SWATCH / 2.0, rect.center().y),
            vec2(theme::SWATCH, theme::SWATCH),
        );
        painter.rect_filled(field, 2.0, theme::category(category));
        left += theme::SWATCH + 6.0;
    }
    let name = match key {
        GroupKey::Stack | GroupKey::Frame => short_line(full.lines().next().unwrap_or_default()),
        _ => full.clone(),
    };
    let mut job =
        eframe::egui::text::LayoutJob::single_section(name, eframe::egui::TextFormat::simple(font, shades.strong));
    job.wrap = eframe::egui::text::TextWrapping::truncate_at_width((right - left - 8.0).max(20.0));
    let name = painter.layout_job(job);
    painter.galley(eframe::egui::pos2(left, middle(name.size().y)), name, shades.strong);
    painter.galley(eframe::egui::pos2(right, middle(numbers.size().y)), numbers, shades.strong);
    let label = format!("{full}: {}", format_bytes(group.bytes));
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
    let blocks = format_count(group.blocks);
    response.on_hover_text(format!("{full}\n{} bytes in {blocks} blocks", format_count(group.bytes)));
}
