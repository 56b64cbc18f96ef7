//! One rectangle of a treemap or flame graph: its node, colour, label and tooltip.

use eframe::egui::{
    Color32, FontId, Painter, Rect, Response, Role, Sense, Stroke, StrokeKind, TextFormat, Ui, WidgetInfo, pos2, vec2,
};
use highwater_analysis::pools::BlockPool;
use highwater_analysis::tree::{NodeId, Part};
use highwater_analysis::{GroupKey, Lifetime, Origin, Tree, TreeKey};
use highwater_snapshots::Category;
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::units::{format_bytes, format_count};

use super::job::Answer;
use super::names;
use crate::gui::legend::share;
use crate::gui::widgets::fit::fitted;
use crate::gui::widgets::theme::{self, Shades};

/// The content of a rectangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A node with everything below it.
    Node(NodeId),
    /// The own blocks of a node, which belong to none of its children.
    Own(NodeId),
    /// The children of a node that are too small to show, merged.
    Rest {
        /// The node.
        of: NodeId,
        /// Number of children.
        count: u32,
    },
}

/// A part of a node's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) what: What,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// A node's children and own bytes, largest first, then all parts below `least` bytes merged: together all of its
/// bytes.
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

/// The user's request on a tile, a bar or a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Zoom into this node.
    Enter(NodeId),
    /// Show the blocks of this node.
    Choose(NodeId),
    /// Filter to the blocks of this node.
    Filter(NodeId),
    /// Show this node as a table.
    List(NodeId),
    /// Zoom out to the parent.
    Up,
}

/// The name on a tile.
pub(super) fn name(answer: &Answer, item: &Item) -> String {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    match item.what {
        What::Node(id) => names::short(recording, tree, id),
        What::Own(id) => format!("{} itself", names::short(recording, tree, id)),
        What::Rest { count, .. } => format!("{} more", format_count(u64::from(count))),
    }
}

/// The colour of a tile: that of the category or the frame's role; otherwise derived from the name.
pub(super) fn colour(answer: &Answer, what: What) -> Color32 {
    let tree = &answer.tree;
    let trace = &answer.request.source.recording.trace;
    let id = match what {
        What::Node(id) | What::Own(id) => id,
        What::Rest { .. } => return theme::NEUTRAL,
    };
    let node = tree.node(id);
    let is_stack = tree.query().keys.get(usize::from(node.level)) == Some(&TreeKey::By(GroupKey::Stack));
    match node.part {
        Part::Category(category) => theme::category(category),
        Part::Block(block) => {
            let category = trace.blocks.category.get(block.0 as usize).copied().unwrap_or(Category::Unknown);
            theme::instance(theme::category(category), block.0 as usize)
        }
        Part::Phase(Origin::Phase(phase)) => theme::entry(phase as usize, 6),
        Part::All | Part::Beside(_) | Part::FreeIn(_) | Part::Line(None) | Part::Step(None) | Part::Phase(_) => {
            theme::NEUTRAL
        }
        Part::Line(Some(_)) if is_stack => theme::instance(theme::role(node.role), id.0 as usize),
        Part::Lifetime(lifetime) => theme::entry(lifetime as usize, Lifetime::ALL.len()),
        Part::Pool(BlockPool::Shared(pool)) => theme::entry(pool as usize, 2),
        // Equal names have equal colours at every moment.
        _ => theme::named(&tree.name(&trace.tables, id)),
    }
}

/// The accessibility label of a tile.
pub(super) fn label(answer: &Answer, item: &Item) -> String {
    format!("{}: {}", name(answer, item), format_bytes(item.bytes))
}

/// Adds hover highlight, label and tooltip to a painted tile.
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
            ui.label(format!("{}: blocks in none of the parts", name(answer, item)));
        }
        What::Rest { .. } => {
            ui.label(format!("{}, each too small to draw. Click to list them.", name(answer, item)));
        }
    }
    let exact = format!("{} ({} B)", format_bytes(item.bytes), format_count(item.bytes));
    ui.strong(format!("{exact} in {}", names::counted(item.blocks, "block")));
    let focus = tree.node(answer.focus);
    ui.label(format!(
        "{} of what is shown, {} of all",
        share(item.bytes, focus.bytes),
        share(item.bytes, tree.total())
    ));
}

/// How a tile is highlighted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Emphasis {
    pub(crate) is_hovered: bool,
    pub(crate) is_chosen: bool,
}

/// Paints a tile with its label at the top, if there is room for it.
pub(crate) fn paint(ui: &Ui, rect: Rect, fill: Color32, texts: [&str; 2], emphasis: Emphasis) {
    /// Space left free between neighbours.
    const GAP: f32 = 0.5;
    let shades = Shades::in_ui(ui);
    let inner = rect.shrink(GAP.min(rect.width() / 4.0).min(rect.height() / 4.0));
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    painter.rect_filled(inner, 1.0, fill);
    if emphasis.is_hovered || emphasis.is_chosen {
        let stroke = Stroke::new(if emphasis.is_chosen { 2.0 } else { 1.0 }, shades.pinned);
        painter.rect_stroke(inner, 1.0, stroke, StrokeKind::Inside);
    }
    let ink = theme::ink(fill);
    let mut top = inner.top() + 1.0;
    for text in texts.into_iter().filter(|text| !text.is_empty()).flat_map(|text| rows(ui, inner, text)) {
        let Some(height) = line(ui, &painter, inner, top, &text, ink) else {
            return;
        };
        top += height;
    }
}

/// A name followed by an amount, which is left out if there is no room for both.
pub(crate) fn with_amount(ui: &Ui, rect: Rect, name: &str, amount: &str) -> String {
    let both = format!("{name}  {amount}");
    if fits(ui, rect, &both) { both } else { name.to_owned() }
}

/// Whether the rectangle has room for a one-row label.
pub(crate) fn fits(ui: &Ui, rect: Rect, text: &str) -> bool {
    let galley = ui.painter().layout_no_wrap(text.to_owned(), FontId::proportional(12.0), Color32::PLACEHOLDER);
    galley.size().x <= rect.width() - 2.0 * MARGIN
}

/// Space to the left and right of a label.
const MARGIN: f32 = 3.0;

/// A label's rows: a source line that is too wide takes two if there is room for them: file and number above the
/// function.
fn rows(ui: &Ui, rect: Rect, text: &str) -> Vec<String> {
    let font = FontId::proportional(12.0);
    let line = LineText::parse(text);
    let room = rect.width() - 2.0 * MARGIN;
    let is_cut = || fitted(ui, text, &font, room, false).is_none_or(|shown| *shown != *text);
    if line.line == 0 || line.function.is_empty() || rect.height() < 3.0 * theme::TILE_HEADER || !is_cut() {
        return vec![text.to_owned()];
    }
    vec![LineText { function: "", ..line }.to_string(), line.function.to_owned()]
}

/// Paints one row of text at `top`, shortened to the rectangle's width; `None` if it does not fit.
fn line(ui: &Ui, painter: &Painter, rect: Rect, top: f32, text: &str, ink: Color32) -> Option<f32> {
    let room = rect.width() - 2.0 * MARGIN;
    if room < theme::MIN_LABEL {
        return None;
    }
    let format = TextFormat::simple(FontId::proportional(12.0), ink);
    let text = fitted(ui, text, &format.font_id, room, false)?;
    let mut job = eframe::egui::text::LayoutJob::single_section(text.into_owned(), format);
    job.break_on_newline = false;
    job.wrap = eframe::egui::text::TextWrapping::truncate_at_width(room);
    let galley = painter.layout_job(job);
    let size = galley.size();
    if top + size.y > rect.bottom() + 1.5 {
        return None;
    }
    painter.galley(pos2(rect.left() + MARGIN, top), galley, ink);
    Some(size.y)
}

/// The navigation keys pressed while a picture has the keyboard focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Steps to the right and down.
    pub(crate) by: [i32; 2],
    pub(crate) enters: bool,
    pub(crate) leaves: bool,
    pub(crate) filters: bool,
}

/// Reads the keys while `response` has the keyboard focus.
pub(crate) fn walked(ui: &Ui, response: &Response) -> Walked {
    use eframe::egui::{EventFilter, Key, Modifiers};
    if !response.has_focus() {
        return Walked::default();
    }
    let filter = EventFilter { tab: false, horizontal_arrows: true, vertical_arrows: true, escape: false };
    ui.memory_mut(|memory| memory.set_focus_lock_filter(response.id, filter));
    let pressed = |key| ui.input_mut(|input| input.count_and_consume_key(Modifiers::NONE, key)) as i32;
    Walked {
        by: [pressed(Key::ArrowRight) - pressed(Key::ArrowLeft), pressed(Key::ArrowDown) - pressed(Key::ArrowUp)],
        filters: ui.input_mut(|input| input.consume_key(Modifiers::SHIFT, Key::Enter)),
        enters: pressed(Key::Enter) > 0,
        leaves: pressed(Key::Backspace) > 0,
    }
}

/// Outlines a picture that has the keyboard focus.
pub(crate) fn focus_frame(ui: &Ui, response: &Response) {
    if response.has_focus() {
        let stroke = Stroke::new(1.0, Shades::in_ui(ui).faint);
        ui.painter().rect_stroke(response.rect.expand2(vec2(1.0, 1.0)), 2.0, stroke, StrokeKind::Outside);
    }
}
