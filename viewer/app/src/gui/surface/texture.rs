//! Textures of meshes, stored as provided by egui and sampled like on a GPU.

use std::collections::HashMap;
use std::sync::Arc;

use eframe::egui::epaint::textures::{TextureFilter, TextureOptions, TextureWrapMode, TexturesDelta};
use eframe::egui::{Color32, ColorImage, ImageData, TextureId};

#[derive(Debug)]
pub(super) struct Texture {
    pub(super) image: Arc<ColorImage>,
    pub(super) options: TextureOptions,
}

/// Number of filter steps between two texels; eight bits, as on GPUs, so that an unscaled picture is sampled exactly.
const STEPS: i64 = 256;

impl Texture {
    /// The filter for a picture that advances by `texels` from one pixel to the next.
    pub(super) fn filter(&self, texels: f64) -> TextureFilter {
        if texels > 1.0 { self.options.minification } else { self.options.magnification }
    }

    /// The colour at `at`, in texels from the upper left corner; channels from 0 to 255, premultiplied by alpha.
    pub(super) fn sample(&self, at: [f64; 2], filter: TextureFilter) -> [u32; 4] {
        match filter {
            TextureFilter::Nearest => self.texel(at[0].floor() as i64, at[1].floor() as i64),
            TextureFilter::Linear => {
                let fixed = at.map(|at| ((at - 0.5) * STEPS as f64).round() as i64);
                let [x, y] = fixed.map(|fixed| fixed.div_euclid(STEPS));
                let [right, down] = fixed.map(|fixed| fixed.rem_euclid(STEPS) as u32);
                if right == 0 && down == 0 {
                    return self.texel(x, y);
                }
                let corners = [self.texel(x, y), self.texel(x + 1, y), self.texel(x, y + 1), self.texel(x + 1, y + 1)];
                let steps = STEPS as u32;
                std::array::from_fn(|channel| {
                    let [a, b, c, d] = corners.map(|corner| corner[channel]);
                    let upper = a * (steps - right) + b * right;
                    let lower = c * (steps - right) + d * right;
                    (upper * (steps - down) + lower * down + steps * steps / 2) / (steps * steps)
                })
            }
        }
    }

    /// The texel in column `x` and row `y`, which may be outside of the texture.
    fn texel(&self, x: i64, y: i64) -> [u32; 4] {
        let [width, height] = self.image.size;
        let (x, y) = (self.wrapped(x, width), self.wrapped(y, height));
        let colour = self.image.pixels.get(y * width + x).copied().unwrap_or(Color32::TRANSPARENT);
        colour.to_array().map(u32::from)
    }

    fn wrapped(&self, at: i64, count: usize) -> usize {
        let count = (count as i64).max(1);
        let at = match self.options.wrap_mode {
            TextureWrapMode::ClampToEdge => at.clamp(0, count - 1),
            TextureWrapMode::Repeat => at.rem_euclid(count),
            TextureWrapMode::MirroredRepeat => {
                let turn = at.rem_euclid(2 * count);
                turn.min(2 * count - 1 - turn)
            }
        };
        at as usize
    }
}

#[derive(Debug, Default)]
pub(super) struct Textures {
    by_id: HashMap<TextureId, Texture>,
    /// Textures to free after the frame is painted.
    leaving: Vec<TextureId>,
}

impl Textures {
    pub(super) fn apply(&mut self, mut news: TexturesDelta) {
        for id in self.leaving.drain(..) {
            self.by_id.remove(&id);
        }
        for (id, deltas) in news.set.drain() {
            for delta in deltas {
                let ImageData::Color(image) = delta.image;
                match delta.pos {
                    None => {
                        self.by_id.insert(id, Texture { image, options: delta.options });
                    }
                    Some(corner) => {
                        if let Some(texture) = self.by_id.get_mut(&id) {
                            texture.options = delta.options;
                            copy_into(Arc::make_mut(&mut texture.image), &image, corner);
                        }
                    }
                }
            }
        }
        self.leaving.extend(news.free.drain());
    }

    pub(super) fn get(&self, id: TextureId) -> Option<&Texture> {
        self.by_id.get(&id)
    }
}

/// Copies `part` into `whole`, with its upper left corner at `corner`. Clips it to `whole`.
fn copy_into(whole: &mut ColorImage, part: &ColorImage, corner: [usize; 2]) {
    let [width, height] = whole.size;
    let count = part.size[0].min(width.saturating_sub(corner[0]));
    if count == 0 {
        return;
    }
    for (row, pixels) in part.pixels.chunks_exact(part.size[0]).enumerate() {
        let y = corner[1] + row;
        if y >= height {
            return;
        }
        let start = y * width + corner[0];
        whole.pixels[start..start + count].copy_from_slice(&pixels[..count]);
    }
}

#[cfg(test)]
mod tests {
    use eframe::egui::epaint::ImageDelta;

    use super::*;

    fn greys(values: &[u8], size: [usize; 2]) -> ColorImage {
        ColorImage::from_gray(size, values)
    }

    fn texture(options: TextureOptions) -> Texture {
        Texture { image: Arc::new(greys(&[0, 100, 200, 40], [2, 2])), options }
    }

    fn grey(texture: &Texture, at: [f64; 2], filter: TextureFilter) -> u32 {
        let [r, g, b, a] = texture.sample(at, filter);
        assert_eq!((g, b, a), (r, r, 255));
        r
    }

    #[test]
    fn between_texels_the_nearest_or_the_mean_is_read() {
        let texture = texture(TextureOptions::LINEAR);
        let nearest = |x: f64, y: f64| grey(&texture, [x, y], TextureFilter::Nearest);
        assert_eq!([nearest(0.5, 0.5), nearest(1.01, 0.9), nearest(0.99, 1.0)], [0, 100, 200]);
        let linear = |x: f64, y: f64| grey(&texture, [x, y], TextureFilter::Linear);
        assert_eq!([linear(0.5, 0.5), linear(1.0, 0.5), linear(0.5, 1.0), linear(1.0, 1.0)], [0, 50, 100, 85]);
        assert_eq!(linear(0.5 + 1e-4, 0.5 - 1e-4), 0, "what is not stretched is read exactly");
    }

    #[test]
    fn beyond_the_edges_it_continues_as_requested() {
        let across = |options: TextureOptions| {
            let texture = texture(options);
            [-1.5, -0.5, 0.5, 1.5, 2.5, 3.5].map(|x| grey(&texture, [x, 0.5], TextureFilter::Nearest))
        };
        assert_eq!(across(TextureOptions::NEAREST), [0, 0, 0, 100, 100, 100]);
        assert_eq!(across(TextureOptions::NEAREST_REPEAT), [0, 100, 0, 100, 0, 100]);
        assert_eq!(across(TextureOptions::NEAREST_MIRRORED_REPEAT), [100, 0, 0, 100, 100, 0]);
    }

    #[test]
    fn parts_are_put_in_and_what_is_freed_stays_for_its_last_frame() {
        let id = TextureId::Managed(3);
        let mut textures = Textures::default();
        let mut news = TexturesDelta::default();
        news.push(id, ImageDelta::full(greys(&[1, 2, 3, 4, 5, 6], [3, 2]), TextureOptions::LINEAR));
        textures.apply(news);
        let mut news = TexturesDelta::default();
        news.push(id, ImageDelta::partial([1, 1], greys(&[8, 9], [2, 1]), TextureOptions::NEAREST));
        news.free(id);
        textures.apply(news);
        let known = textures.get(id).unwrap();
        assert_eq!(known.options, TextureOptions::NEAREST);
        assert_eq!(known.image.pixels, greys(&[1, 2, 3, 4, 8, 9], [3, 2]).pixels);
        textures.apply(TexturesDelta::default());
        assert!(textures.get(id).is_none());
    }
}
