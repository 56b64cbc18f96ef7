//! The analysis of a failed request: device memory, largest users, the cause, and changes that would have prevented it.

use eframe::egui::text::{LayoutJob, TextFormat};
use eframe::egui::{
    Align2, Color32, FontId, Label, Rect, RichText, Role, ScrollArea, Sense, Stroke, StrokeKind, TextStyle, Ui,
    WidgetInfo, pos2, vec2,
};
use highwater_analysis::addresses::Freed;
use highwater_analysis::{FailedRequest, LiveGroups};
use highwater_snapshots::{Category, count_of, format_bytes};

use super::known::State;
use super::look::Paint;
use crate::answers::oom_analysis::OomAnalysis;
use crate::figures::requests::requested;
use crate::gui::colouring::short_line;
use crate::gui::views::view::Action;
use crate::gui::widgets::{Shades, theme};

/// Height of margins and border around the analysis, in points.
const FRAME: f32 = 14.0;

/// Maximum number of free ranges with a bar.
const SHOWN_HOLES: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) show_eviction_window: bool,
    pub(super) action: Option<Action>,
}

/// Shows controls for moving through the failed requests, of which that with index `current` is shown. Returns the
/// index of the one to show instead.
pub(super) fn choice_ui(ui: &mut Ui, state: &State, current: Option<usize>) -> Option<usize> {
    let mut asked = None;
    let count = state.ooms.len();
    if count == 0 {
        return None;
    }
    let shades = Shades::in_ui(ui);
    let text = match current {
        Some(row) => format!("Why it failed ({} of {count})", row + 1),
        None => format!("Why {} failed", count_of(count as u64, "request")),
    };
    let mut go = |ui: &mut Ui, name: &str, row: Option<usize>, tooltip: &str| {
        let button = eframe::egui::Button::new(RichText::new(name).color(shades.failure()));
        let response = ui.add_enabled(row.is_some(), button).on_hover_text(tooltip);
        if response.clicked() {
            asked = row;
        }
    };
    go(ui, &text, Some(current.unwrap_or(0)), "Show the failed request and why it did not fit.");
    if count > 1 {
        go(ui, "Previous", current.and_then(|row| row.checked_sub(1)), "Show the failed request before this one.");
        let next = current.map(|row| row + 1).filter(|row| *row < count);
        go(ui, "Next", next, "Show the failed request after this one.");
    }
    asked
}

/// Shows the failed request: the cause and possible fixes in full width, and below them the request next to the largest
/// free ranges, and the live blocks. Takes at most `most` points of height. `analysis` is `None` until the replays are
/// done.
pub(super) fn failed_ui(
    ui: &mut Ui,
    failed: &FailedRequest,
    analysis: Option<&OomAnalysis>,
    paint: &Paint<'_>,
    (is_picture, most): (bool, f32),
) -> Asked {
    let mut asked = Asked::default();
    let frame = eframe::egui::Frame::group(ui.style());
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ScrollArea::vertical().id_salt("failed").min_scrolled_height(0.0).max_height(most - FRAME).show(ui, |ui| {
            ui.scope(|ui| words_ui(ui, failed, analysis, paint));
            ui.add_space(4.0);
            ui.columns(2, |sides| {
                bars_ui(&mut sides[0], failed, paint);
                blocks_ui(&mut sides[1], failed, analysis, is_picture, &mut asked);
            });
        });
    });
    asked
}

fn words_ui(ui: &mut Ui, failed: &FailedRequest, analysis: Option<&OomAnalysis>, paint: &Paint<'_>) {
    let Some(analysis) = analysis else {
        ui.strong(format!("{} requested", format_bytes(failed.requested)));
        ui.horizontal(|ui| {
            ui.spinner();
            ui.weak("Replaying the recording up to this request…");
        });
        return;
    };
    let stack = paint.trace.events.stack[failed.event.0 as usize];
    let headline = format!("{}: {}.", requested(paint.trace, analysis, stack), analysis.fill());
    ui.add(Label::new(RichText::new(headline).size(15.0).strong()).wrap());
    ui.spacing_mut().item_spacing.y = 1.0;
    // Possible fixes come right after the cause, so that a low panel shows both without scrolling.
    let (cause, why) = (Some(analysis.cause_text()), Some(analysis.reason_text()));
    let sentences = [analysis.state_text(), cause, analysis.helps(), why, analysis.does_not_help()];
    let notes = failed.notes.iter().map(|note| format!("Note: {note}."));
    let font = TextStyle::Body.resolve(ui.style());
    let [strong, plain] = [ui.visuals().strong_text_color(), ui.visuals().text_color()];
    for text in sentences.into_iter().flatten().chain(notes) {
        // The subject of a sentence is emphasized.
        let lead = text.find(':').map_or(0, |at| at + 1);
        let mut job = LayoutJob::default();
        job.append(&text[..lead], 0.0, TextFormat::simple(font.clone(), strong));
        job.append(&text[lead..], 0.0, TextFormat::simple(font.clone(), plain));
        ui.add(Label::new(job).wrap());
    }
}

/// The sizes that the bars do not have, in one line; the rounded size, the stream and the memory needed from the driver
/// only for PyTorch's caching allocator.
fn facts(failed: &FailedRequest) -> String {
    let guessed = if failed.stream_is_guessed { " (guess)" } else { "" };
    let is_caching = failed.allocator.has_settings();
    let rounded = || format!("Rounded to {}, {} pool", format_bytes(failed.rounded), failed.pool);
    let stream = failed.stream.filter(|_| is_caching).map(|stream| format!("stream {}{guessed}", stream.0));
    let rest = [
        ("needed from the driver", if is_caching { failed.from_driver } else { 0 }),
        ("awaiting free", failed.waiting),
        ("free in its pool", failed.free_in_pool),
        ("free elsewhere", failed.free_elsewhere),
        ("outside the allocator", failed.outside.unwrap_or(0)),
    ];
    let rest = rest.into_iter().filter(|(_, size)| *size > 0);
    let rest = rest.map(|(name, size)| format!("{} {name}", format_bytes(size)));
    is_caching.then(rounded).into_iter().chain(stream).chain(rest).collect::<Vec<_>>().join("  ·  ")
}

/// Shows the largest users of memory, and the smallest set of live blocks to free.
fn blocks_ui(ui: &mut Ui, failed: &FailedRequest, analysis: Option<&OomAnalysis>, is_picture: bool, asked: &mut Asked) {
    ui.spacing_mut().item_spacing.y = 1.0;
    if let Some(analysis) = analysis {
        ui.strong("Live blocks (allocated bytes, with rounding)");
        holders_ui(ui, &analysis.holders);
    }
    let Some(smallest_eviction) = failed.smallest_eviction() else { return };
    ui.horizontal_wrapped(|ui| {
        let count = smallest_eviction.blocks.len();
        let blocks = count_of(count as u64, "block");
        let title = format!("To free: {} allocated in {blocks}", format_bytes(smallest_eviction.bytes));
        let response = ui.strong(title);
        if let Some(text) = analysis.and_then(OomAnalysis::eviction_text) {
            response.on_hover_text(text);
        }
        if is_picture {
            return;
        }
        let tooltip = "Show the range that becomes free in the map.";
        if matches!(smallest_eviction.freed, Freed::Range(_))
            && ui.small_button("Show in the map").on_hover_text(tooltip).clicked()
        {
            asked.show_eviction_window = true;
        }
        if let Some(block) = smallest_eviction.blocks.first()
            && ui.small_button("Show its first block").clicked()
        {
            asked.action = Some(Action::Block(*block));
        }
    });
    if let Some(holders) = analysis.and_then(|analysis| analysis.smallest_eviction.as_ref()) {
        holders_ui(ui, holders);
    }
}

fn holders_ui(ui: &mut Ui, holders: &LiveGroups) {
    for group in &holders.groups {
        let named: Vec<String> = group.key.iter().filter(|part| *part != "(none)").cloned().collect();
        let blocks = count_of(group.blocks.len() as u64, "block");
        ui.horizontal(|ui| {
            let category = group.key.first().and_then(|name| Category::from_name(name));
            theme::swatch_ui(ui, category.map_or(theme::NEUTRAL, theme::category));
            let text = |names: &[String]| format!("{}, {blocks}: {}", format_bytes(group.bytes), names.join(" "));
            // Folders are only in the tooltip.
            let short: Vec<String> = named.iter().map(|name| short_line(name)).collect();
            ui.add(Label::new(text(&short)).truncate()).on_hover_text(text(&named));
        });
    }
    if holders.rest_bytes > 0 {
        ui.weak(format!("{} in further groups", format_bytes(holders.rest_bytes)));
    }
}

fn bars_ui(ui: &mut Ui, failed: &FailedRequest, paint: &Paint<'_>) {
    let shades = &paint.shades;
    ui.weak("The request and the largest free ranges of its pool, to scale:");
    let longest = failed.holes.first().map_or(0, |hole| hole.bytes).max(failed.rounded).max(1);
    let several = failed.holes.iter().any(|hole| Some(hole.home) != failed.holes.first().map(|first| first.home));
    let text = format!("{} requested", format_bytes(failed.rounded));
    bar_ui(ui, (failed.rounded, longest), shades.failure(), &text, shades);
    for hole in failed.holes.iter().take(SHOWN_HOLES) {
        let home = if several { format!(", {}", hole.home.text()) } else { String::new() };
        let text = format!("{} free at {:#x}{home}", format_bytes(hole.bytes), hole.address);
        bar_ui(ui, (hole.bytes, longest), shades.bar, &text, shades);
    }
    let device = format!("{} free on the device", format_bytes(failed.device_free));
    bar_ui(ui, (failed.device_free.min(longest), longest), Color32::TRANSPARENT, &device, shades);
    if failed.holes.is_empty() {
        ui.weak("No free range in the segments of its pool.");
    }
    ui.weak(facts(failed));
}

fn bar_ui(ui: &mut Ui, (bytes, longest): (u64, u64), colour: Color32, text: &str, shades: &Shades) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), theme::ROW_HEIGHT - 2.0), Sense::hover());
    let width = (rect.width() * (bytes as f64 / longest as f64) as f32).max(1.0);
    let bar = Rect::from_min_size(rect.min, vec2(width, rect.height()));
    let painter = ui.painter().with_clip_rect(rect);
    painter.rect_filled(bar, 0.0, colour);
    painter.rect_stroke(bar, 0.0, Stroke::new(1.0, shades.strong), StrokeKind::Inside);
    let font = FontId::proportional(12.0);
    let galley = painter.layout_no_wrap(text.to_owned(), font.clone(), shades.strong);
    // Beside the bar if there is room, else on it.
    let (x, ink) = if width + galley.size().x + 8.0 < rect.width() {
        (bar.right() + 6.0, shades.strong)
    } else {
        (rect.left() + 6.0, if colour == shades.failure() { shades.canvas } else { shades.strong })
    };
    painter.text(pos2(x, rect.center().y), Align2::LEFT_CENTER, text, font, ink);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, text));
    response.on_hover_text(text);
}
