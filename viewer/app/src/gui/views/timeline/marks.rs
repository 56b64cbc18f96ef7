//! The marks on top of the bands: the peak, failed requests, marks A and B, the ruler, the pointer, outlines, and
//! notes.

use std::cmp::Ordering;
use std::ops::Range;

use eframe::egui::{self, Align2, Color32, FontId, Galley, Painter, Pos2, Rect, Shape, Stroke, pos2, vec2};
use highwater_analysis::Moment;
use highwater_snapshots::format_bytes;

use super::frame::PlotFrame;
use super::labels::Labels;
use crate::Axis;
use crate::gui::widgets::{Shades, when};

/// Returns the lines of a peak's label below its title: the peak's cause, its position, and whether a later moment
/// equals it.
pub(crate) fn peak_text(peak: &Moment, cause: Option<&str>, recurs: bool) -> String {
    let when = format!("{}{}", when(peak), if recurs { "; also reached later" } else { "" });
    cause.into_iter().map(str::to_owned).chain([when]).collect::<Vec<_>>().join("\n")
}

/// Paints the peak's marker at `x` on the axis: a diamond at the total, with a label of its size and the lines of `text`.
/// The label is placed where `is_clear` is true, or otherwise above the diamond, and is shortened or omitted if there is
/// no room. If the peak is outside the view, paints only its size, at that side. Paints nothing if another label covers
/// the diamond. Returns the area of the label.
pub(crate) fn paint_peak(
    painter: &Painter,
    frame: &PlotFrame,
    x: f64,
    (peak, text): (&Moment, &str),
    (labels, is_clear): (&mut Labels, impl Fn(Rect) -> bool),
    shades: &Shades,
) -> Option<Rect> {
    let painter = painter.with_clip_rect(frame.rect);
    let title = format!("Peak {}", format_bytes(peak.bytes));
    let place = pos2(frame.screen_x(x), frame.screen_y(peak.bytes as f64));
    let is_left = place.x < frame.rect.left();
    if is_left || place.x > frame.rect.right() {
        let title = painter.layout_no_wrap(title, FontId::proportional(14.0), shades.on_peak);
        let size = title.size() + vec2(30.0, 8.0);
        let left = if is_left { frame.rect.left() + 6.0 } else { frame.rect.right() - 6.0 - size.x };
        let rect = Rect::from_min_size(pos2(left, frame.rect.top() + 6.0), size);
        painter.rect_filled(rect, 4.0, shades.peak);
        let (tip, text) =
            if is_left { (rect.left() + 6.0, rect.left() + 20.0) } else { (rect.right() - 6.0, rect.left() + 8.0) };
        let base = if is_left { tip + 8.0 } else { tip - 8.0 };
        let middle = rect.center().y;
        let arrow = vec![pos2(tip, middle), pos2(base, middle - 5.0), pos2(base, middle + 5.0)];
        painter.add(Shape::convex_polygon(arrow, shades.on_peak, Stroke::NONE));
        painter.galley(pos2(text, rect.top() + 4.0), title, shades.on_peak);
        labels.add(rect);
        return Some(rect);
    }
    let point = pos2(place.x, place.y.clamp(frame.rect.top(), frame.rect.bottom()));
    let mark = Rect::from_center_size(point, egui::Vec2::splat(11.0));
    // A failed request in the same place says more.
    if labels.meets(mark) {
        return None;
    }
    // A line from the point to the axis would hide a narrow peak.
    let foot = frame.rect.bottom();
    painter.vline(point.x, foot - 7.0..=foot, Stroke::new(2.0, shades.peak));
    let colours = [shades.peak, shades.peak, shades.on_peak, shades.on_peak];
    let rules: [Rule<'_>; 2] = [&is_clear, &|place| is_over(place, point)];
    let flag = paint_flag(&painter, frame.rect, point, (&title, text), colours, (&mut *labels, &rules));
    diamond(&painter, point, 5.5, shades.peak, shades.on_peak);
    labels.add(mark);
    flag
}

/// Width in points at which the text of a flag wraps if its unwrapped lines do not fit anywhere.
const FLAG_WIDTH: f32 = 230.0;

/// Whether a flag may cover a rectangle.
type Rule<'a> = &'a dyn Fn(Rect) -> bool;

/// Whether a flag at `place` is above its point, so that it covers no block below the point. It is the second rule: if
/// other totals are much higher, no rectangle near the point is above all of them.
fn is_over(place: Rect, point: Pos2) -> bool {
    place.bottom() < point.y
}

/// Paints a title and the lines of `text`, with a line to `point`, at a position that meets the first of `rules` for
/// which there is one. If space is limited, paints only the first line of the text, a shorter form of it, or only the
/// title; if the title does not fit either, paints nothing. A single line is beside the title. The colours are those of
/// the background, the edge, the title and the text. Returns the painted area.
fn paint_flag(
    painter: &Painter,
    plot: Rect,
    point: Pos2,
    (title, text): (&str, &str),
    [field, edge, strong, plain]: [Color32; 4],
    (labels, rules): (&mut Labels, &[Rule<'_>]),
) -> Option<Rect> {
    let lay = |text: &str, room: f32| {
        let lay = |text: &str, size: f32, ink| painter.layout(text.to_owned(), FontId::proportional(size), ink, room);
        (lay(title, 14.0, strong), lay(text, 11.5, plain))
    };
    let stacked = |room: f32| {
        let (title, text) = lay(text, room);
        let size = vec2(title.size().x.max(text.size().x) + 16.0, title.size().y + text.size().y + 8.0);
        (size, vec2(8.0, 4.0 + title.size().y), title, text)
    };
    let baseline = |text: &Galley| text.rows.first().map_or(0.0, |row| row.glyphs.first().map_or(0.0, |one| one.pos.y));
    let beside = |text: &str| {
        let gap = if text.is_empty() { 16.0 } else { 24.0 };
        let (title, text) = lay(text, f32::INFINITY);
        let size = vec2(title.size().x + text.size().x + gap, title.size().y + 6.0);
        (size, vec2(16.0 + title.size().x, 3.0 + baseline(&title) - baseline(&text)), title, text)
    };
    let first = text.lines().next().unwrap_or_default();
    let brief = brief(first);
    let is_apart = |place: &Rect| {
        let is_apart = |rect: Rect| !labels.meets(rect);
        plot.contains_rect(*place) && is_apart(*place) && leader(place.clamp(point), point).all(is_apart)
    };
    let lines = [f32::INFINITY, FLAG_WIDTH].map(stacked).into_iter().filter(|_| !text.is_empty());
    let line = (!text.contains('\n')).then(|| beside(first));
    let forms: Vec<_> = line.into_iter().chain(lines).chain([first, &brief, ""].map(beside)).collect();
    let placed = |rule: &Rule<'_>| {
        let is_good = |place: &Rect| is_apart(place) && rule(place.expand(2.0));
        let place = |size: egui::Vec2| places_near(point, size).into_iter().find(is_good);
        forms.iter().find_map(|(size, at, title, text)| Some((place(*size)?, *at, title.clone(), text.clone())))
    };
    // A red line would not stand out from the line of the capacity.
    let line = if edge == strong { plain } else { edge };
    let (rect, at, title, text) = rules.iter().find_map(placed)?;
    painter.line_segment([rect.clamp(point), point], Stroke::new(1.0, line));
    painter.rect(rect, 4.0, field, Stroke::new(1.5, edge), egui::StrokeKind::Inside);
    painter.galley(rect.left_top() + vec2(8.0, 3.0), title, strong);
    painter.galley(rect.left_top() + at, text, plain);
    labels.add(rect);
    leader(rect.clamp(point), point).for_each(|rect| labels.add(rect));
    Some(rect)
}

/// Shortens the first line of a flag's text: to the amount and the text after the colon if it starts with a number, to
/// the text after the colon if it states a cause, and otherwise to the text before the colon or the first comma; empty
/// if there is neither.
fn brief(line: &str) -> String {
    let Some((lead, rest)) = line.split_once(": ") else {
        return line.split_once(", ").map_or("", |(first, _)| first).to_owned();
    };
    if lead.starts_with(|sign: char| sign.is_ascii_digit()) {
        return lead.split_whitespace().take(2).chain([rest]).collect::<Vec<_>>().join(" ");
    }
    if lead.starts_with("Cause") || lead.starts_with("Probable cause") { rest } else { lead }.to_owned()
}

/// Returns small rectangles along the line from a flag to its point, except near the point.
fn leader(from: Pos2, point: Pos2) -> impl Iterator<Item = Rect> {
    let steps = (from.distance(point) / 8.0) as usize;
    let at = move |step: usize| from.lerp(point, step as f32 / steps as f32);
    (1..steps.saturating_sub(2)).map(move |step| Rect::from_center_size(at(step), egui::Vec2::splat(2.0)))
}

/// Candidate positions of a flag of `size`, at least 9 points away from `point`, the nearest first.
fn places_near(point: Pos2, size: egui::Vec2) -> Vec<Rect> {
    let step = vec2((size.x / 2.0 + 12.0) / 4.0, NOTE_STEP / 2.0);
    let grid = (-8..=8).flat_map(|x| (-24..=24).map(move |y| vec2(x as f32, y as f32)));
    let places = grid.map(|at| Rect::from_center_size(point + at * step, size));
    let mut places: Vec<Rect> = places.filter(|place| place.distance_to_pos(point) >= 9.0).collect();
    // Above rather than below, and in the middle rather than aside.
    let key = |place: &Rect| [place.distance_sq_to_pos(point), place.top(), (place.center().x - point.x).abs()];
    places.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(Ordering::Equal));
    places
}

/// Paints a diamond at `[x, bytes]` on the axes, and near it, where `is_clear` is true, a title and lines of text with
/// a line to the diamond; no text if the title is empty. Paints nothing if the point is outside the view.
pub(crate) fn paint_tagged(
    painter: &Painter,
    frame: &PlotFrame,
    [x, bytes]: [f64; 2],
    text: (&str, &str),
    (labels, is_clear): (&mut Labels, impl Fn(Rect) -> bool),
    shades: &Shades,
) {
    // A diamond at either end of the recording reaches into the margin.
    let painter = painter.with_clip_rect(frame.rect.expand2(vec2(9.0, 0.0)));
    let point = pos2(frame.screen_x(x), frame.screen_y(bytes));
    if frame.rect.expand(1.0).contains(point) {
        let colours = [shades.canvas, shades.faint, shades.strong, shades.strong];
        if !text.0.is_empty() {
            let is_near = |place: Rect| place.distance_to_pos(point) < NOTE_FAR && is_clear(place);
            paint_flag(&painter, frame.rect, point, text, colours, (&mut *labels, &[&is_near]));
        }
        diamond(&painter, point, 5.0, shades.peak, shades.on_peak);
        labels.add(Rect::from_center_size(point, egui::Vec2::splat(10.0)));
    }
}

/// Paints mark A or B: a vertical line with its name at the bottom, or at the top if the bottom is occupied.
pub(super) fn paint_mark(
    painter: &Painter,
    frame: &PlotFrame,
    x: f64,
    name: &str,
    labels: &mut Labels,
    shades: &Shades,
) {
    let painter = painter.with_clip_rect(frame.rect);
    let x = frame.screen_x(x);
    let size = vec2(16.0, 16.0);
    let foot = pos2(x, frame.rect.bottom() - size.y);
    let left = vec2(-size.x, 0.0);
    let top = pos2(x, frame.rect.top());
    // Last resort for a peak close to zero.
    let aside = vec2(size.x / 2.0, 0.0);
    let places =
        [foot, foot + left, top, top + left, foot + aside, foot + left - aside].map(|at| Rect::from_min_size(at, size));
    for [from, to] in labels.beside(x, frame.rect.top(), frame.rect.bottom()) {
        painter.vline(x, from..=to, Stroke::new(1.5, shades.mark));
    }
    let flag = labels.claim(frame.rect.expand(0.5), places).unwrap_or(places[0]);
    painter.rect_filled(flag, 0.0, shades.mark);
    painter.text(flag.center(), Align2::CENTER_CENTER, name, FontId::proportional(12.0), shades.on_peak);
}

/// Tints the range between the marks.
pub(super) fn paint_between(painter: &Painter, frame: &PlotFrame, [from, to]: [f64; 2], shades: &Shades) {
    let across = egui::Rangef::new(frame.screen_x(from), frame.screen_x(to));
    let rect = Rect::from_x_y_ranges(across, frame.rect.y_range()).intersect(frame.rect);
    painter.rect_filled(rect, 0.0, shades.mark.gamma_multiply(0.09));
}

#[derive(Clone, Debug)]
pub(crate) struct FailedMark {
    pub(crate) x: f64,
    /// The requested bytes, as a range on top of the total at that moment; `None` if the plot has no stack.
    pub(crate) asked: Option<[f64; 2]>,
    /// The title, and the lines below it.
    pub(crate) label: Option<(String, String)>,
}

impl FailedMark {
    /// Creates a mark of a request at `x`, for a plot without a stack.
    pub(crate) fn at(x: f64, is_labelled: bool) -> Self {
        Self { x, asked: None, label: is_labelled.then(|| ("Out of memory".to_owned(), String::new())) }
    }
}

/// Minimum height of the bar of a failed request, in points.
const MIN_FAILED: f32 = 4.0;

/// Paints the failed requests: a line and a cross each, with a bar of the requested bytes on top of the stack; without
/// a stack, the cross is near the bottom. Requests within a point of the previous one are skipped unless they have a
/// label. A label is placed where `is_clear` is true, or otherwise above the cross. Returns the area of the last label.
pub(crate) fn paint_ooms(
    painter: &Painter,
    frame: &PlotFrame,
    requests: impl Iterator<Item = FailedMark>,
    (labels, is_clear): (&mut Labels, impl Fn(Rect) -> bool),
    shades: &Shades,
) -> Option<Rect> {
    // Crosses at either end of the recording reach into the margin.
    let painter = painter.with_clip_rect(frame.rect.expand2(vec2(9.0, 0.0)));
    let (mut painted_to, mut flag) = (f32::MIN, None);
    for request in requests.filter(|request| frame.view.x.contains(&request.x)) {
        let x = frame.screen_x(request.x);
        if x < painted_to + 1.0 && request.label.is_none() {
            continue;
        }
        painted_to = x;
        for [from, to] in labels.beside(x, frame.rect.top(), frame.rect.bottom()) {
            painter.vline(x, from..=to, Stroke::new(1.0, shades.failure().gamma_multiply(0.7)));
        }
        let asked = request.asked.map(|bytes| bytes.map(|bytes| frame.screen_y(bytes))).map(|[from, to]| {
            let bar = Rect::from_x_y_ranges(x - 3.0..=x + 3.0, to.min(from - MIN_FAILED)..=from);
            painter.rect_filled(bar, 1.0, shades.failure());
            bar.top().clamp(frame.rect.top() + 9.0, frame.rect.bottom() - 9.0)
        });
        let center = pos2(x, asked.unwrap_or(frame.rect.bottom() - 28.0));
        // Other labels keep their distance from the cross.
        labels.add(Rect::from_center_size(center, vec2(24.0, 16.0)));
        if let Some((title, text)) = &request.label {
            let colours = [shades.canvas, shades.failure(), shades.failure(), shades.strong];
            let rules: [Rule<'_>; 2] = [&is_clear, &|place| is_over(place, center)];
            flag = paint_flag(&painter, frame.rect, center, (title, text), colours, (&mut *labels, &rules));
        }
        paint_cross(&painter, center, if request.label.is_some() { 7.0 } else { 5.0 }, shades);
    }
    flag
}

/// Paints a ruler from `from` to `to` on the axes, with `words` as its label.
pub(super) fn paint_ruler(
    painter: &Painter,
    frame: &PlotFrame,
    [from, to]: [[f64; 2]; 2],
    words: &str,
    shades: &Shades,
) {
    let painter = painter.with_clip_rect(frame.rect);
    let place = |[x, bytes]: [f64; 2]| pos2(frame.screen_x(x), frame.screen_y(bytes));
    let rect = Rect::from_two_pos(place(from), place(to));
    painter.rect_filled(rect, 0.0, shades.mark.gamma_multiply(0.15));
    painter.rect_stroke(rect, 0.0, Stroke::new(1.5, shades.mark), egui::StrokeKind::Middle);
    let galley = painter.layout_no_wrap(words.to_owned(), FontId::proportional(13.0), shades.on_peak);
    let size = galley.size() + vec2(12.0, 6.0);
    let left =
        (rect.center().x - size.x / 2.0).clamp(frame.rect.left(), (frame.rect.right() - size.x).max(frame.rect.left()));
    let above = rect.top() - size.y - 6.0;
    let top = if above >= frame.rect.top() { above } else { rect.bottom() + 6.0 };
    let label = Rect::from_min_size(pos2(left, top.min(frame.rect.bottom() - size.y)), size);
    painter.rect_filled(label, 4.0, shades.peak);
    painter.galley(label.min + vec2(6.0, 3.0), galley, shades.on_peak);
}

/// Paints the cross of a failed request, `half` points to each side of `center`.
pub(crate) fn paint_cross(painter: &Painter, center: Pos2, half: f32, shades: &Shades) {
    for stroke in [Stroke::new(4.5, shades.canvas), Stroke::new(2.5, shades.failure())] {
        for slant in [vec2(half, half), vec2(half, -half)] {
            painter.line_segment([center - slant, center + slant], stroke);
        }
    }
}

/// Paints the moment under the pointer: a line from top to bottom and the total on it.
pub(super) fn paint_cursor(painter: &Painter, frame: &PlotFrame, x: f64, total: u64, shades: &Shades) {
    let painter = painter.with_clip_rect(frame.rect);
    let x = frame.screen_x(x);
    painter.vline(x, frame.rect.y_range(), Stroke::new(1.0, shades.cursor.gamma_multiply(0.6)));
    diamond(&painter, pos2(x, frame.screen_y(total as f64)), 4.0, shades.cursor, shades.canvas);
}

/// Paints the outline of a block from the `bytes` that it covers in each column; column `i` begins at `edges(i)`.
pub(super) fn paint_outline(
    painter: &Painter,
    frame: &PlotFrame,
    bytes: &[Option<Range<u64>>],
    edges: impl Fn(usize) -> f64,
    colours: [Color32; 2],
) {
    let painter = painter.with_clip_rect(frame.rect.expand(1.0));
    let mut at = 0;
    while at < bytes.len() {
        let Some(end) = bytes[at..].iter().position(Option::is_none).map(|length| at + length).or(Some(bytes.len()))
        else {
            return;
        };
        let mut upper = Vec::new();
        let mut lower = Vec::new();
        for (column, range) in
            bytes[at..end].iter().enumerate().filter_map(|(offset, range)| Some((at + offset, range.as_ref()?)))
        {
            for x in [edges(column), edges(column + 1)] {
                let x = frame.screen_x(x);
                push(&mut upper, pos2(x, frame.screen_y(range.end as f64)));
                push(&mut lower, pos2(x, frame.screen_y(range.start as f64)));
            }
        }
        lower.reverse();
        upper.append(&mut lower);
        if upper.len() > 2 {
            painter.add(Shape::closed_line(upper.clone(), Stroke::new(3.0, colours[1])));
            painter.add(Shape::closed_line(upper, Stroke::new(1.5, colours[0])));
        }
        at = end + 1;
    }
}

/// Adds a corner; if it extends the last horizontal segment, replaces the end of that segment.
fn push(corners: &mut Vec<Pos2>, corner: Pos2) {
    if let [.., before, last] = corners.as_mut_slice()
        && before.y == last.y
        && last.y == corner.y
    {
        *last = corner;
        return;
    }
    corners.push(corner);
}

fn diamond(painter: &Painter, center: Pos2, radius: f32, fill: Color32, border: Color32) {
    let corner = |x: f32, y: f32| center + vec2(x, y) * radius;
    let corners = vec![corner(0.0, -1.0), corner(1.0, 0.0), corner(0.0, 1.0), corner(-1.0, 0.0)];
    painter.add(Shape::convex_polygon(corners, fill, Stroke::new(1.5, border)));
}

/// Paints the name of the horizontal axis to the left of its ticks.
pub(crate) fn paint_axis_name(painter: &Painter, frame: &PlotFrame, axis: Axis, shades: &Shades) {
    let name = if axis == Axis::Event { "event" } else { "time" };
    let place = frame.rect.left_bottom() + vec2(-8.0, 14.0);
    painter.text(place, Align2::RIGHT_CENTER, name, FontId::proportional(11.5), shades.faint);
}

/// Distance between two candidate positions of a note, in points.
const NOTE_STEP: f32 = 24.0;
/// Maximum distance of a label from the point of a curve, in points.
const NOTE_FAR: f32 = 60.0;

/// Labels the line of the device's capacity if it is in the view.
pub(crate) fn paint_capacity(
    painter: &Painter,
    frame: &PlotFrame,
    capacity: u64,
    labels: &mut Labels,
    is_clear: impl Fn(Rect) -> bool,
    shades: &Shades,
) {
    let y = frame.screen_y(capacity as f64);
    if capacity > 0 && frame.rect.y_range().contains(y) {
        let text = format!("capacity {}", format_bytes(capacity));
        paint_text(painter, frame, (&text, y - 17.0, shades.capacity().color), labels, (is_clear, shades.canvas));
    }
}

/// Paints a note at the upper edge of the plot.
pub(crate) fn paint_note(
    painter: &Painter,
    frame: &PlotFrame,
    text: &str,
    labels: &mut Labels,
    is_clear: impl Fn(Rect) -> bool,
    shades: &Shades,
) {
    let text = (text, frame.rect.top() + 4.0, shades.faint);
    paint_text(painter, frame, text, labels, (is_clear, shades.canvas));
}

/// Paints text at `top`, at the rightmost position that overlaps no label and for which `is_clear` is true; paints
/// nothing if there is no such position.
fn paint_text(
    painter: &Painter,
    frame: &PlotFrame,
    (text, top, colour): (&str, f32, Color32),
    labels: &mut Labels,
    (is_clear, canvas): (impl Fn(Rect) -> bool, Color32),
) {
    let galley = painter.layout_no_wrap(text.to_owned(), FontId::proportional(11.5), colour);
    let size = galley.size();
    let right = pos2(frame.rect.right() - 8.0 - size.x, top);
    let steps = ((frame.rect.width() - size.x) / NOTE_STEP).max(0.0) as usize;
    let places = (0..=steps).map(|step| Rect::from_min_size(right - vec2(step as f32 * NOTE_STEP, 0.0), size));
    if let Some(place) = labels.claim(frame.rect, places.filter(|place| is_clear(place.expand(2.0)))) {
        // A grid line through the letters would strike them out.
        painter.rect_filled(place.expand(1.0), 2.0, canvas);
        painter.galley(place.min, galley, colour);
    }
}
