//! Squarified treemap layout: fills a rectangle with nearly square rectangles of given areas.
//!
//! The algorithm is from M. Bruls, K. Huizing and J. J. van Wijk, *Squarified Treemaps*, Proceedings of the Joint
//! Eurographics and IEEE TCVG Symposium on Visualization, 2000.

use eframe::egui::{Pos2, Rect, pos2, vec2};

/// Returns a rectangle for each of `weights`, in order, with areas proportional to the weights. Weights should be
/// descending; those that are not positive, or for which no room is left, get an empty rectangle.
pub(super) fn squarify(weights: &[f64], within: Rect) -> Vec<Rect> {
    let total: f64 = weights.iter().filter(|weight| **weight > 0.0).sum();
    let mut out = vec![Rect::from_min_size(within.min, vec2(0.0, 0.0)); weights.len()];
    let area = f64::from(within.width()) * f64::from(within.height());
    if total <= 0.0 || area <= 0.0 {
        return out;
    }
    let scale = area / total;
    let (mut left, mut top) = (f64::from(within.left()), f64::from(within.top()));
    let (mut width, mut height) = (f64::from(within.width()), f64::from(within.height()));
    let rows: Vec<usize> = (0..weights.len()).filter(|row| weights[*row] > 0.0).collect();
    let mut first = 0;
    while first < rows.len() {
        let side = width.min(height);
        if side <= 0.0 {
            // The rest is too small to take any room and keeps its empty rectangle.
            break;
        }
        // A row takes weights until its worst aspect ratio would get worse.
        let (mut sum, mut least, mut most) = (0.0, f64::MAX, 0.0_f64);
        let mut worst = f64::MAX;
        let mut end = first;
        while let Some(&row) = rows.get(end) {
            let weight = weights[row] * scale;
            let (with, low, high) = (sum + weight, least.min(weight), most.max(weight));
            let next = worst_ratio(with, low, high, side);
            // A row has at least one tile, however thin.
            if end > first && next > worst {
                break;
            }
            (sum, least, most, worst) = (with, low, high, next);
            end += 1;
        }
        // The row is laid along the shorter side.
        let is_column = width >= height;
        let thickness = (sum / side).min(if is_column { width } else { height });
        let mut at = if is_column { top } else { left };
        for &row in &rows[first..end] {
            let length = weights[row] * scale / sum * side;
            let (min, max) = if is_column {
                (corner(left, at), corner(left + thickness, at + length))
            } else {
                (corner(at, top), corner(at + length, top + thickness))
            };
            out[row] = Rect::from_min_max(min, max).intersect(within);
            at += length;
        }
        if is_column {
            (left, width) = (left + thickness, (width - thickness).max(0.0));
        } else {
            (top, height) = (top + thickness, (height - thickness).max(0.0));
        }
        first = end;
    }
    out
}

fn corner(x: f64, y: f64) -> Pos2 {
    pos2(x as f32, y as f32)
}

/// Returns the worst aspect ratio in a row of area `sum`, laid out along `side`.
fn worst_ratio(sum: f64, least: f64, most: f64, side: f64) -> f64 {
    let (sum, side) = (sum * sum, side * side);
    (side * most / sum).max(sum / (side * least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_vanish_beside_others_take_no_room_and_no_time() {
        let within = Rect::from_min_size(pos2(0.0, 0.0), vec2(300.0, 200.0));
        for most in [2_f64.powi(53), 2_f64.powi(55), 2_f64.powi(57), 2_f64.powi(60), 1e300] {
            let places = squarify(&[most, 3.0, 1.0, 1e-300], within);
            assert_eq!(places.len(), 4);
            assert!((f64::from(places[0].area()) - 60_000.0).abs() < 1.0, "{most}: {:?}", places[0]);
            assert!(places[1..].iter().all(|place| place.area() < 1.0 && !place.min.any_nan()), "{places:?}");
        }
    }

    fn area(rect: &Rect) -> f32 {
        rect.width() * rect.height()
    }

    #[test]
    fn the_papers_own_example_is_laid_out_as_the_paper_has_it() {
        let within = Rect::from_min_size(pos2(0.0, 0.0), vec2(6.0, 4.0));
        let rects = squarify(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], within);
        let near = |a: Rect, b: [f32; 4]| {
            [a.left(), a.top(), a.right(), a.bottom()].iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
        };
        assert!(near(rects[0], [0.0, 0.0, 3.0, 2.0]), "{:?}", rects[0]);
        assert!(near(rects[1], [0.0, 2.0, 3.0, 4.0]), "{:?}", rects[1]);
        assert!(near(rects[2], [3.0, 0.0, 3.0 + 12.0 / 7.0, 7.0 / 3.0]), "{:?}", rects[2]);
        assert!(near(rects[3], [3.0 + 12.0 / 7.0, 0.0, 6.0, 7.0 / 3.0]), "{:?}", rects[3]);
    }

    #[test]
    fn areas_are_as_the_weights_and_tiles_do_not_overlap() {
        let within = Rect::from_min_size(pos2(10.0, 20.0), vec2(300.0, 200.0));
        let weights: Vec<f64> = (0..60).map(|n| f64::from(2000 / (n + 1))).collect();
        let total: f64 = weights.iter().sum();
        let rects = squarify(&weights, within);
        for (row, (rect, weight)) in rects.iter().zip(&weights).enumerate() {
            let expected = (weight / total * 60_000.0) as f32;
            assert!((area(rect) - expected).abs() < 0.02 * expected + 0.5, "{row}: {rect:?} for {expected}");
            assert!(within.expand(0.01).contains_rect(*rect));
            for other in &rects[..row] {
                let both = rect.intersect(*other);
                assert!(both.width() < 0.05 || both.height() < 0.05, "{rect:?} and {other:?}");
            }
        }
        let longest = rects.iter().map(|rect| (rect.width() / rect.height()).max(rect.height() / rect.width()));
        assert!(longest.fold(0.0, f32::max) < 4.0);
    }

    #[test]
    fn nothing_and_no_room_get_empty_places() {
        let within = Rect::from_min_size(pos2(0.0, 0.0), vec2(10.0, 10.0));
        assert!(squarify(&[0.0, 0.0], within).iter().all(|rect| area(rect) == 0.0));
        assert!(squarify(&[1.0], Rect::ZERO).iter().all(|rect| area(rect) == 0.0));
        let some = squarify(&[4.0, 0.0], within);
        assert_eq!((area(&some[0]), area(&some[1])), (100.0, 0.0));
    }
}
