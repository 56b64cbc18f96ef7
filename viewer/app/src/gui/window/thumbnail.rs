//! The pictures of the examples on the first screen.

use std::collections::HashMap;
use std::io::Cursor;

use eframe::egui::{ColorImage, Context, TextureHandle, TextureOptions};
use png::{Decoder, Transformations};

/// Pictures by the name of their example, each decoded when it is first shown; `None` if it cannot be.
#[derive(Default)]
pub(super) struct Thumbnails(HashMap<&'static str, Option<TextureHandle>>);

impl std::fmt::Debug for Thumbnails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Thumbnails {
    /// The picture of example `name`, which `bytes` are as PNG.
    pub(super) fn of(&mut self, ctx: &Context, name: &'static str, bytes: &[u8]) -> Option<&TextureHandle> {
        let decode = || Some(ctx.load_texture(format!("example {name}"), decoded(bytes)?, TextureOptions::LINEAR));
        self.0.entry(name).or_insert_with(decode).as_ref()
    }
}

fn decoded(bytes: &[u8]) -> Option<ColorImage> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::EXPAND | Transformations::ALPHA);
    let mut reader = decoder.read_info().ok()?;
    let mut pixels = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut pixels).ok()?;
    let size = [frame.width as usize, frame.height as usize];
    Some(ColorImage::from_rgba_unmultiplied(size, pixels.get(..frame.buffer_size())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_with_a_palette_is_decoded_and_anything_else_is_none() {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(vec![255, 0, 0, 0, 0, 255]);
        encoder.write_header().unwrap().write_image_data(&[1, 0]).unwrap();
        let picture = decoded(&bytes).unwrap();
        assert_eq!(picture.size, [2, 1]);
        assert_eq!(picture.as_raw(), [0, 0, 255, 255, 255, 0, 0, 255]);
        assert!(decoded(&bytes[..20]).is_none());
    }
}
