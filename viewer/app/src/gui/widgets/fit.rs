//! Shortens text to the available width while keeping its most important part.

use std::borrow::Cow;
use std::sync::Arc;

use eframe::egui::text::{LayoutJob, TextFormat, TextWrapping};
use eframe::egui::{FontId, Galley, Painter, Ui};
use highwater_snapshots::line_text::{LineText, readable_line, shorten_line};

/// Fits `text` into `room` points. A source line loses its folders, then the end of its function, but never its line
/// number. Other text loses its middle. Returns `None` if not even the file name and line number of a source line fit.
pub(crate) fn fitted<'a>(ui: &Ui, text: &'a str, font: &FontId, room: f32) -> Option<Cow<'a, str>> {
    let readable = readable_line(text);
    if width(ui, &readable, font) <= room {
        return Some(readable);
    }
    if LineText::parse(text).line > 0 {
        return fitted_line(ui, text, font, room);
    }
    Some(without_middle(ui, text, font, room))
}

fn fitted_line<'a>(ui: &Ui, text: &'a str, font: &FontId, room: f32) -> Option<Cow<'a, str>> {
    let fits = |chars: usize| width(ui, &shorten_line(text, chars), font) <= room;
    let (mut most, mut too_many) = (0, text.chars().count());
    let line = LineText::parse(text);
    // Without its extension, a file's name still identifies it.
    let stem = line.file_name().rsplit_once('.').map_or(line.file_name(), |(stem, _)| stem);
    let stem = format!("{stem}:{}", line.line);
    let stem = Some(stem).filter(|stem| width(ui, stem, font) <= room).map(Cow::Owned);
    if !fits(most) {
        return stem;
    }
    while too_many - most > 1 {
        let middle = usize::midpoint(most, too_many);
        if fits(middle) {
            most = middle;
        } else {
            too_many = middle;
        }
    }
    let shortened = shorten_line(text, most);
    let has_file = shortened.contains(&format!("{}:{}", line.file_name(), line.line));
    let function = LineText::parse(&shortened).function;
    if has_file && function.contains('…') {
        let place = LineText { path: line.file_name(), function: "", ..line };
        let name = line.function.rsplit("::").next().filter(|name| !name.contains(['<', '(', ')', ' ']));
        let bare = name.map(|function| LineText { function, ..place }.to_string());
        // The name without its type may fit; a few letters of it say nothing.
        let is_short = function.trim_start_matches(['…', ':']).chars().count() < 5;
        let bare = bare.filter(|text| width(ui, text, font) <= room);
        if let Some(text) = bare.or(is_short.then(|| place.to_string())) {
            return Some(Cow::Owned(text));
        }
    }
    stem.filter(|_| !has_file).or(Some(shortened))
}

/// Fraction of the space for the beginning of a text. The end is more informative.
const BEGINNING: f32 = 0.3;

/// Returns as much of the beginning and the end of `text` as fits, with an ellipsis in the middle.
fn without_middle<'a>(ui: &Ui, text: &'a str, font: &FontId, room: f32) -> Cow<'a, str> {
    ui.fonts_mut(|fonts| {
        // Rounding of positions must not cost the last letter.
        let room = room - fonts.glyph_width(font, '…') - 2.0;
        let mut left = room * BEGINNING;
        let mut fits = |(_, sign): &(usize, char)| {
            left -= fonts.glyph_width(font, *sign);
            left >= 0.0
        };
        let last = text.char_indices().find(|sign| !fits(sign)).map_or(text.len(), |(at, _)| at);
        let used: f32 = text[..last].chars().map(|sign| fonts.glyph_width(font, sign)).sum();
        let mut left = room - used;
        let fits = |(_, sign): &(usize, char)| {
            left -= fonts.glyph_width(font, *sign);
            left >= 0.0
        };
        let rest = &text[last..];
        let first = rest.char_indices().rev().take_while(fits).last().map_or(rest.len(), |(at, _)| at);
        Cow::Owned(format!("{}…{}", &text[..last], &rest[first..]))
    })
}

/// One line of text, truncated at `room` points.
pub(crate) fn line(painter: &Painter, text: impl Into<String>, format: TextFormat, room: f32) -> Arc<Galley> {
    let mut job = LayoutJob::single_section(text.into(), format);
    job.break_on_newline = false;
    job.wrap = TextWrapping::truncate_at_width(room);
    painter.layout_job(job)
}

/// The width of `text` in points.
pub(crate) fn width(ui: &Ui, text: &str, font: &FontId) -> f32 {
    ui.fonts_mut(|fonts| text.chars().map(|sign| fonts.glyph_width(font, sign)).sum())
}

/// The width of the widest of `texts` in points; 0 without any.
pub(crate) fn widest<T: AsRef<str>>(ui: &Ui, texts: impl Iterator<Item = T>, font: &FontId) -> f32 {
    texts.map(|text| width(ui, text.as_ref(), font)).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use egui_kittest::Harness;

    use super::*;

    /// `text` shortened to `room` points.
    fn left(text: &str, rooms: &[f32]) -> Vec<Option<String>> {
        let found = Rc::new(RefCell::new(Vec::new()));
        let (heard, text, rooms) = (Rc::clone(&found), text.to_owned(), rooms.to_vec());
        let mut harness = Harness::new_ui(move |ui| {
            let font = FontId::proportional(13.0);
            let one = |room: &f32| fitted(ui, &text, &font, *room).map(Cow::into_owned);
            *heard.borrow_mut() = rooms.iter().map(one).collect();
        });
        harness.run_steps(1);
        found.take()
    }

    #[test]
    fn a_source_line_keeps_its_file_and_number_on_every_system() {
        for path in ["/home/me/project/models/vit.py", "C:\\Users\\me\\project\\models\\vit.py"] {
            let text = format!("{path}:184 forward_features");
            let found = left(&text, &[1000.0, 220.0, 120.0, 60.0, 10.0]);
            assert_eq!(found[0].as_deref(), Some(text.as_str()));
            let has = |row: usize, part: &str| found[row].as_ref().is_some_and(|text: &String| text.contains(part));
            assert!(has(1, "vit.py:184 forward_features") && has(2, "vit.py:184"), "{found:?}");
            assert!(has(3, ":184"), "of the file's name only the end has room: {found:?}");
            assert_eq!(found[4], None, "no room for a whole line number");
        }
    }

    #[test]
    fn a_file_loses_its_ending_before_its_name_is_cut() {
        let found = left("/home/me/model.py:39 forward", &[56.0, 84.0, 200.0]);
        assert_eq!(found[0].as_deref(), Some("model:39"));
        assert_eq!(found[1].as_deref(), Some("model.py:39"));
        assert!(found[2].as_ref().is_some_and(|text| text.ends_with("model.py:39 forward")), "{found:?}");
    }

    #[test]
    fn a_function_loses_its_type_before_its_name_is_cut_and_a_few_letters_of_it_are_left_out() {
        let found = left("gpt2.rs:213 <app::Block as app::Module>::forward_into", &[260.0, 180.0, 85.0]);
        let found: Vec<&str> = found.iter().map(|text| text.as_deref().unwrap_or_default()).collect();
        assert_eq!(found[..2], ["gpt2.rs:213 Block::forward_into", "gpt2.rs:213 forward_into"]);
        assert_eq!(found[2], "gpt2.rs:213");
    }

    #[test]
    fn other_text_keeps_its_beginning_and_its_end_where_both_say_most() {
        let path = "encoder.layers.3.mlp.fc1";
        let found = left(path, &[1000.0, 110.0, 1.0]);
        assert_eq!(found[0].as_deref(), Some(path));
        let parts = found[1].as_deref().and_then(|text| text.split_once('…'));
        assert!(parts.is_some_and(|(start, end)| start.starts_with("en") && end.ends_with("mlp.fc1")), "{found:?}");
        assert_eq!(found[2].as_deref(), Some("…"));
    }
}
