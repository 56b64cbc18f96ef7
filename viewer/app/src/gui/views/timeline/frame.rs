//! The plot's rectangle on the screen and the visible range of the recording, with conversions between the two.

use std::ops::Range;

use eframe::egui::{Color32, Mesh, Rect, Shape, TextureId, pos2};

use crate::View;

/// A rectangle on the screen and the visible range that fills it.
///
/// Values are in double precision until they are relative to the view: a year in nanoseconds or a terabyte exceeds
/// single precision.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotFrame {
    /// The rectangle on the screen, in points.
    pub rect: Rect,
    /// The visible range on both axes.
    pub view: View,
}

impl PlotFrame {
    /// The screen's x, in points, for a position on the horizontal axis.
    pub fn screen_x(&self, x: f64) -> f32 {
        let share = (x - self.view.x.start) / (self.view.x.end - self.view.x.start);
        (f64::from(self.rect.left()) + share * f64::from(self.rect.width())) as f32
    }

    /// The screen's y, in points, of a number of bytes.
    pub fn screen_y(&self, bytes: f64) -> f32 {
        let share = (bytes - self.view.y.start) / (self.view.y.end - self.view.y.start);
        (f64::from(self.rect.bottom()) - share * f64::from(self.rect.height())) as f32
    }

    /// The position on the horizontal axis for the screen's `x`.
    pub fn x_at(&self, x: f32) -> f64 {
        let share = f64::from(x - self.rect.left()) / f64::from(self.rect.width());
        self.view.x.start + share * (self.view.x.end - self.view.x.start)
    }

    pub(crate) fn bytes_at(&self, y: f32) -> f64 {
        let share = f64::from(self.rect.bottom() - y) / f64::from(self.rect.height());
        self.view.y.start + share * (self.view.y.end - self.view.y.start)
    }

    /// Axis units and bytes per point.
    pub(crate) fn units_per_point(&self) -> [f64; 2] {
        [
            (self.view.x.end - self.view.x.start) / f64::from(self.rect.width()),
            (self.view.y.end - self.view.y.start) / f64::from(self.rect.height()),
        ]
    }

    /// Returns a picture of the view `pictured` at its position in this frame, clipped to the frame and to `within` on
    /// the horizontal axis; empty if nothing of it is left.
    pub(crate) fn image(&self, texture: TextureId, pictured: &View, within: &Range<f64>) -> Shape {
        let cut = |outer: &Range<f64>, inner: &Range<f64>| outer.start.max(inner.start)..outer.end.min(inner.end);
        let x = cut(&cut(&self.view.x, &pictured.x), within);
        let y = cut(&self.view.y, &pictured.y);
        if x.start >= x.end || y.start >= y.end {
            return Shape::Noop;
        }
        let share = |value: f64, of: &Range<f64>| ((value - of.start) / (of.end - of.start)) as f32;
        let corner = |x: f64, y: f64| pos2(self.screen_x(x), self.screen_y(y));
        let uv = |x: f64, y: f64| pos2(share(x, &pictured.x), 1.0 - share(y, &pictured.y));
        let mut mesh = Mesh::with_texture(texture);
        let screen = Rect::from_two_pos(corner(x.start, y.end), corner(x.end, y.start));
        let part = Rect::from_two_pos(uv(x.start, y.end), uv(x.end, y.start));
        mesh.add_rect_with_uv(screen, part, Color32::WHITE);
        Shape::mesh(mesh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_and_axes_agree_both_ways_far_from_the_origin() {
        let rect = Rect::from_min_max(pos2(100.0, 50.0), pos2(500.0, 250.0));
        let view = View { x: 1e16..1e16 + 400.0, y: 1e12..1e12 + 1000.0 };
        let frame = PlotFrame { rect, view };
        assert_eq!(frame.screen_x(1e16 + 100.0), 200.0);
        assert_eq!(frame.screen_y(1e12), 250.0);
        assert_eq!(frame.x_at(200.0), 1e16 + 100.0);
        assert_eq!(frame.bytes_at(50.0), 1e12 + 1000.0);
        assert_eq!(frame.units_per_point(), [1.0, 5.0]);
    }

    #[test]
    fn a_picture_of_another_part_is_cut_and_stretched() {
        let rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(100.0, 100.0));
        let frame = PlotFrame { rect, view: View { x: 10.0..20.0, y: 0.0..10.0 } };
        let everywhere = f64::MIN..f64::MAX;
        let left = View { x: 0.0..15.0, y: 0.0..20.0 };
        let Shape::Mesh(mesh) = frame.image(TextureId::default(), &left, &everywhere) else { panic!("no picture") };
        assert_eq!(mesh.calc_bounds(), Rect::from_min_max(pos2(0.0, 0.0), pos2(50.0, 100.0)));
        let us: Vec<f32> = mesh.vertices.iter().map(|vertex| vertex.uv.x).collect();
        assert!(us.iter().all(|u| (*u - 1.0).abs() < 1e-6 || (*u - 10.0 / 15.0).abs() < 1e-6));
        let right = View { x: 30.0..40.0, y: 0.0..1.0 };
        let elsewhere = frame.image(TextureId::default(), &right, &everywhere);
        assert!(matches!(elsewhere, Shape::Noop));
        assert!(matches!(frame.image(TextureId::default(), &left, &(15.0..20.0)), Shape::Noop));
    }
}
