//! Rasterizes triangles on the CPU, with the same result on every machine.
//!
//! The rules are those of egui's painter for graphics cards: positions are snapped to 1/256 of a pixel; a pixel is
//! painted if its centre is inside (on an edge: by the top-left rule, so that adjacent triangles paint it once);
//! texture and colour are multiplied; and colours are blended as stored, with premultiplied alpha. Edge tests use
//! integers and are exact.

use std::ops::Range;

use eframe::egui::epaint::textures::TextureFilter;
use eframe::egui::epaint::{ClippedPrimitive, Primitive, Vertex};
use eframe::egui::{Color32, ColorImage, Mesh, Rect};
use rayon::prelude::*;

use super::texture::{Texture, Textures};

/// Number of rows per task.
const STRIP: usize = 32;
/// Subpixel units per pixel.
const UNIT: i64 = 256;
/// Distance from the origin in pixels beyond which vertices are clipped before conversion to integers.
const FARTHEST: f64 = 65_536.0;

/// Paints `primitives`, given in points, on `canvas` with `scale` pixels per point.
pub(super) fn paint(canvas: &mut ColorImage, primitives: &[ClippedPrimitive], textures: &Textures, scale: f32) {
    let [width, height] = canvas.size;
    let layers: Vec<Layer<'_>> = primitives
        .iter()
        .filter_map(|primitive| {
            let Primitive::Mesh(mesh) = &primitive.primitive else { return None };
            let clip = Clip::new(primitive.clip_rect, scale, canvas.size);
            let texture = textures.get(mesh.texture_id)?;
            let is_seen = !clip.x.is_empty() && !clip.y.is_empty();
            is_seen.then_some(Layer { mesh, texture, clip, scale })
        })
        .collect();
    let mut strips: Vec<Vec<(&Layer<'_>, [u32; 3])>> = vec![Vec::new(); height.div_ceil(STRIP)];
    for layer in &layers {
        for &indices in layer.mesh.indices.as_chunks::<3>().0 {
            let Some(corners) = layer.corners(indices) else { continue };
            let rows = rows_of(&corners, &layer.clip);
            if !rows.is_empty() {
                for strip in &mut strips[rows.start / STRIP..rows.end.div_ceil(STRIP)] {
                    strip.push((layer, indices));
                }
            }
        }
    }
    canvas.pixels.par_chunks_mut(width.max(1) * STRIP).zip(&strips).enumerate().for_each(|(strip, (pixels, work))| {
        let mut target = Target { pixels, width, top: strip * STRIP };
        for (layer, indices) in work {
            layer.paint(*indices, &mut target);
        }
    });
}

/// The clip rectangle in pixels.
#[derive(Clone, Debug)]
struct Clip {
    x: Range<usize>,
    y: Range<usize>,
}

impl Clip {
    fn new(rect: Rect, scale: f32, [width, height]: [usize; 2]) -> Self {
        let side = |from: f32, to: f32, most: usize| {
            let pixel = |at: f32| ((at * scale).round().max(0.0) as usize).min(most);
            pixel(from)..pixel(to)
        };
        Self { x: side(rect.min.x, rect.max.x, width), y: side(rect.min.y, rect.max.y, height) }
    }
}

/// A vertex of a triangle: position in pixels, colour from 0 to 255, texture position in texels.
#[derive(Clone, Copy, Debug)]
struct Corner {
    at: [f64; 2],
    colour: [f64; 4],
    texel: [f64; 2],
}

impl Corner {
    fn new(vertex: &Vertex, texture: &Texture, scale: f32) -> Self {
        let [width, height] = texture.image.size;
        Self {
            at: [f64::from(vertex.pos.x * scale), f64::from(vertex.pos.y * scale)],
            colour: vertex.color.to_array().map(f64::from),
            texel: [f64::from(vertex.uv.x) * width as f64, f64::from(vertex.uv.y) * height as f64],
        }
    }

    /// Interpolates to `other` by `share`.
    fn towards(&self, other: &Self, share: f64) -> Self {
        let mix = |from: f64, to: f64| from + (to - from) * share;
        Self {
            at: std::array::from_fn(|index| mix(self.at[index], other.at[index])),
            colour: std::array::from_fn(|index| mix(self.colour[index], other.colour[index])),
            texel: std::array::from_fn(|index| mix(self.texel[index], other.texel[index])),
        }
    }
}

/// The rows that a triangle may cover.
fn rows_of(corners: &[Corner; 3], clip: &Clip) -> Range<usize> {
    let ys = corners.map(|corner| corner.at[1]);
    let (top, bottom) = (ys.iter().copied().fold(f64::MAX, f64::min), ys.iter().copied().fold(f64::MIN, f64::max));
    let start = (top.floor().max(0.0) as usize).max(clip.y.start);
    let end = (bottom.ceil().max(0.0) as usize).saturating_add(1).min(clip.y.end);
    start..end.max(start)
}

/// The rows of a task.
struct Target<'a> {
    pixels: &'a mut [Color32],
    width: usize,
    top: usize,
}

impl Target<'_> {
    fn span(&mut self, y: usize, across: Range<usize>) -> &mut [Color32] {
        let start = (y - self.top) * self.width;
        &mut self.pixels[start + across.start..start + across.end]
    }
}

/// Triangles with a common texture and clip rectangle.
struct Layer<'a> {
    mesh: &'a Mesh,
    texture: &'a Texture,
    clip: Clip,
    scale: f32,
}

impl Layer<'_> {
    /// The vertices of a triangle; `None` if an index is out of range or a position is not finite.
    fn corners(&self, indices: [u32; 3]) -> Option<[Corner; 3]> {
        let corner = |index: u32| {
            let corner = Corner::new(self.mesh.vertices.get(index as usize)?, self.texture, self.scale);
            corner.at.iter().chain(&corner.texel).all(|value| value.is_finite()).then_some(corner)
        };
        Some([corner(indices[0])?, corner(indices[1])?, corner(indices[2])?])
    }

    fn paint(&self, indices: [u32; 3], target: &mut Target<'_>) {
        let Some(corners) = self.corners(indices) else { return };
        let is_far = |corner: &Corner| corner.at.iter().any(|value| value.abs() > FARTHEST);
        if !corners.iter().any(is_far) {
            self.paint_triangle(corners, target);
            return;
        }
        let near = cut(corners.to_vec(), &self.clip);
        for index in 2..near.len() {
            self.paint_triangle([near[0], near[index - 1], near[index]], target);
        }
    }

    fn paint_triangle(&self, [a, mut b, mut c]: [Corner; 3], target: &mut Target<'_>) {
        let fixed = |corner: &Corner| corner.at.map(|value| (value * UNIT as f64).round() as i64);
        let (start, [mut right, mut left]) = (fixed(&a), [fixed(&b), fixed(&c)]);
        let area = cross(start, right, left);
        if area == 0 {
            return;
        }
        if area < 0 {
            (b, c, right, left) = (c, b, left, right);
        }
        let edges = [Edge::new(start, right), Edge::new(right, left), Edge::new(left, start)];
        let ys = [start[1], right[1], left[1]];
        let (top, bottom) = (ys.iter().min().map_or(0, |y| y / UNIT - 1), ys.iter().max().map_or(0, |y| y / UNIT + 1));
        let last = target.top + target.pixels.len() / target.width.max(1);
        let rows = (top.max(0) as usize).max(self.clip.y.start).max(target.top)
            ..(bottom.max(-1) as usize).saturating_add(1).min(self.clip.y.end).min(last);
        if rows.is_empty() {
            return;
        }
        let paint = Paint::new([a, b, c], self.texture);
        for y in rows {
            let mut across = self.clip.x.start as i64..self.clip.x.end as i64;
            for edge in &edges {
                edge.narrow(y as i64, &mut across);
            }
            if across.start < across.end {
                let across = across.start as usize..across.end as usize;
                paint.fill(target.span(y, across.clone()), across.start, y);
            }
        }
    }
}

/// Twice the signed area of a triangle, positive for clockwise vertices.
fn cross(a: [i64; 2], b: [i64; 2], c: [i64; 2]) -> i64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// An edge of a triangle with its inside on the right.
struct Edge {
    from: [i64; 2],
    way: [i64; 2],
    /// 0 if points on the edge count as inside, otherwise -1.
    bias: i64,
}

impl Edge {
    fn new(from: [i64; 2], to: [i64; 2]) -> Self {
        let way = [to[0] - from[0], to[1] - from[1]];
        let is_top_or_left = way[1] < 0 || way[1] == 0 && way[0] > 0;
        Self { from, way, bias: if is_top_or_left { 0 } else { -1 } }
    }

    /// Removes the pixels of row `y` from `across` whose centre is outside.
    fn narrow(&self, y: i64, across: &mut Range<i64>) {
        let middle = y * UNIT + UNIT / 2;
        // Inside is where `way.y * UNIT * x <= room`.
        let room = self.way[0] * (middle - self.from[1]) - self.way[1] * (UNIT / 2 - self.from[0]) + self.bias;
        match self.way[1] {
            0 if room < 0 => across.end = across.start,
            0 => {}
            down @ 1.. => across.end = across.end.min(room.div_euclid(down * UNIT) + 1),
            up => across.start = across.start.max(-room.div_euclid(-up * UNIT)),
        }
    }
}

/// A value interpolated linearly over a triangle.
#[derive(Clone, Copy)]
struct Slope {
    origin: [f64; 2],
    value: f64,
    across: f64,
    down: f64,
    least: f64,
    most: f64,
}

impl Slope {
    fn new(places: [[f64; 2]; 3], values: [f64; 3]) -> Self {
        let [a, b, c] = places;
        let way = |to: [f64; 2]| [to[0] - a[0], to[1] - a[1]];
        let (b, c) = (way(b), way(c));
        let area = b[0] * c[1] - b[1] * c[0];
        let (to_b, to_c) = (values[1] - values[0], values[2] - values[0]);
        Self {
            origin: a,
            value: values[0],
            across: (to_b * c[1] - to_c * b[1]) / area,
            down: (to_c * b[0] - to_b * c[0]) / area,
            least: values.iter().copied().fold(f64::MAX, f64::min),
            most: values.iter().copied().fold(f64::MIN, f64::max),
        }
    }

    /// The value at a pixel's centre, clamped to the values at the vertices.
    fn at(&self, x: usize, y: usize) -> f64 {
        let [right, down] = [x as f64 + 0.5 - self.origin[0], y as f64 + 0.5 - self.origin[1]];
        (self.value + self.across * right + self.down * down).clamp(self.least, self.most)
    }
}

enum Paint<'a> {
    /// A constant colour.
    Even([u32; 4]),
    /// A colour from a texture, multiplied with a constant colour.
    Picture { texture: &'a Texture, filter: TextureFilter, texel: [Slope; 2], colour: [u32; 4] },
    /// A colour interpolated between vertices, with a constant texture colour.
    Fading { colour: [Slope; 4], texel: [u32; 4] },
    /// A colour interpolated between vertices, multiplied with a texture.
    Both { texture: &'a Texture, filter: TextureFilter, texel: [Slope; 2], colour: [Slope; 4] },
}

impl<'a> Paint<'a> {
    fn new(corners: [Corner; 3], texture: &'a Texture) -> Self {
        // The gradients of the snapped triangle, whose pixels are painted.
        let places = corners.map(|corner| corner.at.map(|value| (value * UNIT as f64).round() / UNIT as f64));
        let [a, b, c] = corners;
        let texel: [Slope; 2] =
            std::array::from_fn(|index| Slope::new(places, corners.map(|corner| corner.texel[index])));
        let speed = |way: fn(&Slope) -> f64| way(&texel[0]).hypot(way(&texel[1]));
        let filter = texture.filter(speed(|slope| slope.across).max(speed(|slope| slope.down)) - 1e-3);
        let is_even = a.colour == b.colour && b.colour == c.colour;
        let is_point = a.texel == b.texel && b.texel == c.texel;
        let even = a.colour.map(|channel| channel.round() as u32);
        let fading = || std::array::from_fn(|index| Slope::new(places, corners.map(|corner| corner.colour[index])));
        match (is_even, is_point) {
            (true, true) => Self::Even(product(even, texture.sample(a.texel, filter))),
            (true, false) => Self::Picture { texture, filter, texel, colour: even },
            (false, true) => Self::Fading { colour: fading(), texel: texture.sample(a.texel, filter) },
            (false, false) => Self::Both { texture, filter, texel, colour: fading() },
        }
    }

    /// Paints a run of pixels that starts in column `x` of row `y`.
    fn fill(&self, pixels: &mut [Color32], x: usize, y: usize) {
        let round = |colour: &[Slope; 4], x: usize| colour.map(|channel| channel.at(x, y).round() as u32);
        match self {
            Self::Even([r, g, b, 255]) => {
                pixels.fill(Color32::from_rgb(*r as u8, *g as u8, *b as u8));
            }
            Self::Even(colour) => pixels.iter_mut().for_each(|pixel| blend(pixel, *colour)),
            Self::Picture { texture, filter, texel, colour } => {
                for (x, pixel) in (x..).zip(pixels) {
                    let read = texture.sample([texel[0].at(x, y), texel[1].at(x, y)], *filter);
                    blend(pixel, if *colour == [255; 4] { read } else { product(*colour, read) });
                }
            }
            Self::Fading { colour, texel } => {
                for (x, pixel) in (x..).zip(pixels) {
                    blend(pixel, product(round(colour, x), *texel));
                }
            }
            Self::Both { texture, filter, texel, colour } => {
                for (x, pixel) in (x..).zip(pixels) {
                    let read = texture.sample([texel[0].at(x, y), texel[1].at(x, y)], *filter);
                    blend(pixel, product(round(colour, x), read));
                }
            }
        }
    }
}

fn product(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
    std::array::from_fn(|channel| shared(a[channel], b[channel]))
}

/// `a * b / 255`, rounded; both from 0 to 255.
fn shared(a: u32, b: u32) -> u32 {
    (a * b + 127) / 255
}

fn blend(pixel: &mut Color32, colour: [u32; 4]) {
    let beneath = pixel.to_array();
    let rest = 255 - colour[3];
    let [r, g, b, a] = match rest {
        0 => colour.map(|channel| channel as u8),
        255 if colour == [0; 4] => return,
        _ => std::array::from_fn(|index| (colour[index] + shared(u32::from(beneath[index]), rest)).min(255) as u8),
    };
    *pixel = Color32::from_rgba_premultiplied(r, g, b, a);
}

/// Clips a polygon to a few pixels around `clip`.
fn cut(mut polygon: Vec<Corner>, clip: &Clip) -> Vec<Corner> {
    const ROOM: f64 = 4.0;
    let ends = |range: &Range<usize>| [range.start as f64 - ROOM, range.end as f64 + ROOM];
    for (axis, [least, most]) in [(0, ends(&clip.x)), (1, ends(&clip.y))] {
        for (limit, sign) in [(least, 1.0), (most, -1.0)] {
            let inside = |corner: &Corner| (corner.at[axis] - limit) * sign;
            let mut kept = Vec::with_capacity(polygon.len() + 1);
            for (index, corner) in polygon.iter().enumerate() {
                let next = &polygon[(index + 1) % polygon.len()];
                let (here, there) = (inside(corner), inside(next));
                if here >= 0.0 {
                    kept.push(*corner);
                }
                if (here < 0.0) != (there < 0.0) {
                    let mut between = corner.towards(next, here / (here - there));
                    between.at[axis] = limit;
                    kept.push(between);
                }
            }
            polygon = kept;
        }
    }
    polygon
}
