//! The content of a rectangle in the treemap or flame graph: its node, colour, label and tooltip.

use eframe::egui::{Color32, Rect, Response, Role, Sense, Ui, WidgetInfo};
use highwater_analysis::tree::Part;
use highwater_analysis::{GroupKey, NodeId, Tree, TreeKey};
use highwater_snapshots::{Category, count_of, format_bytes, format_count, format_share};

use super::job::Answer;
use super::names;
use crate::gui::colouring::fixed_colour;
use crate::gui::widgets::theme;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A node with its descendants.
    Node(NodeId),
    /// The blocks of a node that belong to none of its children.
    Own(NodeId),
    /// Merged children of a node that are too small to show.
    Rest {
        of: NodeId,
        /// Number of children that are merged.
        count: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) what: What,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// Returns a node's children, those below `least` bytes merged, and its own bytes if it has children, largest first.
/// The items of a node with children add up to its bytes.
pub(super) fn items(tree: &Tree, id: NodeId, least: f64) -> Vec<Item> {
    let node = tree.node(id);
    let (mut bytes, mut blocks) = (node.bytes - node.own_bytes, u64::from(node.blocks - node.own_blocks));
    let mut out = Vec::new();
    let mut children = node.children();
    let count = children.len();
    for child in children.by_ref() {
        let below = tree.node(child);
        if below.bytes == 0 || (below.bytes as f64) < least {
            break;
        }
        out.push(Item { what: What::Node(child), bytes: below.bytes, blocks: u64::from(below.blocks) });
        (bytes, blocks) = (bytes - below.bytes, blocks - u64::from(below.blocks));
    }
    let left = count - out.len();
    if node.own_bytes > 0 && count > 0 {
        let own = Item { what: What::Own(id), bytes: node.own_bytes, blocks: u64::from(node.own_blocks) };
        let at = out.partition_point(|item| item.bytes >= own.bytes);
        out.insert(at, own);
    }
    if bytes > 0 {
        out.push(Item { what: What::Rest { of: id, count: left as u32 }, bytes, blocks });
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Enter(NodeId),
    Choose(NodeId),
    Filter(NodeId),
    List(NodeId),
    Up,
}

pub(super) fn name(answer: &Answer, item: &Item) -> String {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    match item.what {
        What::Node(id) => names::short(recording, tree, id),
        What::Own(id) => format!("{} itself", names::short(recording, tree, id)),
        What::Rest { count, .. } => format!("{} more", format_count(u64::from(count))),
    }
}

/// Returns the colour of a tile: that of the frame's role, or of most of its bytes in the timeline; otherwise that of
/// the category, or one derived from the name.
pub(super) fn colour(answer: &Answer, what: What) -> Color32 {
    let tree = &answer.tree;
    let trace = &answer.request.source.recording.trace;
    let id = match what {
        What::Node(id) | What::Own(id) => id,
        What::Rest { .. } => return theme::NEUTRAL,
    };
    let node = tree.node(id);
    let is_stack = tree.query().keys.get(usize::from(node.level)) == Some(&TreeKey::By(GroupKey::Stack));
    // Equal names have equal colours at every moment.
    let named = || theme::named(&tree.name(&trace.tables, id));
    if let Some(colour) = of_timeline(answer, id).filter(|_| !is_stack) {
        return theme::instance(colour, id.0 as usize);
    }
    match node.part {
        Part::Block(block) => {
            let category = trace.blocks.category.get(block.0 as usize).copied().unwrap_or(Category::Unknown);
            theme::instance(theme::category(category), block.0 as usize)
        }
        Part::All | Part::Beside(_) | Part::FreeIn(_) | Part::Line(None) | Part::Value(_, None) => theme::NEUTRAL,
        Part::Line(Some(_)) if is_stack => theme::instance(theme::role(node.role), id.0 as usize),
        Part::Value(key, Some(number)) => fixed_colour(key, number).unwrap_or_else(named),
        Part::Scope(_) | Part::Line(Some(_)) => named(),
    }
}

fn of_timeline(answer: &Answer, id: NodeId) -> Option<Color32> {
    let is_of_blocks = !matches!(answer.tree.node(id).part, Part::All | Part::Beside(_) | Part::FreeIn(_));
    answer.colours.get(id.0 as usize).copied().filter(|_| is_of_blocks)
}

/// Returns the colour next to the name of a row; `None` if a colour would be meaningless.
pub(super) fn row_colour(answer: &Answer, id: NodeId) -> Option<Color32> {
    let has_own = matches!(answer.tree.node(id).part, Part::Value(GroupKey::Category, _) | Part::Block(_));
    of_timeline(answer, id).or_else(|| has_own.then(|| colour(answer, What::Node(id))))
}

pub(super) fn label(answer: &Answer, item: &Item) -> String {
    format!("{}: {}", name(answer, item), format_bytes(item.bytes))
}

/// Adds interaction, an accessibility label and a tooltip to a tile.
pub(super) fn respond(ui: &Ui, rect: Rect, salt: (eframe::egui::Id, usize), answer: &Answer, item: &Item) -> Response {
    let response = ui.interact(rect, salt.0.with(salt.1), Sense::CLICK);
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, label(answer, item)));
    response.on_hover_ui(|ui| hover_ui(ui, answer, item))
}

fn hover_ui(ui: &mut Ui, answer: &Answer, item: &Item) {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    ui.set_max_width(theme::TOOLTIP_WIDTH);
    match item.what {
        What::Node(id) if id == NodeId::ROOT => {}
        What::Node(id) => ui
            .label(names::in_full(recording, tree, id).join("\n").replace("; ", "\n"))
            .widget_info(|| WidgetInfo::new(Role::Label)),
        What::Own(_) => {
            ui.label(format!("{}: blocks that are in no subgroup", name(answer, item)));
        }
        What::Rest { .. } => {
            ui.label(format!("{}, each too small to draw. Click to list them.", name(answer, item)));
        }
    }
    let exact = format!("{} ({} B)", format_bytes(item.bytes), format_count(item.bytes));
    ui.strong(format!("{exact} in {}", count_of(item.blocks, "block")));
    let focus = tree.node(answer.focus);
    ui.label(format!(
        "{} of the shown bytes, {} of all bytes",
        format_share(item.bytes, focus.bytes),
        format_share(item.bytes, tree.total())
    ));
}
