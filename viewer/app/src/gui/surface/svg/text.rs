//! Writes each row of text as text elements, one for each run of equal font and colour. Their width is the same as on
//! the screen, regardless of the font.

use std::fmt::Write as _;

use eframe::egui::emath::GuiRounding as _;
use eframe::egui::epaint::TextShape;
use eframe::egui::epaint::text::{Glyph, PlacedRow, TextFormat};
use eframe::egui::{Color32, FontFamily, Pos2, Rect, Stroke, pos2};

use super::shapes::turned;
use super::{Number, Writer, escaped, fill, paint, place};

/// Fonts similar to the app's proportional font, best first, ending with generic ones.
pub(super) const PROPORTIONAL: &str =
    "'Ubuntu Light', Ubuntu, 'Ubuntu Sans', 'Noto Sans', 'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif";
/// Fonts similar to the app's monospace font, best first, ending with the generic one.
const MONOSPACE: &str = "Hack, 'DejaVu Sans Mono', Consolas, Menlo, 'Liberation Mono', monospace";

/// A run of characters of one row with the same format.
struct Stretch<'a> {
    format: &'a TextFormat,
    colour: Color32,
    /// Start of the first character on the baseline, relative to the row.
    start: Pos2,
    /// End of the last character that is not a space.
    end: f32,
    text: String,
}

impl Writer<'_> {
    pub(super) fn text(&mut self, shape: &TextShape) {
        if shape.opacity_factor <= 0.0 {
            return;
        }
        let origin = shape.pos.round_to_pixels(self.scale);
        let turn = turned(shape.angle, origin);
        let mut letters = shape.galley.job.text.char_indices().peekable();
        for row in &shape.galley.rows {
            let mut stretches: Vec<Stretch<'_>> = Vec::new();
            for glyph in &row.glyphs {
                // The ellipsis of truncated text is not in the text itself.
                let at = match letters.peek() {
                    Some((at, letter)) if *letter == glyph.chr => {
                        let at = *at;
                        letters.next();
                        at
                    }
                    Some((at, _)) => at.saturating_sub(1),
                    None => shape.galley.job.text.len().saturating_sub(1),
                };
                let sections = &shape.galley.job.sections;
                let section = sections.partition_point(|section| section.byte_range.end.0 <= at);
                let Some(section) = sections.get(section).or(sections.last()) else { continue };
                let colour = colour_of(shape, row, glyph, &section.format);
                add(&mut stretches, &section.format, colour, glyph);
            }
            if row.ends_with_newline {
                letters.next();
            }
            let place = origin + row.pos.to_vec2();
            let shown = Rect::from_min_size(place, row.size).expand(row.size.y);
            if shape.angle == 0.0 && !self.is_seen(shown) {
                continue;
            }
            for stretch in &stretches {
                self.stretch(stretch, place, row.size.y, &turn);
            }
            if !shape.underline.is_empty() {
                let y = place.y + row.size.y;
                self.rule(place.x..=place.x + row.size.x, y, shape.underline, &turn);
            }
        }
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, row: Pos2, height: f32, turn: &str) {
        let Stretch { format, colour, start, end, text } = stretch;
        let across = row.x + start.x..=row.x + end;
        if format.background.a() > 0 {
            let area = Rect::from_x_y_ranges(across.clone(), row.y..=row.y + height).expand(format.expand_bg);
            let _ = writeln!(self.out, "<rect{}{}{turn}/>", place(area), fill(format.background));
        }
        let shown = text.trim_end();
        if !shown.is_empty() && colour.a() > 0 {
            let (x, y) = (Number(row.x + start.x), Number(row.y + start.y));
            let size = Number(format.font_id.size);
            let width = Number(end - start.x);
            // Letters of a wider or narrower font are stretched or squeezed to the same width.
            let width = match shown.chars().nth(1) {
                Some(_) => format!(" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\""),
                None => String::new(),
            };
            let space = if shown.contains("  ") { " xml:space=\"preserve\"" } else { "" };
            let slant = if format.italics { " font-style=\"italic\"" } else { "" };
            let family = match &format.font_id.family {
                FontFamily::Proportional => String::new(),
                FontFamily::Monospace => format!(" font-family=\"{MONOSPACE}\""),
                FontFamily::Name(name) => {
                    format!(" font-family=\"'{}', {PROPORTIONAL}\"", escaped(&name.replace('\'', "")))
                }
            };
            let _ = writeln!(
                self.out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{width}{space}{slant}{family}{}{turn}>{}</text>",
                fill(*colour),
                escaped(shown),
            );
        }
        if !format.underline.is_empty() {
            self.rule(across.clone(), row.y + start.y + format.font_id.size * 0.12, format.underline, turn);
        }
        if !format.strikethrough.is_empty() {
            self.rule(across, row.y + start.y - format.font_id.size * 0.3, format.strikethrough, turn);
        }
    }

    fn rule(&mut self, across: std::ops::RangeInclusive<f32>, y: f32, stroke: Stroke, turn: &str) {
        let [x1, x2, y, width] = [*across.start(), *across.end(), y, stroke.width].map(Number);
        let look = paint("stroke", stroke.color);
        let _ = writeln!(
            self.out,
            "<line x1=\"{x1}\" y1=\"{y}\" x2=\"{x2}\" y2=\"{y}\" stroke-width=\"{width}\"{look}{turn}/>"
        );
    }
}

/// Adds a character to the last run, or starts a new run. No run starts with a space.
fn add<'a>(stretches: &mut Vec<Stretch<'a>>, format: &'a TextFormat, colour: Color32, glyph: &Glyph) {
    let is_space = glyph.chr.is_whitespace();
    let end = glyph.pos.x + glyph.advance_width;
    let last = stretches.last_mut().filter(|last| last.colour == colour && std::ptr::eq(last.format, format));
    match last {
        Some(last) => {
            last.text.push(glyph.chr);
            if !is_space {
                last.end = end;
            }
        }
        None if is_space => {}
        None => {
            let start = pos2(glyph.pos.x, glyph.pos.y);
            stretches.push(Stretch { format, colour, start, end, text: glyph.chr.to_string() });
        }
    }
}

fn colour_of(shape: &TextShape, row: &PlacedRow, glyph: &Glyph, format: &TextFormat) -> Color32 {
    let painted = row.visuals.mesh.vertices.get(glyph.first_vertex as usize);
    let own = if glyph.chr.is_whitespace() || glyph.is_color || glyph.uv_rect.is_nothing() { None } else { painted };
    let own = own.map_or(format.color, |vertex| vertex.color);
    let own = if own == Color32::PLACEHOLDER { shape.fallback_color } else { own };
    let colour = shape.override_text_color.unwrap_or(own);
    if shape.opacity_factor < 1.0 { colour.gamma_multiply(shape.opacity_factor) } else { colour }
}
