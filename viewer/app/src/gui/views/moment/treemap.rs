//! Shows the groups as nested rectangles, into which the user can zoom.

use eframe::egui::{Rect, Role, Sense, Ui, WidgetInfo, pos2};
use highwater_analysis::{NodeId, Tree};
use highwater_snapshots::format_bytes;

use super::job::Answer;
use super::names;
use super::squarify::squarify;
use super::tile::{self, Act, Item, What};
use crate::gui::identity::Identity;
use crate::gui::widgets::tile::{Emphasis, fits, focus_frame, paint, walked, with_amount};
use crate::gui::widgets::{Memo, theme};

#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) rect: Rect,
    pub(super) item: Item,
    /// Nesting depth: 0 for parts of the focus, 1 for their parts, and so on.
    pub(super) depth: u8,
    /// Whether the tile contains tiles of the next depth.
    is_filled: bool,
    /// The node of the outermost tile that contains this one.
    part_of: Option<NodeId>,
}

#[derive(Debug, Default)]
pub(super) struct Treemap {
    tiles: Memo<(Identity<Tree>, NodeId, Rect), Vec<Tile>>,
}

/// Goes down from `id` as long as the node has nothing but a single child, which is no leaf.
pub(super) fn first_fork(tree: &Tree, id: NodeId) -> NodeId {
    let mut at = id;
    loop {
        let node = tree.node(at);
        let mut children = node.children();
        match (children.next(), children.len()) {
            (Some(only), 0) if node.own_blocks == 0 && node.own_bytes == 0 && !tree.node(only).is_leaf() => at = only,
            _ => return at,
        }
    }
}

/// Maximum nesting depth of tiles, which is enough to show `encoder`, `layers`, `3` under a category.
const MAX_DEPTH: u8 = 3;

/// Returns the tiles of `focus` in `rect`, outer tiles before inner ones; the tiles of each depth fill their parent.
pub(super) fn tiles(tree: &Tree, focus: NodeId, rect: Rect) -> Vec<Tile> {
    let mut out = Vec::new();
    lay_out(tree, first_fork(tree, focus), rect, None, &mut out);
    let mut row = 0;
    while let Some(Tile { rect, item, depth, part_of, .. }) = out.get(row).cloned() {
        let mut inner = rect.shrink(2.0);
        inner.min.y += theme::TILE_HEADER;
        let has_room = inner.width() > 2.0 * theme::MIN_LABEL && inner.height() > theme::TILE_HEADER;
        if let What::Node(id) = item.what
            && has_room
            && depth < MAX_DEPTH
            && !tree.node(id).is_leaf()
        {
            out[row].is_filled = true;
            lay_out(tree, first_fork(tree, id), inner, Some((depth, part_of.unwrap_or(id))), &mut out);
        }
        row += 1;
    }
    out
}

/// Lays out the parts of `id`; `within` is the depth and the outermost node of the surrounding tile.
fn lay_out(tree: &Tree, id: NodeId, rect: Rect, within: Option<(u8, NodeId)>, out: &mut Vec<Tile>) {
    let area = f64::from(rect.width() * rect.height());
    let node = tree.node(id);
    let least = theme::MIN_TILE * node.bytes as f64 / area.max(1.0);
    let mut items = tile::items(tree, id, least);
    if node.is_leaf() && node.bytes > 0 {
        items.push(Item { what: What::Node(id), bytes: node.bytes, blocks: u64::from(node.blocks) });
    }
    let weights: Vec<f64> = items.iter().map(|item| item.bytes as f64).collect();
    let places = squarify(&weights, rect);
    let depth = within.map_or(0, |(depth, _)| depth + 1);
    let part_of = within.map(|(_, outermost)| outermost);
    let tile = |(item, rect)| Tile { rect, item, depth, part_of, is_filled: false };
    out.extend(items.into_iter().zip(places).map(tile));
}

impl Treemap {
    pub(super) fn treemap_ui(&mut self, ui: &mut Ui, answer: &Answer) -> Option<Act> {
        let (rect, _) = ui.allocate_exact_size(ui.available_size(), Sense::hover());
        // Keeps the focus whatever widgets appear above.
        let response = ui.interact(rect, ui.scope_id().with("treemap"), Sense::click());
        response.widget_info(|| {
            WidgetInfo::labeled(Role::Group, true, format!("Treemap by {}", names::keys(&answer.tree)))
        });
        let key = (Identity::of(&answer.tree), answer.focus, rect);
        let tiles = &**self.tiles.get(key, |_| tiles(&answer.tree, answer.focus, rect));
        let chosen = answer.chosen.as_ref().map(|chosen| chosen.node);
        let mut act = None;
        for (row, tile) in tiles.iter().enumerate() {
            if tile.rect.width() < 1.0 || tile.rect.height() < 1.0 {
                continue;
            }
            let outer = tile.part_of.map_or(theme::NEUTRAL, |id| tile::colour(answer, What::Node(id)));
            let on_tile = tile::respond(ui, tile.rect, (response.id, row), answer, &tile.item);
            let is_chosen = matches!(tile.item.what, What::Node(id) | What::Own(id) if Some(id) == chosen);
            let emphasis = Emphasis { is_hovered: on_tile.hovered(), is_chosen };
            let name = tile::name(answer, &tile.item);
            let bytes = format_bytes(tile.item.bytes);
            let texts = if tile.is_filled {
                [with_amount(ui, tile.rect, &name, &bytes), String::new()]
            } else {
                let bytes = Some(bytes).filter(|bytes| fits(ui, tile.rect, bytes));
                [name, bytes.unwrap_or_default()]
            };
            // Inner tiles have the colour of the outermost tile, so that every colour has one meaning.
            let colour = match tile.item.what {
                What::Node(id) | What::Own(id) if tile.depth > 0 => theme::instance(outer, id.0 as usize),
                what => tile::colour(answer, what),
            };
            // Darker if it contains other tiles, to set them apart.
            let colour = if tile.is_filled { theme::edge(colour) } else { colour };
            paint(ui, tile.rect, colour, [&texts[0], &texts[1]], emphasis);
            if on_tile.clicked() {
                response.request_focus();
                act = click(tiles, answer, tile);
            }
            if on_tile.double_clicked()
                && tile.depth == 0
                && let What::Node(id) = tile.item.what
                && answer.tree.node(id).is_leaf()
            {
                act = Some(Act::Filter(id));
            }
        }
        focus_frame(ui, &response);
        walk(ui, &response, (tiles, answer), chosen).or(act)
    }
}

fn walk(
    ui: &Ui,
    response: &eframe::egui::Response,
    (tiles, answer): (&[Tile], &Answer),
    chosen: Option<NodeId>,
) -> Option<Act> {
    let walked = walked(ui, response);
    if walked.leaves {
        return Some(Act::Up);
    }
    let chosen = chosen.filter(|id| place_of(tiles, *id).is_some());
    if walked.by != [0, 0] {
        let next = match chosen.and_then(|id| place_of(tiles, id)) {
            Some(from) => neighbour(tiles, from, walked.by),
            None => tiles.iter().find_map(node_of),
        };
        return next.map(Act::Choose);
    }
    match chosen {
        Some(id) if walked.filters => Some(Act::Filter(id)),
        Some(id) if walked.enters => {
            Some(if answer.tree.node(id).is_leaf() { Act::Filter(id) } else { Act::Enter(id) })
        }
        _ => None,
    }
}

/// Zooms in by one level after a click anywhere within a tile.
fn click(tiles: &[Tile], answer: &Answer, tile: &Tile) -> Option<Act> {
    let tree = &answer.tree;
    let (What::Node(id) | What::Own(id) | What::Rest { of: id, .. }) = tile.item.what;
    if tile.depth > 0 {
        let outer = tiles.iter().filter_map(node_of);
        return outer.into_iter().find(|outer| tree.is_within(id, *outer)).map(Act::Enter);
    }
    Some(match tile.item.what {
        What::Node(_) if tree.node(id).is_leaf() => Act::Choose(id),
        What::Node(_) => Act::Enter(id),
        What::Own(_) | What::Rest { .. } => Act::List(id),
    })
}

fn place_of(tiles: &[Tile], id: NodeId) -> Option<Rect> {
    tiles.iter().find(|tile| node_of(tile) == Some(id)).map(|tile| tile.rect)
}

/// Returns the node of an outermost tile, for keyboard navigation; `None` for other tiles.
fn node_of(tile: &Tile) -> Option<NodeId> {
    match tile.item.what {
        What::Node(id) if tile.depth == 0 => Some(id),
        _ => None,
    }
}

/// The nearest outermost tile in the direction `by`.
fn neighbour(tiles: &[Tile], from: Rect, by: [i32; 2]) -> Option<NodeId> {
    let center = from.center();
    let way = |rect: &Rect| {
        let to = pos2(center.x.clamp(rect.left(), rect.right()), center.y.clamp(rect.top(), rect.bottom()));
        let (across, along) = if by[0] == 0 {
            ((to.x - center.x).abs(), (rect.center().y - center.y) * by[1].signum() as f32)
        } else {
            ((to.y - center.y).abs(), (rect.center().x - center.x) * by[0].signum() as f32)
        };
        (along > 0.5).then_some(along + 2.0 * across)
    };
    let near = tiles.iter().filter_map(|tile| Some((way(&tile.rect)?, node_of(tile)?)));
    near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, id)| id)
}
