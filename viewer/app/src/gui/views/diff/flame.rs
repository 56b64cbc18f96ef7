//! Shows the groups of both sides as a flame graph: the width of a bar is the larger of its two sides, and its colour
//! is the change.

use std::borrow::Cow;
use std::sync::Arc;

use eframe::egui::{Label, Rect, Response, Role, Sense, Ui, WidgetInfo};
use highwater_analysis::DiffTree;
use highwater_analysis::diff::{Change, DiffNode};
use highwater_snapshots::line_text::readable_line;
use highwater_snapshots::{Category, format_count, format_signed_bytes};

use super::job::Answer;
use crate::gui::identity::Identity;
use crate::gui::widgets::flame::{Bar, Part, flame_ui, width_of};
use crate::gui::widgets::tile::Emphasis;
use crate::gui::widgets::{Memo, flame, theme, tile};
use crate::report::compared;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Node(u32),
    /// Children of a node that are too narrow to draw, merged: their number, and their bytes in A and B.
    Rest {
        count: usize,
        bytes: [u64; 2],
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Select the group with this index.
    Choose(usize),
    /// Filter both sides to the group with this index.
    Filter(usize),
}

type Bars = Vec<Bar<What>>;

#[derive(Debug, Default)]
pub(super) struct Flame {
    focus: u32,
    /// The node with the keyboard focus.
    at: u32,
    bars: Memo<(Identity<Answer>, u32, f32), Arc<Bars>>,
}

/// Returns the bars of `focus`, its ancestors and its descendants, ordered by row, then from left to right.
fn bars(tree: &DiffTree, focus: u32, width: f32) -> Bars {
    // The common trunk is one bar: the functions that start a program carry no information.
    let trunk = trunk(tree);
    let inner = trunk.last().copied().unwrap_or(DiffTree::ROOT);
    let focus = if focus == DiffTree::ROOT || trunk.contains(&focus) { inner } else { focus };
    let path = tree.path(focus);
    let above = path.into_iter().filter(|id| *id == inner || !trunk.contains(id));
    let above = std::iter::once(DiffTree::ROOT).chain(above).map(What::Node);
    flame::bars(above, (focus, tree.node(focus).extent), width, |id, least| parts(tree, id, least))
}

/// Returns the children of a node, widest first, with those smaller than `least` bytes merged.
fn parts(tree: &DiffTree, id: u32, least: f64) -> Vec<Part<u32, What>> {
    let children = &tree.node(id).children;
    let wide = children.partition_point(|child| tree.node(*child).extent as f64 >= least.max(1.0));
    let rest = &children[wide..];
    let sum = |of: fn(&DiffNode) -> u64| rest.iter().map(|child| of(tree.node(*child))).sum::<u64>();
    let bytes = [sum(|node| node.bytes[0]), sum(|node| node.bytes[1])];
    let merged = Part { item: What::Rest { count: rest.len(), bytes }, size: sum(|node| node.extent), child: None };
    let part = |&child: &u32| Part { item: What::Node(child), size: tree.node(child).extent, child: Some(child) };
    children[..wide].iter().map(part).chain((merged.size > 0).then_some(merged)).collect()
}

/// The chain of nodes below the root that all groups share.
fn trunk(tree: &DiffTree) -> Vec<u32> {
    let mut trunk = Vec::new();
    let mut at = DiffTree::ROOT;
    while let ([only], None) = (&tree.node(at).children[..], tree.node(at).group) {
        trunk.push(*only);
        at = *only;
    }
    trunk
}

impl Flame {
    /// Zooms out to the root, when another tree is shown.
    pub(super) fn reset(&mut self) {
        (self.focus, self.at) = (DiffTree::ROOT, DiffTree::ROOT);
    }

    /// `chosen` is the index of the selected group.
    pub(super) fn flame_ui(&mut self, ui: &mut Ui, answer: &Arc<Answer>, chosen: Option<usize>) -> Option<Act> {
        legend_ui(ui);
        let width = width_of(ui);
        let key = (Identity::of(answer), self.focus, width);
        let bars = Arc::clone(self.bars.get(key, |_| Arc::new(bars(&answer.tree, self.focus, width))));
        let keys: Vec<&str> = answer.keys.iter().map(|key| key.name()).collect();
        let label = format!("Flame graph of the difference by {}", keys.join(", "));
        flame_ui(ui, &label, &bars, |ui, response, visible| {
            let clicked = self.bars_ui(ui, response, visible, answer, chosen);
            match clicked {
                Some(What::Node(id)) => self.go(&answer.tree, id),
                _ => self.walk(ui, response, &answer.tree, &bars),
            }
        })
    }

    fn bars_ui(
        &self,
        ui: &Ui,
        response: &Response,
        visible: Vec<(usize, Rect, &What)>,
        answer: &Answer,
        chosen: Option<usize>,
    ) -> Option<What> {
        let tree = &answer.tree;
        let mut clicked = None;
        for (index, place, what) in visible {
            let (name, bytes, change) = facts(tree, answer.leak.as_deref(), *what);
            let words =
                tile::with_amount(ui, place, &name, &format_signed_bytes(i128::from(bytes[1]) - i128::from(bytes[0])));
            let on_bar = ui.interact(place, response.id.with(index), Sense::CLICK);
            on_bar.widget_info(|| {
                WidgetInfo::labeled(Role::Button, true, format!("{name}: {}, {}", words_of(bytes), change.name()))
            });
            let group = if let What::Node(id) = what { tree.node(*id).group } else { None };
            let is_chosen = response.has_focus() && *what == What::Node(self.at)
                || group.is_some() && group.map(|group| group as usize) == chosen;
            let emphasis = Emphasis { is_hovered: on_bar.hovered(), is_chosen };
            tile::paint(ui, place, theme::change(change), [&words, ""], emphasis);
            if on_bar.clicked() {
                response.request_focus();
                clicked = Some(*what);
            }
            on_bar.on_hover_ui(|ui| {
                ui.set_max_width(theme::TOOLTIP_WIDTH);
                ui.label(&name);
                ui.strong(format!("{}, {}", words_of(bytes), change.name()));
                ui.label(format!("{} B and {} B", format_count(bytes[0]), format_count(bytes[1])));
            });
        }
        tile::focus_frame(ui, response);
        clicked
    }

    /// Zooms into a node, or selects the group of a node without children.
    fn go(&mut self, tree: &DiffTree, id: u32) -> Option<Act> {
        self.at = id;
        let node = tree.node(id);
        if node.children.is_empty() {
            return Some(Act::Choose(node.group? as usize));
        }
        self.focus = id;
        None
    }

    fn walk(&mut self, ui: &Ui, response: &Response, tree: &DiffTree, bars: &[Bar<What>]) -> Option<Act> {
        let walked = tile::walked(ui, response);
        if walked.leaves {
            let parent = tree.node(self.focus).parent;
            self.focus = if trunk(tree).contains(&parent) { DiffTree::ROOT } else { parent };
            self.at = self.focus;
            return None;
        }
        let is_drawn = |id: u32| bars.iter().any(|bar| bar.item == What::Node(id));
        let next = match walked.by {
            [0, 0] if walked.filters => return Some(Act::Filter(tree.node(self.at).group? as usize)),
            [0, 0] if walked.enters => return self.go(tree, self.at),
            [0, 0] => return None,
            [0, down] if down > 0 => below(tree, self.at).find(|id| is_drawn(*id))?,
            // Nodes of the trunk have no bar of their own.
            [0, _] => above(tree, self.at).find(|id| is_drawn(*id)).unwrap_or(DiffTree::ROOT),
            [right, _] => {
                let siblings = &tree.node(tree.node(self.at).parent).children;
                let row = siblings.iter().position(|id| *id == self.at)? as i64;
                siblings[(row + i64::from(right)).clamp(0, siblings.len() as i64 - 1) as usize]
            }
        };
        if is_drawn(next) {
            self.at = next;
        }
        None
    }
}

/// The ancestors of a node, nearest first.
fn above(tree: &DiffTree, id: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(tree.node(id).parent), |id| (*id != DiffTree::ROOT).then(|| tree.node(*id).parent))
}

/// Returns a chain of descendants of a node: its widest child, the widest child of that child, and so on.
fn below(tree: &DiffTree, id: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(tree.node(id).children.first().copied(), |id| tree.node(*id).children.first().copied())
}

fn facts(tree: &DiffTree, leak: Option<&str>, what: What) -> (String, [u64; 2], Change) {
    match what {
        What::Node(DiffTree::ROOT) => {
            let root = tree.node(DiffTree::ROOT);
            ("all".to_owned(), root.bytes, root.change())
        }
        What::Node(id) => {
            let node = tree.node(id);
            let left_out = above(tree, id).take_while(|id| *id != DiffTree::ROOT).count();
            let is_trunk = left_out > 0 && above(tree, id).all(|id| tree.node(id).children.len() == 1);
            let callers = if left_out == 1 { "caller" } else { "callers" };
            let name = match leak {
                Some(leak) if node.name == Category::Unknown.name() => Cow::Borrowed(leak),
                _ => readable_line(&node.name),
            };
            let name = if is_trunk { format!("{name} (and its {left_out} {callers})") } else { name.into_owned() };
            (name, node.bytes, node.change())
        }
        What::Rest { count, bytes } => {
            (format!("{} more", format_count(count as u64)), bytes, Change::of(bytes, [0, 0]))
        }
    }
}

fn words_of(bytes: [u64; 2]) -> String {
    let [a, b, delta] = compared(bytes);
    format!("A {a}, B {b}, {delta}")
}

fn legend_ui(ui: &mut Ui) {
    ui.horizontal_wrapped(|ui| {
        for &change in Change::ALL {
            theme::swatch_ui(ui, theme::change(change));
            ui.add(Label::new(change.name()).extend());
        }
        ui.weak("A bar is as wide as the larger side.");
    });
}

#[cfg(test)]
mod tests {
    use highwater_analysis::GroupKey;
    use highwater_analysis::diff::{DiffGroup, MatchKind, StackText};
    use highwater_snapshots::tables::Tables;

    use super::*;

    #[test]
    fn bars_fill_the_row_above_and_what_is_too_narrow_is_one() {
        let group = |name: &str, bytes: [u64; 2]| DiffGroup {
            key: vec![name.to_owned()],
            former_key: None,
            stacks: [highwater_snapshots::StackId::NONE; 2],
            bytes,
            blocks: [1, 1],
            match_kind: MatchKind::Equal,
            members: Vec::new(),
        };
        let groups = [group("a", [600, 100]), group("b", [100, 390]), group("c", [6, 2]), group("d", [4, 4])];
        let tables = Tables::default();
        let stacks = StackText { tables: [&tables; 2], hides_internals: true };
        let tree = DiffTree::of(&groups, &[GroupKey::Category], &stacks);
        let bars = bars(&tree, DiffTree::ROOT, 100.0);
        let inner: Vec<&Bar<What>> = bars.iter().filter(|bar| bar.row == 1).collect();
        assert_eq!(inner.len(), 3);
        assert!((inner[0].left, inner[2].right) == (0.0, 100.0) && inner[0].right == inner[1].left);
        assert_eq!(inner[2].item, What::Rest { count: 2, bytes: [10, 6] });
        assert_eq!(facts(&tree, None, inner[0].item).2, Change::Shrunk);
    }
}
