//! Writes circles, lines, paths and rectangles as SVG elements.

use std::fmt::Write as _;

use eframe::egui::emath::GuiRounding as _;
use eframe::egui::epaint::{BandShape, CircleShape, ColorMode, EllipseShape, PathShape, PathStroke, RectShape};
use eframe::egui::{Color32, CornerRadius, Pos2, Rect, Shape, Stroke, StrokeKind, pos2};

use super::{Number, Writer, fill, paint, place};

impl Writer<'_> {
    /// Adds `shape`, unless it is not visible.
    pub(super) fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Noop | Shape::Callback(_) => {}
            Shape::Vec(shapes) => shapes.iter().for_each(|shape| self.shape(shape)),
            shape if !self.is_seen(shape.visual_bounding_rect()) => {}
            Shape::Circle(circle) => self.circle(circle),
            Shape::Ellipse(ellipse) => self.ellipse(ellipse),
            Shape::LineSegment { points, stroke } => self.line(*points, *stroke),
            Shape::Path(path) => self.path(path),
            Shape::Band(band) => self.band(band),
            Shape::Rect(rect) => self.rect(rect),
            Shape::Text(text) => self.text(text),
            Shape::Mesh(mesh) => self.mesh(mesh),
            Shape::QuadraticBezier(curve) => self.path(&curve.to_path_shape(None)),
            Shape::CubicBezier(curve) => curve.to_path_shapes(None, None).iter().for_each(|path| self.path(path)),
        }
    }

    fn circle(&mut self, circle: &CircleShape) {
        let CircleShape { center, radius, fill: colour, stroke } = circle;
        let (x, y, radius) = (Number(center.x), Number(center.y), Number(*radius));
        let look = fill(*colour) + &outline(*stroke);
        let _ = writeln!(self.out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{look}/>");
    }

    fn ellipse(&mut self, ellipse: &EllipseShape) {
        let EllipseShape { center, radius, fill: colour, stroke, angle } = ellipse;
        let (x, y) = (Number(center.x), Number(center.y));
        let (across, down) = (Number(radius.x), Number(radius.y));
        let look = fill(*colour) + &outline(*stroke) + &turned(*angle, *center);
        let _ = writeln!(self.out, "<ellipse cx=\"{x}\" cy=\"{y}\" rx=\"{across}\" ry=\"{down}\"{look}/>");
    }

    fn line(&mut self, [mut from, mut to]: [Pos2; 2], stroke: Stroke) {
        if stroke.is_empty() {
            return;
        }
        // Vertical and horizontal lines are aligned to whole pixels, as on the screen, to stay sharp.
        if from.x == to.x {
            stroke.round_center_to_pixel(self.scale, &mut from.x);
            to.x = from.x;
        } else if from.y == to.y {
            stroke.round_center_to_pixel(self.scale, &mut from.y);
            to.y = from.y;
        }
        let [x1, y1, x2, y2] = [from.x, from.y, to.x, to.y].map(Number);
        let look = outline(stroke);
        let _ = writeln!(self.out, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"{look}/>");
    }

    fn path(&mut self, path: &PathShape) {
        let stroke = one_colour(&path.stroke, path.visual_bounding_rect());
        if path.points.len() < 2 || path.fill.a() == 0 && stroke.is_empty() {
            return;
        }
        let look =
            fill(path.fill) + &outline(stroke) + if stroke.is_empty() { "" } else { " stroke-linejoin=\"round\"" };
        let data = path_data(path.points.iter().copied(), path.closed);
        let _ = writeln!(self.out, "<path d=\"{data}\"{look}/>");
    }

    fn band(&mut self, band: &BandShape) {
        let turn = turned(band.angle, Pos2::ZERO);
        if let Some((line, width)) = line_of(band) {
            let look = outline(Stroke::new(width, band.fill));
            let data = path_data(line.into_iter(), false);
            let _ = writeln!(self.out, "<path d=\"{data}\" fill=\"none\"{look} stroke-linejoin=\"round\"{turn}/>");
            return;
        }
        let upper = band.points.iter().map(|point| pos2(point.x, point.y.min));
        let lower = band.points.iter().rev().map(|point| pos2(point.x, point.y.max));
        let data = path_data(upper.chain(lower), true);
        let look = fill(band.fill) + &outline(band.stroke) + &turn;
        let _ = writeln!(self.out, "<path d=\"{data}\"{look}/>");
    }

    fn rect(&mut self, shape: &RectShape) {
        let mut rect = if shape.round_to_pixels == Some(false) || shape.angle != 0.0 {
            shape.rect
        } else {
            shape.rect.round_to_pixels(self.scale)
        };
        let rest = turned(shape.angle, shape.rect.center());
        if let Some(brush) = &shape.brush
            && let Some(texture) = self.textures.get(brush.fill_texture_id)
            && brush.uv != Rect::ZERO
        {
            self.image(texture, rect, brush.uv, shape.fill, &rest);
        } else if shape.fill.a() > 0 {
            let blur = if shape.blur_width > 0.0 {
                format!(" filter=\"url(#b{})\"", self.blur_id(shape.blur_width))
            } else {
                String::new()
            };
            self.box_of(rect, shape.corner_radius, &(fill(shape.fill) + &blur + &rest));
        }
        if shape.stroke.is_empty() {
            return;
        }
        rect = match shape.stroke_kind {
            StrokeKind::Inside => rect.shrink(shape.stroke.width / 2.0),
            StrokeKind::Middle => rect,
            StrokeKind::Outside => rect.expand(shape.stroke.width / 2.0),
        };
        self.box_of(rect, shape.corner_radius, &(fill(Color32::TRANSPARENT) + &outline(shape.stroke) + &rest));
    }

    fn box_of(&mut self, rect: Rect, corners: CornerRadius, look: &str) {
        if !rect.is_positive() {
            return;
        }
        let place = place(rect);
        let CornerRadius { nw, ne, sw, se } = corners;
        if nw == 0 && corners.is_same() {
            let _ = writeln!(self.out, "<rect{place}{look} shape-rendering=\"crispEdges\"/>");
        } else if corners.is_same() {
            let _ = writeln!(self.out, "<rect{place} rx=\"{nw}\"{look}/>");
        } else {
            let most = rect.width().min(rect.height()) / 2.0;
            let [nw, ne, sw, se] = [nw, ne, sw, se].map(|radius| f32::from(radius).min(most));
            let Rect { min, max } = rect;
            let mut data = format!("M{},{}", Number(min.x + nw), Number(min.y));
            for (straight, radius, corner) in [
                (pos2(max.x - ne, min.y), ne, pos2(max.x, min.y + ne)),
                (pos2(max.x, max.y - se), se, pos2(max.x - se, max.y)),
                (pos2(min.x + sw, max.y), sw, pos2(min.x, max.y - sw)),
                (pos2(min.x, min.y + nw), nw, pos2(min.x + nw, min.y)),
            ] {
                let [x, y, radius, to_x, to_y] = [straight.x, straight.y, radius, corner.x, corner.y].map(Number);
                let _ = write!(data, "L{x},{y}A{radius},{radius} 0 0 1 {to_x},{to_y}");
            }
            let _ = writeln!(self.out, "<path d=\"{data}Z\"{look}/>");
        }
    }
}

/// Returns the line represented by a thin band, and its width: plots draw dense lines as bands from the minimum to the
/// maximum of each column. If such a band were filled as an area, steep parts would almost vanish.
fn line_of(band: &BandShape) -> Option<(Vec<Pos2>, f32)> {
    const THIN: f32 = 3.0;
    let width = band.points.iter().map(|point| point.y.span()).fold(f32::MAX, f32::min);
    if width > THIN || width <= 0.0 || !band.stroke.is_empty() {
        return None;
    }
    let mut line: Vec<Pos2> = Vec::with_capacity(band.points.len());
    for point in &band.points {
        let (top, bottom) = (point.y.min + width / 2.0, point.y.max - width / 2.0);
        let is_below = line.last().is_some_and(|last| (last.y - bottom).abs() < (last.y - top).abs());
        let (near, far) = if is_below { (bottom, top) } else { (top, bottom) };
        line.push(pos2(point.x, near));
        if (far - near).abs() > 0.01 {
            line.push(pos2(point.x, far));
        }
    }
    Some((line, width))
}

/// Returns the SVG path data (the `d` attribute) of a polyline through `points`, closed if `is_closed`.
fn path_data(points: impl Iterator<Item = Pos2>, is_closed: bool) -> String {
    let mut data = String::new();
    for point in points {
        let letter = if data.is_empty() { 'M' } else { 'L' };
        let _ = write!(data, "{letter}{},{}", Number(point.x), Number(point.y));
    }
    if is_closed { data + "Z" } else { data }
}

fn outline(stroke: Stroke) -> String {
    if stroke.is_empty() {
        return String::new();
    }
    let width = if stroke.width == 1.0 { String::new() } else { format!(" stroke-width=\"{}\"", Number(stroke.width)) };
    paint("stroke", stroke.color) + &width
}

/// The colour of a stroke; a gradient gets the colour of its middle.
fn one_colour(stroke: &PathStroke, bounds: Rect) -> Stroke {
    let colour = match &stroke.color {
        ColorMode::Solid(colour) => *colour,
        ColorMode::UV(colour_at) => colour_at(bounds, bounds.center()),
    };
    Stroke::new(stroke.width, colour)
}

/// The attribute that rotates an element by `angle` radians about `center`.
pub(super) fn turned(angle: f32, center: Pos2) -> String {
    if angle == 0.0 {
        return String::new();
    }
    format!(" transform=\"rotate({} {} {})\"", Number(angle.to_degrees()), Number(center.x), Number(center.y))
}
