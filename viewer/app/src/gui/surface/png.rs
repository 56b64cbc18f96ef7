//! Writes pictures as PNG.

use std::io::Write;

use eframe::egui::ColorImage;

/// Writes `picture` as PNG. The colours of translucent pixels are as accurate as eight bits permit.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn write(out: impl Write, picture: &ColorImage) -> std::io::Result<()> {
    let [width, height] = picture.size.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    let mut encoder = png::Encoder::new(out, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    if picture.pixels.iter().all(|pixel| pixel.is_opaque()) {
        // Premultiplication does not change opaque pixels.
        writer.write_image_data(picture.as_raw())?;
    } else {
        let straight: Vec<u8> = picture.pixels.iter().flat_map(|pixel| pixel.to_srgba_unmultiplied()).collect();
        writer.write_image_data(&straight)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use eframe::egui::Color32;

    use super::*;

    #[test]
    fn pictures_read_back_also_where_they_are_half_transparent() {
        let read = |picture: &ColorImage| {
            let mut bytes = Vec::new();
            write(&mut bytes, picture).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut pixels).unwrap();
            assert_eq!([info.width as usize, info.height as usize], picture.size);
            pixels
        };
        let opaque = ColorImage::new([2, 1], vec![Color32::from_rgb(1, 2, 3), Color32::WHITE]);
        assert_eq!(read(&opaque), [1, 2, 3, 255, 255, 255, 255, 255]);
        let half = ColorImage::new([1, 1], vec![Color32::from_rgba_unmultiplied(200, 100, 0, 128)]);
        assert_eq!(read(&half)[3], 128);
        assert!(read(&half)[0].abs_diff(200) <= 1, "{:?}", read(&half));
    }
}
