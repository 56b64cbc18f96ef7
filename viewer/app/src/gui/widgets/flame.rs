//! Flame graphs: the layout of bars in rows below a focus, and their scroll area.

use eframe::egui::{Rect, Response, Role, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};

use super::theme::{FLAME_ROW, MIN_BAR};

/// A bar: its horizontal extent in points, its row, and its content.
#[derive(Clone, Debug)]
pub(crate) struct Bar<T> {
    pub left: f32,
    pub right: f32,
    /// The row, from the top.
    pub row: usize,
    pub item: T,
}

/// A part of a node: a child, or several merged children that are too narrow to show.
#[derive(Clone, Debug)]
pub(crate) struct Part<N, T> {
    pub item: T,
    /// The size of the bar, in the same unit as the size of the focus.
    pub size: u64,
    /// The child node, whose own children are shown below its bar; `None` for merged children.
    pub child: Option<N>,
}

/// Lays out the bars in `width` points: `above`, the chain down to and including `focus`, at full width, and the
/// descendants of `focus`, whose size is `size`. `parts` returns the parts of a node, in which those below the given
/// size are merged. The result is ordered by row, then from left to right.
pub(crate) fn bars<N, T>(
    above: impl Iterator<Item = T>,
    (focus, size): (N, u64),
    width: f32,
    parts: impl Fn(N, f64) -> Vec<Part<N, T>>,
) -> Vec<Bar<T>> {
    let mut out: Vec<Bar<T>> =
        above.enumerate().map(|(row, item)| Bar { left: 0.0, right: width, row, item }).collect();
    if size == 0 {
        return out;
    }
    let scale = f64::from(width) / size as f64;
    let least = f64::from(MIN_BAR) / scale;
    let mut row = vec![(focus, 0.0_f64)];
    for depth in out.len().. {
        let mut next = Vec::new();
        for (node, mut left) in row {
            for Part { item, size, child } in parts(node, least) {
                let right = left + size as f64 * scale;
                out.push(Bar { left: left as f32, right: right as f32, row: depth, item });
                next.extend(child.map(|child| (child, left)));
                left = right;
            }
        }
        if next.is_empty() {
            break;
        }
        row = next;
    }
    out
}

/// Shows `bars`, laid out in `width` points, in a scroll area; `show` paints each visible bar in its rectangle.
pub(crate) fn flame_ui<T, R>(
    ui: &mut Ui,
    label: &str,
    bars: &[Bar<T>],
    show: impl FnOnce(&Ui, &Response, Vec<(usize, Rect, &T)>) -> R,
) -> R {
    let rows = bars.last().map_or(0, |bar| bar.row + 1);
    let size = vec2(width_of(ui), rows as f32 * FLAME_ROW);
    let area = ScrollArea::vertical().id_salt("flame").auto_shrink([false, false]);
    area.show_viewport(ui, |ui, visible| {
        let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
        let response = ui.interact(rect, ui.scope_id().with("bars"), Sense::click());
        response.widget_info(|| WidgetInfo::labeled(Role::Group, true, label));
        let first = (visible.top() / FLAME_ROW).floor().max(0.0) as usize;
        let end = (visible.bottom() / FLAME_ROW).ceil().max(0.0) as usize;
        let [from, to] = [first, end].map(|row| bars.partition_point(|bar| bar.row < row));
        let place = |bar: &Bar<T>| {
            let top = rect.top() + bar.row as f32 * FLAME_ROW;
            let [left, right] = [bar.left, bar.right].map(|x| rect.left() + x);
            Rect::from_min_max(pos2(left, top), pos2(right, top + FLAME_ROW))
        };
        let wide = (from..to).filter(|&index| bars[index].right - bars[index].left >= 1.0);
        let visible = wide.map(|index| (index, place(&bars[index]), &bars[index].item)).collect();
        show(ui, &response, visible)
    })
    .inner
}

/// The width of the bars in `ui`, in points: the available width without the scroll bar.
pub(crate) fn width_of(ui: &Ui) -> f32 {
    ui.available_width() - ui.spacing().scroll.bar_width - 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_the_row_above_and_parts_without_a_child_end_there() {
        let part = |name: &'static str, size, child| Part { item: name, size, child };
        let parts = |node: u32, _: f64| match node {
            0 => vec![part("a", 60, Some(1)), part("b", 40, None)],
            1 => vec![part("c", 30, None)],
            _ => Vec::new(),
        };
        let bars = bars(["all"].into_iter(), (0, 100), 200.0, parts);
        let told: Vec<_> = bars.iter().map(|bar| (bar.item, bar.row, bar.left, bar.right)).collect();
        assert_eq!(told, [("all", 0, 0.0, 200.0), ("a", 1, 0.0, 120.0), ("b", 1, 120.0, 200.0), ("c", 2, 0.0, 60.0)]);
        let empty = super::bars(["all"].into_iter(), (0, 0), 200.0, parts);
        assert_eq!(empty.len(), 1);
    }
}
