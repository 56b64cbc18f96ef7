//! Writes egui's shapes as an SVG for browsers and drawing programs. Text and rectangles stay editable; the pictures of
//! bands become images.

mod mesh;
mod shapes;
mod text;

use std::fmt::Write as _;

use eframe::egui::epaint::ClippedShape;
use eframe::egui::{Color32, Rect, Vec2};

use highwater_snapshots::shown::printable;

use super::paper::Paper;
use super::texture::Textures;
use text::PROPORTIONAL;

/// Returns the SVG document for `shapes`, given in points. One unit is one point; the size is the paper's.
pub(super) fn document(
    shapes: &[ClippedShape],
    textures: &Textures,
    paper: &Paper,
    background: Color32,
    title: &str,
) -> String {
    let room = paper.points();
    let screen = Rect::from_min_size(eframe::egui::Pos2::ZERO, room);
    let mut writer = Writer {
        out: String::new(),
        definitions: String::new(),
        clips: Vec::new(),
        blurs: Vec::new(),
        textures,
        scale: paper.scale(),
        clip: screen,
    };
    let mut open = None;
    for clipped in shapes {
        let clip = clipped.clip_rect.intersect(screen);
        let transform = clipped.transform_after_tessellation;
        let is_moved = transform != eframe::egui::emath::TSTransform::IDENTITY;
        if !clip.is_positive() {
            continue;
        }
        let wanted = (clip != screen).then_some(clip);
        let start = writer.out.len();
        writer.clip = if is_moved { Rect::EVERYTHING } else { clip };
        writer.shape(&clipped.shape);
        if writer.out.len() == start {
            continue;
        }
        let drawn = writer.out.split_off(start);
        if open != wanted {
            writer.close(open);
            if let Some(clip) = wanted {
                let id = writer.clip_id(clip);
                let _ = writeln!(writer.out, "<g clip-path=\"url(#c{id})\">");
            }
            open = wanted;
        }
        if is_moved {
            let Vec2 { x, y } = transform.translation;
            let factor = transform.scaling;
            let _ = writeln!(writer.out, "<g transform=\"translate({} {}) scale({factor})\">", Number(x), Number(y));
        }
        writer.out.push_str(&drawn);
        if is_moved {
            writer.out.push_str("</g>\n");
        }
    }
    writer.close(open);
    let [width, height] = paper.size();
    let (right, bottom) = (Number(room.x), Number(room.y));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" \
         width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {right} {bottom}\" role=\"img\" \
         font-family=\"{PROPORTIONAL}\">\n\
         <title>{}</title>\n<defs>\n{}</defs>\n\
         <rect width=\"{right}\" height=\"{bottom}\"{}/>\n{}</svg>\n",
        escaped(title),
        writer.definitions,
        fill(background),
        writer.out,
    )
}

struct Writer<'a> {
    out: String,
    definitions: String,
    /// The clip rectangles, by id.
    clips: Vec<Rect>,
    /// The blur widths, by id.
    blurs: Vec<f32>,
    textures: &'a Textures,
    /// Pixels per point.
    scale: f32,
    /// The clip rectangle of the current shape.
    clip: Rect,
}

impl Writer<'_> {
    fn close(&mut self, open: Option<Rect>) {
        if open.is_some() {
            self.out.push_str("</g>\n");
        }
    }

    /// Returns the id of the clip path of `rect`, which is defined when first used.
    fn clip_id(&mut self, rect: Rect) -> usize {
        if let Some(id) = self.clips.iter().position(|known| *known == rect) {
            return id;
        }
        let id = self.clips.len();
        self.clips.push(rect);
        let _ = writeln!(self.definitions, "<clipPath id=\"c{id}\"><rect{}/></clipPath>", place(rect));
        id
    }

    /// Returns the id of the filter that blurs edges by `width` points, which is defined when first used.
    fn blur_id(&mut self, width: f32) -> usize {
        if let Some(id) = self.blurs.iter().position(|known| *known == width) {
            return id;
        }
        let id = self.blurs.len();
        self.blurs.push(width);
        let deviation = Number(width / 4.0);
        let _ = writeln!(
            self.definitions,
            "<filter id=\"b{id}\" x=\"-50%\" y=\"-50%\" width=\"200%\" height=\"200%\">\
             <feGaussianBlur stdDeviation=\"{deviation}\"/></filter>"
        );
        id
    }

    fn is_seen(&self, bounds: Rect) -> bool {
        // A horizontal line has no height but is visible.
        !bounds.is_negative() && bounds.intersects(self.clip)
    }
}

/// A coordinate, rounded to visible precision.
#[derive(Clone, Copy)]
struct Number(f32);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.0.is_finite() {
            return f.write_str("0");
        }
        let text = format!("{:.2}", self.0);
        let short = text.trim_end_matches('0').trim_end_matches('.');
        f.write_str(if short == "-0" { "0" } else { short })
    }
}

/// The position and size attributes of a rectangle.
fn place(rect: Rect) -> String {
    let (x, y) = (Number(rect.min.x), Number(rect.min.y));
    format!(" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"", Number(rect.width()), Number(rect.height()))
}

/// A colour as attribute `name` and, if translucent, `name-opacity`.
fn paint(name: &str, colour: Color32) -> String {
    if colour.a() == 0 {
        return format!(" {name}=\"none\"");
    }
    let [r, g, b, a] = colour.to_srgba_unmultiplied();
    let solid = format!(" {name}=\"#{r:02x}{g:02x}{b:02x}\"");
    if a == 255 {
        return solid;
    }
    format!("{solid} {name}-opacity=\"{:.3}\"", f32::from(a) / 255.0)
}

fn fill(colour: Color32) -> String {
    paint("fill", colour)
}

/// Escapes text for XML, without characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_cannot_break_the_document() {
        assert_eq!(
            escaped("a<b> & \"c\"\n'd'\u{202e}\u{ffff}é"),
            "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}&apos;d&apos;\u{fffd}é"
        );
    }

    #[test]
    fn numbers_are_short_and_colours_are_not_multiplied() {
        assert_eq!([1.0, 0.5, -0.001, 2.345, f32::NAN].map(|x| Number(x).to_string()), ["1", "0.5", "0", "2.35", "0"]);
        assert_eq!(fill(Color32::from_rgb(1, 2, 255)), " fill=\"#0102ff\"");
        assert_eq!(fill(Color32::from_black_alpha(51)), " fill=\"#000000\" fill-opacity=\"0.200\"");
        assert_eq!(paint("stroke", Color32::TRANSPARENT), " stroke=\"none\"");
    }
}
