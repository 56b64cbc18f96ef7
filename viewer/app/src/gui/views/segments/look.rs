//! The patterns of the kinds of memory, which make them distinguishable without colours.

use std::sync::Arc;

use eframe::egui::{Color32, ColorImage, Rect, Role, Sense, TextureHandle, TextureOptions, Ui, WidgetInfo, pos2, vec2};
use highwater_analysis::addresses::Content;
use highwater_snapshots::{BlockId, Trace};

use crate::gui::colouring::Colouring;
use crate::gui::widgets::{Shades, theme};

/// Period of every pattern in pixels, at a scale of 1.
pub(super) const PERIOD: usize = 4;

/// The colours of blocks: those of the timeline, or of categories until the timeline is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint<'a> {
    pub(super) trace: &'a Trace,
    pub(super) colouring: Option<&'a Colouring>,
    pub(super) shades: Shades,
    /// Pixels per point, at least 1.
    pub(super) scale: usize,
}

impl Paint<'_> {
    /// Returns the colour of a block; if `is_tall`, it differs slightly from those of its neighbours.
    pub(super) fn block(&self, id: BlockId, is_tall: bool) -> Color32 {
        let plain = || {
            let row = id.0 as usize;
            self.trace.blocks.category.get(row).map_or(theme::NEUTRAL, |category| theme::category(*category))
        };
        match self.colouring {
            Some(colouring) if is_tall => colouring.instance_colour(id),
            Some(colouring) => colouring.colour(id),
            None => plain(),
        }
    }

    /// Returns the colour of the pixel at `x`, `y`; `content` is `None` for memory that is not reserved.
    pub(super) fn pixel(&self, content: Option<Content>, x: usize, y: usize, is_tall: bool) -> Color32 {
        let (x, y) = (x / self.scale, y / self.scale);
        let Shades { canvas, bar, grid, faint, strong, .. } = self.shades;
        match content {
            None => Color32::TRANSPARENT,
            Some(Content::Live(block)) => self.block(block, is_tall),
            // A fine checkerboard.
            Some(Content::Rounding(_)) => {
                if (x + y).is_multiple_of(2) {
                    faint
                } else {
                    canvas
                }
            }
            // Stripes from bottom left to top right, in the block's colour.
            Some(Content::Waiting(block)) => {
                if (x + y) % PERIOD < PERIOD / 2 {
                    strong
                } else {
                    self.block(block, false)
                }
            }
            // Horizontal lines.
            Some(Content::Hole) => {
                if y % PERIOD == PERIOD - 1 {
                    grid
                } else {
                    bar
                }
            }
            // Single dots.
            Some(Content::Unmapped) => {
                if x % PERIOD == 1 && y % PERIOD == 1 {
                    faint
                } else {
                    canvas
                }
            }
        }
    }
}

/// In the order of `samples`.
const KINDS: [(&str, &str); 6] = [
    ("block", "Bytes requested by a live block, in its colour of the timeline."),
    (
        "rounding",
        "Bytes that the allocator added: it rounds sizes to multiples of 512 bytes and does not split off small remainders.",
    ),
    ("waiting", "Freed by the program, but not reusable yet: another stream may still use it."),
    (
        "free",
        "Reserved and free: reusable by a request of the same pool and stream that fits. Narrow ranges are bright, unless there are many.",
    ),
    ("not mapped", "Address space of an expandable segment without memory; not part of any total."),
    ("not reserved", "Freed to the driver, or not yet allocated."),
];

/// Samples of the patterns, drawn once per theme and scale.
#[derive(Default)]
pub(super) struct Legend {
    texture: Option<((bool, usize), TextureHandle)>,
}

impl std::fmt::Debug for Legend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Legend")
    }
}

impl Legend {
    pub(super) fn legend_ui(&mut self, ui: &mut Ui, paint: &Paint<'_>) {
        let side = theme::SWATCH as usize * paint.scale;
        let key = (ui.visuals().dark_mode, paint.scale);
        if self.texture.as_ref().is_none_or(|(made, _)| *made != key) {
            let image = samples(paint, side);
            self.texture = Some((key, ui.ctx().load_texture("address patterns", image, TextureOptions::NEAREST)));
        }
        let Some((_, texture)) = &self.texture else { return };
        for (row, (name, meaning)) in KINDS.iter().enumerate() {
            let shown = ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 4.0;
                let (rect, _) = ui.allocate_exact_size(vec2(theme::SWATCH, theme::SWATCH), Sense::hover());
                let (from, to) = (row as f32 / KINDS.len() as f32, (row + 1) as f32 / KINDS.len() as f32);
                let part = Rect::from_min_max(pos2(from, 0.0), pos2(to, 1.0));
                ui.painter().image(texture.id(), rect, part, Color32::WHITE);
                let frame = eframe::egui::Stroke::new(1.0, paint.shades.grid);
                ui.painter().rect_stroke(rect, 0.0, frame, eframe::egui::StrokeKind::Outside);
                ui.weak(*name);
            });
            let response = shown.response.on_hover_text(*meaning);
            response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("Pattern of {name}: {meaning}")));
        }
    }
}

fn samples(paint: &Paint<'_>, side: usize) -> ColorImage {
    let block = BlockId::NONE;
    let kinds = [
        Some(Content::Live(block)),
        Some(Content::Rounding(block)),
        Some(Content::Waiting(block)),
        Some(Content::Hole),
        Some(Content::Unmapped),
        None,
    ];
    // No single block represents all.
    let plain = Paint { colouring: None, ..*paint };
    let width = side * kinds.len();
    let at = |pixel: usize| plain.pixel(kinds[pixel % width / side], pixel % width % side, pixel / width, false);
    ColorImage::new([width, side], (0..width * side).map(at).collect())
}

/// Compares by identity.
pub(super) fn is_same(one: Option<&Arc<Colouring>>, other: Option<&Arc<Colouring>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eframe::egui::Theme;

    #[test]
    fn patterns_can_be_distinguished_in_black_and_white() {
        let trace = Trace::default();
        for theme in [Theme::Dark, Theme::Light] {
            let paint = Paint { trace: &trace, colouring: None, shades: Shades::of(theme), scale: 1 };
            let image = samples(&paint, 8);
            let grey = |colour: &Color32| (u32::from(colour.r()) + u32::from(colour.g()) + u32::from(colour.b())) / 3;
            let sample = |kind: usize| -> Vec<u32> {
                (0..64).map(|pixel| grey(&image.pixels[pixel / 8 * 48 + kind * 8 + pixel % 8])).collect()
            };
            for (one, other) in (0..6).flat_map(|one| (0..one).map(move |other| (one, other))) {
                let (one_sample, other_sample) = (sample(one), sample(other));
                let differing = one_sample.iter().zip(&other_sample).filter(|(a, b)| a.abs_diff(**b) > 12).count();
                assert!(differing >= 4, "{} and {} look alike in {theme:?}", KINDS[one].0, KINDS[other].0);
            }
        }
    }
}
