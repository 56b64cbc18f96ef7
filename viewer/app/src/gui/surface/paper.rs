//! Size, scale and theme of a picture.

use eframe::egui::{Theme, Vec2, vec2};

/// Maximum number of pixels of a picture's longer side.
const MAX_SIDE: u32 = 16_384;
/// Maximum number of pixels of a picture.
const MAX_PIXELS: u64 = 200_000_000;
/// Minimum readable size, in points.
const LEAST: Vec2 = vec2(640.0, 400.0);
/// Minimum and maximum pixels per point.
const SCALES: std::ops::RangeInclusive<f32> = 0.5..=8.0;

/// The size, scale and theme of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paper {
    size: [u32; 2],
    scale: f32,
    theme: Theme,
}

impl Paper {
    /// Paper of `width` times `height` pixels, with `scale` pixels per point: twice the scale draws everything twice as
    /// large.
    ///
    /// # Errors
    /// Fails with a message if the size or the scale is out of range.
    pub fn new([width, height]: [u32; 2], scale: f32, theme: Theme) -> Result<Self, String> {
        let pixels = u64::from(width) * u64::from(height);
        if width.max(height) > MAX_SIDE || pixels > MAX_PIXELS {
            let most = MAX_PIXELS / 1_000_000;
            return Err(format!(
                "{width}x{height} is too large: use at most {MAX_SIDE} pixels a side and {most} million in all"
            ));
        }
        if !SCALES.contains(&scale) {
            return Err(format!(
                "invalid scale {scale}: expected a number from {} to {}",
                SCALES.start(),
                SCALES.end()
            ));
        }
        let paper = Self { size: [width, height], scale, theme };
        let room = paper.points();
        if room.x < LEAST.x || room.y < LEAST.y {
            let least = (LEAST * scale).ceil();
            let at = if scale == 1.0 { String::new() } else { format!(" at scale {scale}") };
            return Err(format!("{width}x{height} is too small to read{at}: use at least {}x{}", least.x, least.y));
        }
        Ok(paper)
    }

    /// Returns a paper for a view of `room` points in a window of that scale and theme. It is enlarged if it would be
    /// unreadable, and its scale is lowered if it would be too large.
    pub fn fitting(room: Vec2, scale: f32, theme: Theme) -> Self {
        let side = |room: f32, least: f32| if room.is_finite() { room.clamp(least, MAX_SIDE as f32) } else { least };
        let room = vec2(side(room.x, LEAST.x), side(room.y, LEAST.y));
        let finest = (MAX_SIDE as f32 / room.x.max(room.y)).min((MAX_PIXELS as f32 / (room.x * room.y)).sqrt());
        let scale = if scale.is_finite() { scale.clamp(*SCALES.start(), *SCALES.end()) } else { 1.0 }.min(finest);
        let size = [room.x, room.y].map(|side| ((side * scale).round() as u32).min(MAX_SIDE));
        Self { size, scale, theme }
    }

    /// Width and height in pixels.
    pub fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Width and height in points.
    pub fn points(&self) -> Vec2 {
        vec2(self.size[0] as f32, self.size[1] as f32) / self.scale
    }

    /// Pixels per point.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The theme: light or dark.
    pub fn theme(&self) -> Theme {
        self.theme
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_that_nobody_can_draw_on_or_read_is_refused_in_words() {
        let why = |size: [u32; 2], scale: f32| Paper::new(size, scale, Theme::Light).unwrap_err();
        assert!(why([16_385, 300], 1.0).contains("16384"));
        assert!(why([16_000, 16_000], 1.0).contains("200 million"));
        assert!(why([u32::MAX, u32::MAX], 1.0).contains("too large"));
        assert!(why([639, 500], 1.0).contains("at least 640x400"));
        assert!(why([1600, 300], 2.0).contains("at scale 2: use at least 1280x800"));
        for scale in [0.0, -1.0, f32::NAN, 9.0] {
            assert!(why([1600, 900], scale).contains("from 0.5 to 8"), "{scale}");
        }
        let fitting = |room: Vec2, scale: f32| Paper::fitting(room, scale, Theme::Light);
        assert_eq!(fitting(vec2(800.0, 500.0), 1.5).size(), [1200, 750]);
        assert_eq!(fitting(vec2(30.0, f32::NAN), f32::NAN).size(), [640, 400]);
        let huge = fitting(vec2(1e9, 1e9), 8.0);
        assert!(huge.size()[0] <= MAX_SIDE && u64::from(huge.size()[0]).pow(2) <= MAX_PIXELS + 100_000, "{huge:?}");
        let paper = Paper::new([1600, 900], 2.0, Theme::Dark).unwrap();
        assert_eq!((paper.points(), paper.size()), (vec2(800.0, 450.0), [1600, 900]));
    }
}
