//! Saves a picture as PNG or SVG, depending on its file extension; the file is written completely or not at all.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use eframe::egui::Ui;

use super::{Paper, Surface, png};
use crate::files::destination::io_error;
use crate::files::failure::Failure;
use crate::files::output::write_whole;

/// The file format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A raster image.
    Png,
    /// A vector image with shapes and text.
    Svg,
}

impl Format {
    /// The format for the file extension of `path`.
    ///
    /// # Errors
    /// Fails with a message if the extension is missing or unsupported.
    pub fn of(path: &Path) -> Result<Self, String> {
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "png" => Ok(Self::Png),
            "svg" => Ok(Self::Svg),
            "" => Err(format!("cannot write {}: no file extension; use .png or .svg", path.display())),
            other => {
                Err(format!("cannot write {}: unsupported file extension .{other}; use .png or .svg", path.display()))
            }
        }
    }
}

impl Surface {
    /// Writes the drawing; `title` becomes the title of an SVG.
    ///
    /// # Errors
    /// Fails if writing to `out` fails.
    pub fn write(&self, out: impl Write, format: Format, title: &str) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        match format {
            Format::Png => png::write(&mut out, &self.image())?,
            Format::Svg => out.write_all(self.svg(title).as_bytes())?,
        }
        out.flush()
    }
}

/// Draws a picture with `draw`, which returns whether the content is complete, and writes it to `path`, as PNG or SVG
/// according to its file extension. Returns the file's length in bytes.
///
/// # Errors
/// Fails if the extension is unsupported, if the picture is incomplete, or if the file cannot be written.
pub fn save_view(path: &Path, paper: Paper, title: &str, draw: impl FnMut(&mut Ui) -> bool) -> Result<u64, Failure> {
    let format = Format::of(path).map_err(Failure::Usage)?;
    let mut surface = Surface::new(paper);
    if !surface.draw(draw) {
        let text = format!("cannot write {}: the picture could not be completed; please report it", path.display());
        return Err(Failure::Write(text));
    }
    let ((), length) = write_whole(path, |out| surface.write(out, format, title).map_err(io_error))?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use eframe::egui::Theme;

    use super::*;

    #[test]
    fn the_ending_says_what_to_draw() {
        let format = |name: &str| Format::of(Path::new(name));
        assert_eq!((format("a.png"), format("b.x.SVG")), (Ok(Format::Png), Ok(Format::Svg)));
        assert!(format("a").unwrap_err().contains("no file extension; use .png or .svg"));
        assert!(format("a.jpeg").unwrap_err().contains("unsupported file extension .jpeg; use .png or .svg"));
    }

    #[test]
    fn what_cannot_be_written_says_so_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let paper = Paper::new([640, 400], 1.0, Theme::Light).unwrap();
        let mut frames = 0;
        let length = save_view(&folder.path().join("a.svg"), paper, "words", |ui| {
            ui.label("some words");
            frames += 1;
            frames > 2
        });
        let text = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
        assert_eq!(length.unwrap(), text.len() as u64);
        assert!(text.contains("<title>words</title>") && text.contains(">some words</text>"), "{text}");
        let nowhere = folder.path().join("missing").join("a.png");
        let why = save_view(&nowhere, paper, "", |_| true).unwrap_err().to_string();
        assert!(why.contains("cannot write") && why.contains("a.png"), "{why}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
