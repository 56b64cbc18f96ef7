//! The address map at one moment: all segments with their pieces, row by row.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{
    Align2, Color32, ColorImage, FontId, Key, Rect, Response, Role, Sense, Stroke, StrokeKind, TextureHandle,
    TextureOptions, Ui, WidgetInfo, pos2, vec2,
};
use highwater_analysis::AddressMap;
use highwater_analysis::addresses::{Content, Piece};
use highwater_snapshots::{BlockId, count_of, format_bytes};

use super::facts::{piece_lines, segment_lines, tooltip_ui};
use super::known::State;
use super::layout::{Layout, MAX_ZOOM, Strip};
use super::look::{PERIOD, Paint, is_same};
use crate::gui::colouring::Colouring;
use crate::gui::views::block::block_menu_ui;
use crate::gui::views::view::{Action, ViewContext};
use crate::gui::widgets::{pressed_keys, theme};

/// The inputs from which the picture of the map was drawn.
#[derive(Clone)]
struct Drawn {
    state: Arc<State>,
    colouring: Option<Arc<Colouring>>,
    /// Width, number of visible rows, zoom level, and first row.
    size: [usize; 4],
    is_normalised: bool,
    is_dark: bool,
    scale: usize,
}

impl Drawn {
    fn is_same(&self, other: &Self) -> bool {
        self.has_same_layout(other)
            && is_same(self.colouring.as_ref(), other.colouring.as_ref())
            && self.size == other.size
            && (self.is_dark, self.scale) == (other.is_dark, other.scale)
    }

    fn has_same_layout(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
            && self.is_normalised == other.is_normalised
            && self.size[1..3] == other.size[1..3]
    }
}

#[derive(Default)]
pub(super) struct Chart {
    /// Whether every segment has a row of full width; otherwise all segments have the same scale.
    pub(super) is_normalised: bool,
    /// Each level doubles the scale.
    pub(super) zoom: u32,
    first: usize,
    turned: f32,
    layout: Layout,
    drawn: Option<(Drawn, TextureHandle)>,
    /// The focused address, for keyboard navigation.
    cursor: Option<u64>,
    menu_target: Option<BlockId>,
}

impl std::fmt::Debug for Chart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chart").field("zoom", &self.zoom).field("first", &self.first).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Marked {
    /// The first address of the selected segment.
    pub(super) segment: Option<u64>,
    /// The range that would have to be freed for a failed request.
    pub(super) range: Option<Range<u64>>,
}

#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// The segment that was clicked or reached by keyboard, by its index in the map.
    pub(super) segment: Option<usize>,
    pub(super) action: Option<Action>,
}

impl Chart {
    /// Moves the keyboard cursor to `address`, and scrolls to its row.
    pub(super) fn show(&mut self, address: u64) {
        self.cursor = Some(address);
        if let Some(strip) = self.layout.strips.iter().find(|strip| strip.addresses.contains(&address)) {
            self.first = strip.row.saturating_sub(2);
        }
    }

    pub(super) fn chart_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        (state, colouring): (&Arc<State>, Option<&Arc<Colouring>>),
        paint: &Paint<'_>,
        marked: &Marked,
    ) -> Chosen {
        let (whole, _) = ui.allocate_exact_size(ui.available_size().max(vec2(80.0, 40.0)), Sense::hover());
        // Room for the address of each row.
        let labels = if whole.width() < 500.0 { 0.0 } else { 100.0 };
        let rect = whole.with_min_x(whole.left() + labels);
        let response = ui.interact(rect, ui.scope_id().with("address map"), Sense::click());
        let map = &state.map;
        let label = format!(
            "Address map: {}, {}, {} reserved",
            count_of(map.segments.len() as u64, "segment"),
            count_of(map.pieces.len() as u64, "piece"),
            format_bytes(map.usage.reserved())
        );
        let pitch = theme::MAP_ROW_HEIGHT + theme::MAP_ROW_GAP;
        let in_view = ((rect.height() / pitch) as usize).max(1);
        self.lay_out(state, (colouring, paint), rect, in_view, ui);
        let mut chosen = self.walk(ui, &response, state, in_view);
        response.widget_info(|| {
            let at = self.cursor.and_then(|address| map.piece_at(address));
            let at = at.map_or_else(String::new, |(_, piece)| format!("; at {}", brief(paint, piece)));
            WidgetInfo::labeled(Role::Canvas, true, format!("{label}{at}"))
        });
        if let Some((_, texture)) = &self.drawn {
            let place = Rect::from_min_size(rect.min, vec2(rect.width(), in_view as f32 * pitch));
            let all = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
            ui.painter().with_clip_rect(rect).image(texture.id(), place, all, Color32::WHITE);
        }
        self.marks(ui, rect, in_view, map, (paint, marked), response.has_focus());
        for row in (0..in_view).filter(|_| labels > 0.0) {
            let Some(strip) = self.layout.in_rows(self.first + row..self.first + row + 1).first() else { break };
            let place = rect.left_top() + vec2(-6.0, row as f32 * pitch + theme::MAP_ROW_HEIGHT / 2.0);
            let (address, font) = (format!("{:#x}", strip.addresses.start), FontId::proportional(11.5));
            ui.painter().text(place, Align2::RIGHT_CENTER, address, font, paint.shades.faint);
        }
        let under = response.hover_pos().and_then(|at| {
            let row = self.first + ((at.y - rect.top()) / pitch).max(0.0) as usize;
            let share = f64::from((at.x - rect.left()) / rect.width());
            self.layout.in_rows(row..row + 1).iter().find_map(|strip| Some((strip.segment, strip.address_at(share)?)))
        });
        let under = under.and_then(|(segment, address)| Some((segment, map.piece_at(address)?)));
        if response.secondary_clicked() {
            self.menu_target = under.and_then(|(_, (_, piece))| piece.content.block());
        }
        let picked = block_menu_ui(&response, context.recording, context.selection.metric, self.menu_target);
        chosen.action = picked.or(chosen.action);
        if let Some((segment, (under, piece))) = under.filter(|_| !response.context_menu_opened()) {
            if response.clicked() {
                response.request_focus();
                self.cursor = Some(piece.addresses.start);
                chosen.segment = Some(segment);
                chosen.action = piece.content.block().map(Action::Block);
            }
            let colour = piece.content.block().map(|block| paint.block(block, false));
            response.on_hover_ui_at_pointer(|ui| {
                tooltip_ui(ui, colour, &piece_lines(paint.trace, piece, map.moment));
                ui.separator();
                tooltip_ui(ui, None, &segment_lines(under));
            });
        }
        chosen
    }

    /// Scrolls, and computes the layout and the picture again if anything that they depend on has changed.
    fn lay_out(
        &mut self,
        state: &Arc<State>,
        (colouring, paint): (Option<&Arc<Colouring>>, &Paint<'_>),
        rect: Rect,
        in_view: usize,
        ui: &Ui,
    ) {
        let width = ((rect.width() * ui.ctx().pixels_per_point()) as usize).clamp(1, 8192);
        let mut now = Drawn {
            state: Arc::clone(state),
            colouring: colouring.map(Arc::clone),
            size: [width, in_view, self.zoom as usize, self.first],
            is_normalised: self.is_normalised,
            is_dark: ui.visuals().dark_mode,
            scale: paint.scale,
        };
        if self.drawn.as_ref().is_none_or(|(drawn, _)| !drawn.has_same_layout(&now)) {
            self.layout = match self.is_normalised {
                true => Layout::one_each(&state.map, &state.order),
                false => Layout::to_scale(&state.map, &state.order, in_view, self.zoom),
            };
        }
        if ui.rect_contains_pointer(rect) {
            let pitch = theme::MAP_ROW_HEIGHT + theme::MAP_ROW_GAP;
            self.turned -= ui.input(|input| input.smooth_scroll_delta().y) / pitch;
            let whole = self.turned.trunc();
            self.turned -= whole;
            self.first = (self.first as i64 + whole as i64).max(0) as usize;
        }
        self.first = self.first.min(self.layout.rows.saturating_sub(in_view));
        now.size[3] = self.first;
        if self.drawn.as_ref().is_some_and(|(drawn, _)| drawn.is_same(&now)) {
            return;
        }
        let image = self.image(&state.map, paint, width, in_view);
        let texture = match self.drawn.take() {
            Some((_, mut texture)) => {
                texture.set(image, TextureOptions::NEAREST);
                texture
            }
            None => ui.ctx().load_texture("address map", image, TextureOptions::NEAREST),
        };
        self.drawn = Some((now, texture));
    }

    fn image(&self, map: &AddressMap, paint: &Paint<'_>, width: usize, in_view: usize) -> ColorImage {
        let tall = theme::MAP_ROW_HEIGHT as usize * paint.scale;
        let pitch = (theme::MAP_ROW_HEIGHT + theme::MAP_ROW_GAP) as usize * paint.scale;
        let mut pixels = vec![Color32::TRANSPARENT; width * pitch * in_view];
        for strip in self.layout.in_rows(self.first..self.first + in_view) {
            let top = (strip.row - self.first) * pitch;
            // Patterns repeat: their first lines are painted, the others copied.
            let painted = tall.min(PERIOD * paint.scale);
            let across = strip.pixels(width);
            // Narrow free ranges are bright and wider than they are, unless an eighth of the map would be.
            let (mut bright_to, least) = (0, 2 * paint.scale);
            let is_dense = map.usage.holes as usize * least * 8 > width * self.layout.rows;
            for (x, content, is_wide, is_end, hides_hole) in columns(map, strip, width) {
                let is_edge = is_end && is_wide && matches!(content, Content::Live(_));
                if !is_dense && (hides_hole || (content == Content::Hole && !is_wide)) {
                    bright_to = x + least;
                }
                for y in 0..painted {
                    let colour = paint.pixel(Some(content), x, y, is_wide);
                    let colour = if is_edge { theme::edge(colour) } else { colour };
                    if let Some(pixel) = pixels.get_mut((top + y) * width + x) {
                        *pixel = if x < bright_to { paint.shades.strong } else { colour };
                    }
                }
            }
            for y in painted..tall {
                let from = (top + y % painted) * width;
                pixels.copy_within(from + across.start..from + across.end, (top + y) * width + across.start);
            }
        }
        ColorImage::new([width, pitch * in_view], pixels)
    }

    /// Outlines the largest free range, with its size, the selected segment, the range to free, and the piece at the
    /// keyboard cursor.
    fn marks(
        &self,
        ui: &Ui,
        rect: Rect,
        in_view: usize,
        map: &AddressMap,
        (paint, marked): (&Paint<'_>, &Marked),
        has_focus: bool,
    ) {
        let pitch = theme::MAP_ROW_HEIGHT + theme::MAP_ROW_GAP;
        let painter = ui.painter().with_clip_rect(rect.expand(2.0));
        let outline = |addresses: &Range<u64>, stroke: Stroke| {
            let mut last = None;
            for strip in self.layout.in_rows(self.first..self.first + in_view) {
                if addresses.start >= strip.addresses.end || strip.addresses.start >= addresses.end {
                    continue;
                }
                let top = rect.top() + (strip.row - self.first) as f32 * pitch;
                let x = |address| rect.left() + strip.share_of(address) as f32 * rect.width();
                let (left, right) = (x(addresses.start), x(addresses.end));
                let place =
                    Rect::from_min_max(pos2(left, top), pos2(right.max(left + 2.0), top + theme::MAP_ROW_HEIGHT));
                painter.rect_stroke(place, 1.0, stroke, StrokeKind::Outside);
                last = Some(place);
            }
            last
        };
        let largest = map.segments.iter().max_by_key(|segment| segment.usage.largest_hole);
        let holes = largest.into_iter().flat_map(|segment| map.pieces_of(segment));
        let largest = holes.filter(|piece| piece.content == Content::Hole).max_by_key(|piece| piece.bytes());
        let ink = paint.shades.strong;
        let place = largest.and_then(|piece| outline(&piece.addresses, Stroke::new(1.5, ink)));
        if let Some((piece, place)) = largest.zip(place) {
            let text = format!("largest free {}", format_bytes(piece.bytes()));
            let galley = painter.layout_no_wrap(text, FontId::proportional(11.5), ink);
            let ground = vec2(galley.size().x + 8.0, theme::MAP_ROW_HEIGHT);
            let left = match place.right() + 2.0 {
                _ if place.width() >= ground.x + 4.0 => place.left() + 2.0,
                right if right + ground.x <= rect.right() => right,
                _ => (place.left() - ground.x - 2.0).max(rect.left()),
            };
            painter.rect_filled(Rect::from_min_size(pos2(left, place.top()), ground), 2.0, paint.shades.canvas);
            painter.galley(pos2(left + 4.0, place.top()), galley, ink);
        }
        let chosen = marked.segment.and_then(|address| map.segment_at(address)).and_then(|row| map.segments.get(row));
        if let Some(segment) = chosen {
            outline(&segment.addresses, Stroke::new(2.0, paint.shades.peak));
        }
        if let Some(range) = &marked.range {
            outline(range, Stroke::new(2.5, paint.shades.warning));
        }
        if let Some((_, piece)) = self.cursor.filter(|_| has_focus).and_then(|address| map.piece_at(address)) {
            outline(&piece.addresses, Stroke::new(1.5, paint.shades.cursor));
        }
    }

    /// Handles keys while the chart has the focus: left and right move by a piece, up and down by a segment, plus and
    /// minus zoom, Enter selects the block.
    fn walk(&mut self, ui: &Ui, response: &Response, state: &State, in_view: usize) -> Chosen {
        let map = &state.map;
        let mut chosen = Chosen::default();
        let pressed = pressed_keys(ui, response, [true; 2]).filter(|_| !map.pieces.is_empty());
        let Some(pressed) = pressed else { return chosen };
        self.zoom = (i64::from(self.zoom) + pressed(Key::Plus) + pressed(Key::Equals) - pressed(Key::Minus))
            .clamp(0, i64::from(MAX_ZOOM)) as u32;
        let by_piece = pressed(Key::ArrowRight) - pressed(Key::ArrowLeft);
        let by_segment = pressed(Key::ArrowDown) - pressed(Key::ArrowUp);
        let now = self.cursor.and_then(|address| map.segment_at(address));
        let now = now.or(state.order.first().copied()).unwrap_or(0);
        let moved = |row: usize, by: i64, count: usize| (row as i64 + by).clamp(0, count as i64 - 1) as usize;
        let next = match by_segment {
            0 if by_piece == 0 => None,
            0 => {
                let at = self.cursor.unwrap_or(map.segments[now].addresses.start);
                let piece = map.pieces.partition_point(|piece| piece.addresses.end <= at);
                map.pieces.get(moved(piece, by_piece, map.pieces.len())).map(|piece| piece.addresses.start)
            }
            by => {
                let row = state.order.iter().position(|row| *row == now).unwrap_or(0);
                let segment = state.order.get(moved(row, by, state.order.len()));
                segment.and_then(|row| map.segments.get(*row)).map(|segment| segment.addresses.start)
            }
        };
        if let Some(address) = next {
            self.cursor = Some(address);
            chosen.segment = map.segment_at(address);
            if let Some(strip) = self.layout.strips.iter().find(|strip| strip.addresses.contains(&address)) {
                self.first = self.first.min(strip.row).max((strip.row + 1).saturating_sub(in_view));
            }
        }
        if pressed(Key::Enter) > 0 {
            let piece = self.cursor.and_then(|address| map.piece_at(address));
            chosen.action = piece.and_then(|(_, piece)| piece.content.block()).map(Action::Block);
        }
        chosen
    }
}

/// Returns the pixels of a strip from left to right: the content at the centre of each, whether its piece is wide
/// enough to be distinguished from its neighbours, whether it is the last pixel of its piece, and whether a free range
/// lies between the centres of this pixel and the next.
fn columns<'a>(
    map: &'a AddressMap,
    strip: &'a Strip,
    width: usize,
) -> impl Iterator<Item = (usize, Content, bool, bool, bool)> + 'a {
    let pieces = map.segments.get(strip.segment).map_or(&[][..], |segment| map.pieces_of(segment));
    let byte_width = strip.row_bytes as f64 / width as f64;
    let mut at = pieces.partition_point(|piece| piece.addresses.end <= strip.addresses.start);
    strip.pixels(width).filter_map(move |x| {
        let address = strip.address_at((x as f64 + 0.5) / width as f64)?;
        while pieces.get(at).is_some_and(|piece| piece.addresses.end <= address) {
            at += 1;
        }
        let piece = pieces.get(at)?;
        let is_wide = piece.bytes() as f64 >= byte_width * theme::TALL_BAND as f64;
        let is_before_next = |piece: &&Piece| piece.addresses.end as f64 <= address as f64 + byte_width;
        let is_end = is_before_next(&piece);
        let hides_hole = pieces[at + 1..].iter().take_while(is_before_next).any(|one| one.content == Content::Hole);
        Some((x, piece.content, is_wide, is_end, hides_hole))
    })
}

fn brief(paint: &Paint<'_>, piece: &Piece) -> String {
    let of = piece.content.block().map_or_else(String::new, |block| {
        let row = block.0 as usize;
        let category = paint.trace.blocks.category.get(row).map_or("", |category| category.name());
        format!(", {category}")
    });
    format!("{:#x}: {}{of}, {}", piece.addresses.start, piece.content.name(), format_bytes(piece.bytes()))
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;
    use crate::Recording;

    #[test]
    fn free_ranges_too_narrow_for_a_pixel_mark_the_pixel_before_them() {
        let text = "segment_alloc 0x0 102400\nalloc a 50176\nalloc b 512\nalloc c 51200\nfree b";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let device = &recording.devices[0];
        let index = device.addresses(&recording.trace);
        let at = recording.trace.events.len();
        let map = AddressMap::at(&recording.trace, index, &device.live, &device.series, at);
        let layout = Layout::one_each(&map, &[0]);
        let marked = |width| columns(&map, &layout.strips[0], width).filter(|column| column.4).map(|column| column.0);
        assert_eq!(marked(10).collect::<Vec<_>>(), [4, 9], "between the blocks, and at the end");
        assert_eq!(marked(102_400).count(), 0, "both have pixels of their own");
    }
}
