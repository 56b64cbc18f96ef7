//! Shows a tree as a flame graph with the root at the top; the width of a node is proportional to its bytes.

use eframe::egui::{Rect, Response, Ui};
use highwater_analysis::{LineRole, NodeId, Tree};
use highwater_snapshots::format_bytes;

use super::job::Answer;
use super::names;
use super::tile::{self, Act, Item, What};
use crate::gui::identity::Identity;
use crate::gui::widgets::flame::{Bar, Part, flame_ui, width_of};
use crate::gui::widgets::tile::{Emphasis, focus_frame, paint, walked, with_amount};
use crate::gui::widgets::{Memo, flame, theme};

#[derive(Debug, Default)]
pub(super) struct Flame {
    /// The bars by row, then from left to right.
    bars: Memo<(Identity<Tree>, NodeId, f32), Vec<Bar<Item>>>,
}

/// Returns the bars of `focus`, its ancestors and its descendants, `width` points wide; nodes that are too narrow are
/// merged with their smaller siblings. Ordered by row, then from left to right.
pub(super) fn bars(tree: &Tree, focus: NodeId, width: f32) -> Vec<Bar<Item>> {
    let whole = |id: NodeId| {
        let node = tree.node(id);
        Item { what: What::Node(id), bytes: node.bytes, blocks: u64::from(node.blocks) }
    };
    let above = std::iter::once(NodeId::ROOT).chain(tree.path(focus)).map(whole);
    flame::bars(above, (focus, tree.node(focus).bytes), width, |id, least| {
        // Own bytes have nothing below them.
        let items = tile::items(tree, id, least).into_iter().filter(|item| !matches!(item.what, What::Own(_)));
        let child = |item: &Item| if let What::Node(child) = item.what { Some(child) } else { None };
        items.map(|item| Part { size: item.bytes, child: child(&item), item }).collect()
    })
}

impl Flame {
    pub(super) fn flame_ui(&mut self, ui: &mut Ui, answer: &Answer) -> Option<Act> {
        let width = width_of(ui);
        let key = (Identity::of(&answer.tree), answer.focus, width);
        let bars = self.bars.get(key, |_| bars(&answer.tree, answer.focus, width));
        let label = format!("Flame graph by {}", names::keys(&answer.tree));
        flame_ui(ui, &label, bars, |ui, response, visible| bars_ui(ui, visible, bars, response, answer))
    }
}

fn bars_ui(
    ui: &Ui,
    visible: Vec<(usize, Rect, &Item)>,
    bars: &[Bar<Item>],
    response: &Response,
    answer: &Answer,
) -> Option<Act> {
    let chosen = answer.chosen.as_ref().map(|chosen| chosen.node);
    let mut act = None;
    for (index, place, item) in visible {
        let on_bar = tile::respond(ui, place, (response.id, index), answer, item);
        let is_chosen = matches!(item.what, What::Node(id) if Some(id) == chosen);
        let name = tile::name(answer, item);
        let text = with_amount(ui, place, &name, &format_bytes(item.bytes));
        let emphasis = Emphasis { is_hovered: on_bar.hovered(), is_chosen };
        paint(ui, place, tile::colour(answer, item.what), [&text, ""], emphasis);
        if on_bar.clicked() {
            response.request_focus();
            act = match item.what {
                What::Node(id) if answer.tree.node(id).is_leaf() => Some(Act::Choose(id)),
                What::Node(id) | What::Own(id) => Some(Act::Enter(id)),
                What::Rest { of, .. } => Some(Act::List(of)),
            };
        }
    }
    focus_frame(ui, response);
    walk(ui, response, (bars, answer), chosen).or(act)
}

fn walk(ui: &Ui, response: &Response, (bars, answer): (&[Bar<Item>], &Answer), chosen: Option<NodeId>) -> Option<Act> {
    let walked = walked(ui, response);
    let tree = &answer.tree;
    if walked.leaves {
        return Some(Act::Up);
    }
    let is_drawn = |id: NodeId| bars.iter().any(|bar| bar.item.what == What::Node(id));
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
            let siblings: Vec<NodeId> = tree.node(tree.node(at).parent).children().filter(|id| is_drawn(*id)).collect();
            let row = siblings.iter().position(|id| *id == at)? as i64;
            let next = (row + i64::from(right)).clamp(0, siblings.len() as i64 - 1);
            siblings[next as usize]
        }
    };
    is_drawn(next).then_some(Act::Choose(next))
}

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
