//! Writes meshes as SVG: triangles as polygons, pairs of triangles that form rectangles as rectangles, and textured
//! ones as images.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eframe::egui::epaint::textures::TextureFilter;
use eframe::egui::epaint::{ColorImage, Mesh, Vertex};
use eframe::egui::{Color32, Pos2, Rect, pos2};

use super::super::png;
use super::super::texture::Texture;
use super::{Number, Writer, fill, place};

impl Writer<'_> {
    pub(super) fn mesh(&mut self, mesh: &Mesh) {
        let Some(texture) = self.textures.get(mesh.texture_id) else { return };
        let corner = |index: &u32| mesh.vertices.get(*index as usize);
        let mut indices = mesh.indices.as_slice();
        while let Some((first, rest)) = indices.split_first_chunk::<3>() {
            let quad = rest.first_chunk::<3>().and_then(|second| {
                let both = [&first[0], &first[1], &first[2], &second[0], &second[1], &second[2]];
                let mut corners = [Vertex::default(); 6];
                for (slot, index) in corners.iter_mut().zip(both) {
                    *slot = *corner(index)?;
                }
                Quad::of(&corners)
            });
            if let Some(quad) = quad {
                self.quad(texture, &quad);
                indices = &rest[3..];
                continue;
            }
            if let [Some(a), Some(b), Some(c)] = [corner(&first[0]), corner(&first[1]), corner(&first[2])] {
                self.triangle(texture, [a, b, c]);
            }
            indices = rest;
        }
    }

    fn quad(&mut self, texture: &Texture, quad: &Quad) {
        if !self.is_seen(quad.rect) {
            return;
        }
        if quad.uv.is_positive() {
            self.image(texture, quad.rect, quad.uv, quad.colour, "");
            return;
        }
        let colour = seen(texture, quad.uv.min, quad.colour);
        if colour.a() > 0 {
            let _ = writeln!(self.out, "<rect{}{} shape-rendering=\"crispEdges\"/>", place(quad.rect), fill(colour));
        }
    }

    /// A triangle in the average colour of its vertices.
    fn triangle(&mut self, texture: &Texture, corners: [&Vertex; 3]) {
        let mean = |value: fn(&Vertex) -> f32| corners.iter().map(|corner| value(corner)).sum::<f32>() / 3.0;
        let channel = |index: usize| {
            let sum: u16 = corners.iter().map(|corner| u16::from(corner.color.to_array()[index])).sum();
            ((sum + 1) / 3) as u8
        };
        let own = Color32::from_rgba_premultiplied(channel(0), channel(1), channel(2), channel(3));
        let colour = seen(texture, pos2(mean(|corner| corner.uv.x), mean(|corner| corner.uv.y)), own);
        let bounds = Rect::from_points(&corners.map(|corner| corner.pos));
        if colour.a() == 0 || !self.is_seen(bounds) {
            return;
        }
        let [x1, y1, x2, y2, x3, y3] = [
            corners[0].pos.x,
            corners[0].pos.y,
            corners[1].pos.x,
            corners[1].pos.y,
            corners[2].pos.x,
            corners[2].pos.y,
        ]
        .map(Number);
        // With antialiasing, the seams between triangles would show.
        let look = fill(colour) + " shape-rendering=\"crispEdges\"";
        let _ = writeln!(self.out, "<polygon points=\"{x1},{y1} {x2},{y2} {x3},{y3}\"{look}/>");
    }

    /// Draws the part `uv` of a texture, multiplied by `colour`, in `rect`. `rest` contains further attributes.
    pub(super) fn image(&mut self, texture: &Texture, rect: Rect, uv: Rect, colour: Color32, rest: &str) {
        let [width, height] = texture.image.size;
        // Whole texels and their position; the excess is clipped.
        let side = |from: f32, to: f32, count: usize| {
            let at = |share: f32| f64::from(share) * count as f64;
            let first = (at(from) + 1e-3).floor().clamp(0.0, count as f64) as usize;
            let end = (at(to) - 1e-3).ceil().clamp(0.0, count as f64) as usize;
            let share = |texel: usize| ((texel as f64 - at(from)) / (at(to) - at(from))) as f32;
            (first..end, share(first)..share(end))
        };
        let (columns, across) = side(uv.min.x, uv.max.x, width);
        let (rows, down) = side(uv.min.y, uv.max.y, height);
        if columns.is_empty() || rows.is_empty() {
            return;
        }
        let at = |x: f32, y: f32| pos2(rect.min.x + x * rect.width(), rect.min.y + y * rect.height());
        let covered = Rect::from_min_max(at(across.start, down.start), at(across.end, down.end));
        let mut pixels = Vec::with_capacity(columns.len() * rows.len());
        for row in rows.clone() {
            let texels = &texture.image.pixels[row * width + columns.start..row * width + columns.end];
            pixels.extend(texels.iter().map(|texel| multiplied(*texel, colour)));
        }
        let picture = ColorImage::new([columns.len(), rows.len()], pixels);
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        if png::write(&mut bytes, &picture).is_err() {
            return;
        }
        let data = STANDARD.encode(&bytes);
        let is_even = texture.filter(1.0) == TextureFilter::Linear;
        let look = if is_even { "" } else { " image-rendering=\"optimizeSpeed\" style=\"image-rendering:pixelated\"" };
        let is_cut = !rect.expand(0.01).contains_rect(covered);
        if is_cut {
            let id = self.clip_id(rect);
            let _ = writeln!(self.out, "<g clip-path=\"url(#c{id})\">");
        }
        let _ = writeln!(
            self.out,
            "<image{} preserveAspectRatio=\"none\"{look}{rest} xlink:href=\"data:image/png;base64,{data}\"/>",
            place(covered),
        );
        if is_cut {
            self.out.push_str("</g>\n");
        }
    }
}

/// Two triangles that form an axis-aligned rectangle of one colour.
struct Quad {
    rect: Rect,
    /// The part of the texture; a single point for a constant texture colour.
    uv: Rect,
    colour: Color32,
}

impl Quad {
    fn of(corners: &[Vertex; 6]) -> Option<Self> {
        let rect = Rect::from_points(&corners.map(|corner| corner.pos));
        let uv = Rect::from_points(&corners.map(|corner| corner.uv));
        let colour = corners[0].color;
        // The corner of the rectangle, 0 to 3; the texture has the same orientation.
        let place = |corner: &Vertex| {
            let side = |value: f32, min: f32, max: f32| match value {
                value if value == min => Some(0),
                value if value == max => Some(1),
                _ => None,
            };
            let (x, y) = (side(corner.pos.x, rect.min.x, rect.max.x)?, side(corner.pos.y, rect.min.y, rect.max.y)?);
            let textured = pos2([uv.min.x, uv.max.x][x], [uv.min.y, uv.max.y][y]);
            (corner.uv == textured && corner.color == colour).then_some(2 * y + x)
        };
        let mut places = [0; 6];
        for (slot, corner) in places.iter_mut().zip(corners) {
            *slot = place(corner)?;
        }
        let bits = |half: &[usize]| half.iter().fold(0_u8, |bits, place| bits | 1 << place);
        let (one, other) = (bits(&places[..3]), bits(&places[3..]));
        let is_whole = one.count_ones() == 3 && other.count_ones() == 3 && one | other == 0b1111;
        // The missing corners of the two halves are opposite.
        let is_halved = (!one & 0b1111).trailing_zeros() + (!other & 0b1111).trailing_zeros() == 3;
        (rect.is_positive() && is_whole && is_halved).then_some(Self { rect, uv, colour })
    }
}

/// The colour of `colour` times the texture at `uv`.
fn seen(texture: &Texture, uv: Pos2, colour: Color32) -> Color32 {
    let [width, height] = texture.image.size;
    let at = [f64::from(uv.x) * width as f64, f64::from(uv.y) * height as f64];
    let [r, g, b, a] = texture.sample(at, TextureFilter::Nearest).map(|channel| channel as u8);
    multiplied(Color32::from_rgba_premultiplied(r, g, b, a), colour)
}

fn multiplied(a: Color32, b: Color32) -> Color32 {
    if b == Color32::WHITE { a } else { a * b }
}
