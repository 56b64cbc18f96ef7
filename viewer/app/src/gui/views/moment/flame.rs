//! A tree as a flame graph with the root on top; each node is as wide as its bytes, below its parent.

use std::sync::Arc;

use eframe::egui::{Rect, Response, Role, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};
use highwater_analysis::Tree;
use highwater_analysis::tree::{NodeId, Role as LineRole};
use highwater_snapshots::units::format_bytes;

use super::job::Answer;
use super::names;
use super::tile::{self, Act, Emphasis, Item, What};
use crate::gui::widgets::theme;

/// A node and its position: horizontal extent in points, and row.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) left: f32,
    pub(super) right: f32,
    pub(super) row: usize,
    pub(super) item: Item,
}

/// The last layout, and its input.
#[derive(Debug, Default)]
pub(super) struct Flame {
    /// By row, then from left to right.
    bars: Vec<Bar>,
    of: Option<(Arc<Tree>, NodeId, f32)>,
}

/// The bars of `focus`, its ancestors and everything below, `width` points wide; nodes too narrow to show are merged
/// with their smaller siblings. By row, then from left to right.
pub(super) fn bars(tree: &Tree, focus: NodeId, width: f32) -> Vec<Bar> {
    let whole = |id: NodeId| {
        let node = tree.node(id);
        Item { what: What::Node(id), bytes: node.bytes, blocks: u64::from(node.blocks) }
    };
    let above = std::iter::once(NodeId::ROOT).chain(tree.path(focus));
    let mut out: Vec<Bar> =
        above.enumerate().map(|(row, id)| Bar { left: 0.0, right: width, row, item: whole(id) }).collect();
    let total = tree.node(focus).bytes;
    if total == 0 {
        return out;
    }
    let scale = f64::from(width) / total as f64;
    let least = f64::from(theme::LEAST_BAR) / scale;
    // Row by row, so that bars are in order.
    let mut row = vec![(focus, 0.0_f64)];
    for depth in out.len().. {
        let mut next = Vec::new();
        for (id, left) in row {
            let mut left = left;
            for item in tile::items(tree, id, least) {
                let right = left + item.bytes as f64 * scale;
                match item.what {
                    // Own bytes have nothing below them.
                    What::Own(_) => continue,
                    What::Node(child) => next.push((child, left)),
                    What::Rest { .. } => {}
                }
                out.push(Bar { left: left as f32, right: right as f32, row: depth, item });
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

impl Flame {
    /// Shows the answer's focus and everything below it in the available space.
    pub(super) fn flame_ui(&mut self, ui: &mut Ui, answer: &Answer) -> Option<Act> {
        let width = ui.available_width() - ui.spacing().scroll.bar_width - 2.0;
        let is_same = self.of.as_ref().is_some_and(|(tree, focus, known)| {
            Arc::ptr_eq(tree, &answer.tree) && *focus == answer.focus && *known == width
        });
        if !is_same {
            self.bars = bars(&answer.tree, answer.focus, width);
            self.of = Some((Arc::clone(&answer.tree), answer.focus, width));
        }
        let rows = self.bars.last().map_or(0, |bar| bar.row + 1);
        let size = vec2(width, rows as f32 * theme::FLAME_ROW);
        let area = ScrollArea::vertical().id_salt("flame").auto_shrink([false, false]);
        area.show_viewport(ui, |ui, shown| {
            let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
            let response = ui.interact(rect, ui.scope_id().with("bars"), Sense::click());
            response.widget_info(|| {
                WidgetInfo::labeled(Role::Group, true, format!("Flame graph by {}", names::keys(&answer.tree)))
            });
            self.bars_ui(ui, rect, shown, &response, answer)
        })
        .inner
    }

    fn bars_ui(&self, ui: &Ui, rect: Rect, shown: Rect, response: &Response, answer: &Answer) -> Option<Act> {
        let chosen = answer.chosen.as_ref().map(|chosen| chosen.node);
        let first = (shown.top() / theme::FLAME_ROW).floor().max(0.0) as usize;
        let end = (shown.bottom() / theme::FLAME_ROW).ceil().max(0.0) as usize;
        let from = self.bars.partition_point(|bar| bar.row < first);
        let to = self.bars.partition_point(|bar| bar.row < end);
        let mut act = None;
        for (index, bar) in self.bars.iter().enumerate().take(to).skip(from) {
            if bar.right - bar.left < 1.0 {
                continue;
            }
            let top = rect.top() + bar.row as f32 * theme::FLAME_ROW;
            let place = Rect::from_min_max(
                pos2(rect.left() + bar.left, top),
                pos2(rect.left() + bar.right, top + theme::FLAME_ROW),
            );
            let on_bar = tile::respond(ui, place, (response.id, index), answer, &bar.item);
            let is_chosen = matches!(bar.item.what, What::Node(id) if Some(id) == chosen);
            let name = tile::name(answer, &bar.item);
            let text = tile::with_amount(ui, place, &name, &format_bytes(bar.item.bytes));
            let emphasis = Emphasis { is_hovered: on_bar.hovered(), is_chosen };
            tile::paint(ui, place, tile::colour(answer, bar.item.what), [&text, ""], emphasis);
            if on_bar.clicked() {
                response.request_focus();
                act = match bar.item.what {
                    What::Node(id) if answer.tree.node(id).is_leaf() => Some(Act::Choose(id)),
                    What::Node(id) | What::Own(id) => Some(Act::Enter(id)),
                    What::Rest { of, .. } => Some(Act::List(of)),
                };
            }
        }
        tile::focus_frame(ui, response);
        self.walk(ui, response, answer, chosen).or(act)
    }

    fn walk(&self, ui: &Ui, response: &Response, answer: &Answer, chosen: Option<NodeId>) -> Option<Act> {
        let walked = tile::walked(ui, response);
        let tree = &answer.tree;
        if walked.leaves {
            return Some(Act::Up);
        }
        let is_drawn = |id: NodeId| self.bars.iter().any(|bar| bar.item.what == What::Node(id));
        let at = chosen.filter(|id| is_drawn(*id)).unwrap_or(answer.focus);
        let next = match walked.by {
            [0, 0] if walked.filters => return Some(Act::Filter(at)),
            [0, 0] if walked.enters => {
                return Some(if tree.node(at).is_leaf() { Act::Filter(at) } else { Act::Enter(at) });
            }
            [0, 0] => return None,
            [0, down] if down > 0 => tree.node(at).children().next()?,
            [0, _] => tree.node(at).parent,
            [right, _] => {
                let siblings: Vec<NodeId> =
                    tree.node(tree.node(at).parent).children().filter(|id| is_drawn(*id)).collect();
                let row = siblings.iter().position(|id| *id == at)? as i64;
                let next = (row + i64::from(right)).clamp(0, siblings.len() as i64 - 1);
                siblings[next as usize]
            }
        };
        is_drawn(next).then_some(Act::Choose(next))
    }
}

/// Explains the colours of a stack's frames.
pub(super) fn roles_ui(ui: &mut Ui) {
    ui.horizontal_wrapped(|ui| {
        let roles = [
            (LineRole::Program, "program", "Lines of your program."),
            (LineRole::Framework, "framework", "Lines of frameworks and runtimes, and all native lines below Python."),
            (LineRole::Allocator, "allocator", "Lines of the allocator and the recorder."),
        ];
        for (role, name, meaning) in roles {
            theme::swatch_ui(ui, theme::role(role));
            ui.weak(name).on_hover_text(meaning);
        }
    });
}
