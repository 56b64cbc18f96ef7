//! Tracks the areas of a plot that labels occupy, so that labels do not overlap.

use eframe::egui::Rect;

#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(Vec<Rect>);

impl Labels {
    pub(crate) fn add(&mut self, rect: Rect) {
        self.0.push(rect);
    }

    /// Occupies and returns the first of `places` that is within `plot` and more than a point away from every label.
    pub(crate) fn claim(&mut self, plot: Rect, places: impl IntoIterator<Item = Rect>) -> Option<Rect> {
        let place = places.into_iter().find(|place| plot.contains_rect(*place) && !self.meets(*place))?;
        self.add(place);
        Some(place)
    }

    /// Returns whether a label is at most a point away from `rect`.
    pub(super) fn meets(&self, rect: Rect) -> bool {
        self.0.iter().any(|label| label.intersects(rect.expand(1.0)))
    }

    /// The parts of the vertical line at `x` from `top` to `bottom` that are not covered by labels.
    pub(crate) fn beside(&self, x: f32, top: f32, bottom: f32) -> Vec<[f32; 2]> {
        let mut covered: Vec<[f32; 2]> = self
            .0
            .iter()
            .filter(|label| label.x_range().contains(x))
            .map(|label| [label.top(), label.bottom()])
            .collect();
        covered.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let (mut parts, mut from) = (Vec::new(), top);
        for [start, end] in covered {
            if start > from {
                parts.push([from, start.min(bottom)]);
            }
            from = from.max(end);
        }
        if from < bottom {
            parts.push([from, bottom]);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eframe::egui::{pos2, vec2};

    fn rect(x: f32, y: f32) -> Rect {
        Rect::from_min_size(pos2(x, y), vec2(20.0, 10.0))
    }

    #[test]
    fn a_label_takes_the_first_place_that_is_free_and_in_the_plot() {
        let plot = Rect::from_min_max(pos2(0.0, 0.0), pos2(100.0, 50.0));
        let mut labels = Labels::default();
        labels.add(rect(0.0, 0.0));
        assert_eq!(labels.claim(plot, [rect(10.0, 5.0), rect(90.0, 0.0), rect(40.0, 0.0)]), Some(rect(40.0, 0.0)));
        assert_eq!(labels.claim(plot, [rect(61.0, 0.0), rect(39.0, 9.0)]), None, "too close to what was taken");
    }

    #[test]
    fn a_line_is_drawn_where_no_label_covers_it() {
        let mut labels = Labels::default();
        assert_eq!(labels.beside(5.0, 0.0, 100.0), [[0.0, 100.0]]);
        labels.add(rect(0.0, 60.0));
        labels.add(rect(0.0, 20.0));
        labels.add(rect(50.0, 40.0));
        assert_eq!(labels.beside(5.0, 0.0, 100.0), [[0.0, 20.0], [30.0, 60.0], [70.0, 100.0]]);
        assert_eq!(labels.beside(5.0, 25.0, 65.0), [[30.0, 60.0]]);
    }
}
