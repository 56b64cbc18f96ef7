//! Draws the app's views into files without a window. Uses the same widgets, rasterized on the CPU.

pub(crate) mod paper;
pub mod png;
mod texture;
mod raster;
mod svg;
pub(crate) mod save;
pub(crate) mod sheet;
pub(crate) mod views;
pub(crate) mod diff_sheet;
#[cfg(test)]
mod tests;

use std::time::Duration;

use eframe::egui::epaint::{ClippedPrimitive, ClippedShape, Primitive, Vertex};
use eframe::egui::{self, ColorImage, Pos2, RawInput, Rect, Ui, ViewportId};

pub use diff_sheet::DiffSheet;
pub use paper::Paper;
pub use save::{Format, save_view};
pub use sheet::Sheet;
pub use views::SheetView;

use crate::background;
use crate::gui::widgets::theme;
use texture::Textures;

/// The content of a window, drawn without opening one.
#[derive(Debug)]
pub struct Surface {
    ctx: egui::Context,
    paper: Paper,
    textures: Textures,
    shapes: Vec<ClippedShape>,
    primitives: Vec<ClippedPrimitive>,
    frames: u64,
}

/// Maximum number of frames of a complete drawing until its layout is stable.
const MAX_FRAMES: u32 = 8;
/// Pause between two frames while a drawing is incomplete and unchanged.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of pauses, which last about half a minute in total.
const MAX_PAUSES: u32 = 15_000;
/// Maximum number of pixels of a texture's side.
const TEXTURE_SIDE: usize = 8192;

impl Surface {
    /// Creates an empty surface.
    pub fn new(paper: Paper) -> Self {
        let ctx = egui::Context::default();
        theme::install(&ctx, false);
        ctx.set_theme(paper.theme());
        ctx.all_styles_mut(|style| style.animation_time = 0.0);
        Self { ctx, paper, textures: Textures::default(), shapes: Vec::new(), primitives: Vec::new(), frames: 0 }
    }

    /// The egui context that is drawn into.
    pub fn ctx(&self) -> &egui::Context {
        &self.ctx
    }

    /// Draws frames with `draw` until it returns true for complete content, and either two frames are equal or eight
    /// complete frames were drawn. Returns false if the content is still incomplete after pauses of half a minute.
    pub fn draw(&mut self, mut draw: impl FnMut(&mut Ui) -> bool) -> bool {
        let (mut complete_frames, mut pauses) = (0, 0);
        loop {
            let mut is_complete = false;
            let has_changed = self.frame(|ui| is_complete = draw(ui));
            if is_complete {
                complete_frames += 1;
                if !has_changed || complete_frames == MAX_FRAMES {
                    return true;
                }
            } else if !has_changed {
                pauses += 1;
                if pauses == MAX_PAUSES {
                    return false;
                }
                background::pause(PAUSE);
            }
        }
    }

    /// Draws one frame. Returns whether it differs from the last one.
    fn frame(&mut self, mut draw: impl FnMut(&mut Ui)) -> bool {
        let mut input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, self.paper.points())),
            max_texture_side: Some(TEXTURE_SIDE),
            time: Some(self.frames as f64 / 60.0),
            ..RawInput::default()
        };
        if let Some(viewport) = input.viewports.get_mut(&ViewportId::ROOT) {
            viewport.native_pixels_per_point = Some(self.paper.scale());
        }
        self.frames += 1;
        let output = self.ctx.run_ui(input, |ui| draw(ui));
        let primitives = self.ctx.tessellate(output.shapes.clone(), self.paper.scale());
        let has_changed = !output.textures_delta.set.is_empty() || !is_same(&primitives, &self.primitives);
        self.textures.apply(output.textures_delta);
        self.shapes = output.shapes;
        self.primitives = primitives;
        has_changed
    }

    /// The drawing as pixels.
    pub fn image(&self) -> ColorImage {
        let background = self.background();
        let mut canvas = ColorImage::filled(self.paper.size().map(|side| side as usize), background);
        raster::paint(&mut canvas, &self.primitives, &self.textures, self.paper.scale());
        canvas
    }

    /// The drawing as an SVG document with the given title.
    pub fn svg(&self, title: &str) -> String {
        svg::document(&self.shapes, &self.textures, &self.paper, self.background(), title)
    }

    fn background(&self) -> egui::Color32 {
        self.ctx.style_of(self.paper.theme()).visuals.panel_fill
    }
}

/// Whether two frames are equal. Compares bits, because NaN positions are not equal to themselves.
fn is_same(one: &[ClippedPrimitive], other: &[ClippedPrimitive]) -> bool {
    let corners = |rect: Rect| [rect.min.x, rect.min.y, rect.max.x, rect.max.y].map(f32::to_bits);
    let bits = |vertex: &Vertex| {
        let Vertex { pos, uv, color } = vertex;
        ([pos.x, pos.y, uv.x, uv.y].map(f32::to_bits), color.to_array())
    };
    let is_pair_same = |(one, other): (&ClippedPrimitive, &ClippedPrimitive)| match (&one.primitive, &other.primitive) {
        (Primitive::Mesh(mesh), Primitive::Mesh(twin)) => {
            corners(one.clip_rect) == corners(other.clip_rect)
                && mesh.texture_id == twin.texture_id
                && mesh.indices == twin.indices
                && mesh.vertices.iter().map(bits).eq(twin.vertices.iter().map(bits))
        }
        (Primitive::Callback(_), Primitive::Callback(_)) => true,
        _ => false,
    };
    one.len() == other.len() && one.iter().zip(other).all(is_pair_same)
}
