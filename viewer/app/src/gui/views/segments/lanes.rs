//! Shows the use of all addresses over time, directly below the timeline and aligned with it.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{
    Align2, Color32, ColorImage, FontId, Rect, Role, Sense, Shape, Stroke, TextureHandle, TextureOptions, Ui,
    WidgetInfo, pos2, vec2,
};
use highwater_analysis::PoolAndStream;
use highwater_analysis::addresses::lanes::raster;
use highwater_analysis::addresses::{Content, LaneRaster, LaneWindow};
use highwater_analysis::bands::Across;
use highwater_snapshots::{BlockId, count_of, format_bytes};

use super::facts::{content_lines, tooltip_ui};
use super::known::Known;
use super::look::{Paint, is_same};
use crate::View;
use crate::gui::colouring::Colouring;
use crate::gui::identity::Identity;
use crate::gui::views::block::block_menu_ui;
use crate::gui::views::timeline::PlotFrame;
use crate::gui::views::view::{Action, Under, ViewContext};
use crate::gui::widgets::{Query, Shades, computed, theme};

#[derive(Clone)]
struct Request {
    known: Identity<Known>,
    /// The moments of the timeline's columns.
    moments: Vec<usize>,
    /// The horizontal range of the columns on the axis.
    across: Range<f64>,
    /// If set, only these addresses are shown.
    only: Option<Range<u64>>,
    height: usize,
    colouring: Arc<Colouring>,
    is_dark: bool,
    scale: usize,
}

impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_spots(other)
            && is_same(Some(&self.colouring), Some(&other.colouring))
            && (self.is_dark, self.scale) == (other.is_dark, other.scale)
    }
}

impl Request {
    fn has_same_spots(&self, other: &Self) -> bool {
        self.known == other.known
            && self.moments == other.moments
            && self.across == other.across
            && self.only == other.only
            && self.height == other.height
    }
}

struct Painted {
    raster: Arc<LaneRaster>,
    places: Range<u64>,
    image: Option<ColorImage>,
    /// The ranges of pools and streams on the address axis, with their names.
    homes: Vec<(String, Range<u64>)>,
}

pub(super) struct Lanes {
    query: Query<Request, Painted>,
    texture: Option<TextureHandle>,
    menu_target: Option<BlockId>,
}

computed!(Lanes: query);

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("query", &self.query).finish_non_exhaustive()
    }
}

impl Default for Lanes {
    fn default() -> Self {
        let mut last = None;
        let query = Query::new("highwater-lanes", move |request, _| paint(request, &mut last));
        Self { query: query.showing_late(), texture: None, menu_target: None }
    }
}

impl Lanes {
    /// Shows the lanes in `height` points; `only` limits them to these addresses.
    pub(super) fn lanes_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        (known, under): (&Arc<Known>, Under<'_>),
        only: Option<Range<u64>>,
        height: f32,
    ) -> Option<Action> {
        self.receive(ui.ctx());
        let (whole, _) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::hover());
        let mut rect = whole;
        (rect.min.x, rect.max.x) = (under.frame.rect.left(), under.frame.rect.right());
        self.ask(ui, (known, under), only, rect);
        let shades = Shades::in_ui(ui);
        ui.painter().rect_filled(rect, 2.0, shades.canvas);
        let response = ui.interact(rect, ui.scope_id().with("address lanes"), Sense::click());
        let request = self.query.answered().filter(|request| request.known.is(known));
        let shown = request.zip(self.query.answer()).zip(self.texture.as_ref());
        let Some(((request, painted), texture)) = shown else {
            let label = format!("Address lanes: {}", self.query.failure().unwrap_or("drawing…"));
            response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, &label));
            return None;
        };
        // On the axis addresses grow downwards.
        let places = -(painted.places.end as f64)..-(painted.places.start as f64);
        let frame = PlotFrame { rect, view: View { x: under.frame.view.x.clone(), y: places.clone() } };
        let pictured = View { x: request.across.clone(), y: places };
        ui.painter().add(frame.image(texture.id(), &pictured, &(f64::MIN..f64::MAX)));
        let label = format!(
            "Address lanes: {} of addresses over time in {}, {}",
            format_bytes(painted.places.end - painted.places.start),
            count_of(painted.homes.len() as u64, "pool"),
            count_of(painted.raster.moments.len() as u64, "moment")
        );
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, &label));
        homes_ui(ui, &frame, whole.left(), painted, &shades);
        let trace = &context.recording.trace;
        let x = frame.screen_x(context.selection.middle_of(trace, context.moment.position()));
        if rect.x_range().contains(x) {
            ui.painter().vline(x, rect.y_range(), Stroke::new(1.0, shades.cursor));
        }
        let pointer = response.hover_pos().or(response.interact_pointer_pos());
        let spot = pointer.and_then(|pointer| spot_at(&frame, (known, request, painted), pointer));
        if response.secondary_clicked() {
            self.menu_target = spot.and_then(|(_, content, _)| content?.block());
        }
        let picked = block_menu_ui(&response, context.recording, context.selection.metric, self.menu_target);
        if picked.is_some() || response.context_menu_opened() {
            return picked;
        }
        let (moment, content, address) = spot?;
        let is_clicked = response.clicked();
        let paint = Paint { trace, colouring: Some(&request.colouring), shades, scale: 1 };
        response.on_hover_ui_at_pointer(|ui| {
            let lines = content_lines(trace, content, address, moment);
            tooltip_ui(ui, content.and_then(Content::block).map(|block| paint.block(block, false)), &lines);
        });
        is_clicked.then(|| match content.and_then(Content::block) {
            Some(block) => Action::Block(block),
            None => Action::Moment(moment),
        })
    }

    fn ask(&mut self, ui: &Ui, (known, under): (&Arc<Known>, Under<'_>), only: Option<Range<u64>>, rect: Rect) {
        let scale = ui.ctx().pixels_per_point();
        let longest = ui.input(|input| input.max_texture_side).max(1);
        let window = &under.picture.request.window;
        let across = match &window.across {
            Across::Moments(x) | Across::Nanos(x) => x.clone(),
        };
        let request = Request {
            known: Identity::of(known),
            moments: under.picture.raster.columns.iter().map(|column| column.moment).collect(),
            across,
            only,
            height: ((rect.height() * scale).round() as usize).clamp(1, longest),
            colouring: Arc::clone(&under.picture.colouring),
            is_dark: ui.visuals().dark_mode,
            scale: (scale.round() as usize).max(1),
        };
        self.query.ask(ui.ctx(), &request);
    }

    /// Uploads a finished picture to the GPU.
    fn receive(&mut self, ctx: &eframe::egui::Context) {
        self.query.receive();
        let Some(image) = self.query.answer_mut().and_then(|painted| painted.image.take()) else { return };
        match &mut self.texture {
            Some(texture) => texture.set(image, TextureOptions::NEAREST),
            None => self.texture = Some(ctx.load_texture("address lanes", image, TextureOptions::NEAREST)),
        }
    }
}

/// Returns the moment, the content and the address under the pointer; `None` outside the columns.
fn spot_at(
    frame: &PlotFrame,
    (known, request, painted): (&Known, &Request, &Painted),
    pointer: eframe::egui::Pos2,
) -> Option<(usize, Option<Content>, Option<u64>)> {
    let raster = &painted.raster;
    let width = request.across.end - request.across.start;
    let column = (frame.x_at(pointer.x) - request.across.start) / width * raster.moments.len() as f64;
    let column = (column >= 0.0).then_some(column as usize)?;
    let moment = *raster.moments.get(column)?;
    let share = ((pointer.y - frame.rect.top()) / frame.rect.height()).clamp(0.0, 0.999_999);
    let y = (share * raster.height as f32) as usize;
    let window = LaneWindow { moments: Vec::new(), places: painted.places.clone(), height: raster.height };
    let address = known.axis().at(window.place_at(y)).map(|(_, address)| address);
    Some((moment, raster.spot(column, y), address))
}

/// Paints the names and borders of pools where there is space.
fn homes_ui(ui: &Ui, frame: &PlotFrame, left: f32, painted: &Painted, shades: &Shades) {
    let mut free_from = f32::MIN;
    for (name, places) in &painted.homes {
        let top = frame.screen_y(-(places.start as f64)).max(frame.rect.top());
        let bottom = frame.screen_y(-(places.end as f64)).min(frame.rect.bottom());
        if bottom <= top {
            continue;
        }
        if top > frame.rect.top() + 1.0 {
            ui.painter().hline(frame.rect.x_range(), top, Stroke::new(1.0, shades.step_border));
        }
        let font = FontId::proportional(10.5);
        let room = Rect::from_min_max(pos2(left, top), pos2(frame.rect.left() - 3.0, bottom));
        if bottom - top >= 11.0 && top >= free_from {
            let painter = ui.painter().with_clip_rect(room);
            let at = room.right_top() + vec2(0.0, 0.0);
            let (pool, stream) = name.split_once(", ").unwrap_or((name, ""));
            let has_room_for_both = bottom - top >= 24.0;
            // If all are in one line, the stream distinguishes items of the same pool.
            let is_other = |(other, _): &(String, Range<u64>)| other != name && other.starts_with(pool);
            let leads = !has_room_for_both && !stream.is_empty() && painted.homes.iter().any(is_other);
            let first = if leads { stream } else { pool.trim_start_matches("private ") };
            painter.text(at, Align2::RIGHT_TOP, first, font.clone(), shades.faint);
            free_from = top + 11.0;
            if has_room_for_both && !stream.is_empty() {
                painter.text(at + vec2(0.0, 12.0), Align2::RIGHT_TOP, stream, font, shades.faint);
                free_from += 12.0;
            }
        }
        let response = ui.interact(room, ui.scope_id().with(("home", name)), Sense::hover());
        response.on_hover_text(format!("{name}: {} of addresses", format_bytes(places.end - places.start)));
    }
    ui.painter().add(Shape::rect_stroke(
        frame.rect,
        2.0,
        Stroke::new(1.0, shades.grid),
        eframe::egui::StrokeKind::Outside,
    ));
}

/// Draws the picture, on the worker's thread; reuses the last raster if only colours have changed.
fn paint(request: &Request, last: &mut Option<(Request, Range<u64>, Arc<LaneRaster>)>) -> Option<Painted> {
    let Request { known, only, height, .. } = request;
    let known = known.get()?;
    let trace = &known.recording.trace;
    let axis = known.axis();
    let known_spots = last.take().filter(|(former, ..)| former.has_same_spots(request));
    let (places, spots) = known_spots.map_or_else(
        || {
            let wanted = only.clone().and_then(|only| axis.places(only).max_by_key(|place| place.end - place.start));
            let places = wanted.unwrap_or(0..axis.bytes());
            let window = LaneWindow { moments: request.moments.clone(), places: places.clone(), height: *height };
            let live = &known.recording.devices[known.device].live;
            (places, Arc::new(raster(trace, known.index(), axis, live, &window)))
        },
        |(_, places, spots)| (places, spots),
    );
    *last = Some((request.clone(), places.clone(), Arc::clone(&spots)));
    let theme = if request.is_dark { eframe::egui::Theme::Dark } else { eframe::egui::Theme::Light };
    let shades = Shades::of(theme);
    let paint = Paint { trace, colouring: Some(&request.colouring), shades, scale: request.scale };
    let image = image_of(&spots, &paint);
    let mut homes: Vec<(String, Range<u64>)> = Vec::new();
    let mut former: Option<Option<PoolAndStream>> = None;
    for lane in axis.lanes() {
        match homes.last_mut().filter(|_| former == Some(lane.home)) {
            Some((_, all)) => all.end = lane.range().end,
            None => {
                let name = lane.home.map_or_else(|| "unknown segment".to_owned(), |home| home.text());
                homes.push((name, lane.range()));
            }
        }
        former = Some(lane.home);
    }
    Some(Painted { raster: spots, places, image: Some(image), homes })
}

fn image_of(raster: &LaneRaster, paint: &Paint<'_>) -> ColorImage {
    let (width, height) = (raster.moments.len(), raster.height);
    let mut pixels = vec![Color32::TRANSPARENT; width * height];
    for (x, column) in raster.spots.chunks(height.max(1)).enumerate() {
        let mut from = 0;
        while from < column.len() {
            let same = column[from..].iter().take_while(|spot| **spot == column[from]).count();
            let is_tall = same >= theme::TALL_BAND;
            for y in from..from + same {
                let colour = paint.pixel(column[from], x, y, is_tall);
                // A line separates two blocks that are tall enough to be distinguished.
                let is_edge = is_tall && y + 1 == from + same && matches!(column[from], Some(Content::Live(_)));
                pixels[y * width + x] = if is_edge { theme::edge(colour) } else { colour };
            }
            from += same;
        }
    }
    ColorImage::new([width, height], pixels)
}
