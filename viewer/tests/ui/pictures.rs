//! Draws whole views without a display and compares them with golden pictures; checks the SVG as well.
//!
//! Fonts are the app's own, so pictures are the same on every machine except for floating-point rounding. After an
//! intended change, `UPDATE_PICTURES=1 cargo test -p highwater --test ui pictures` updates the golden pictures. If a
//! picture differs, the picture and the difference are written to the folder that the failure names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui::{Color32, ColorImage, Theme};
use highwater_analysis::{GroupKey, Metric};
use highwater_app::colour_by::ColourBy;
use highwater_app::gui::{
    DiffChoices, DiffSheet, Paint, Paper, Sheet, SheetView, Stacking, Surface, TimelineStyle, png,
};
use highwater_app::selection::{Axis, Selection, View};
use highwater_app::session::Recording;
use highwater_notation::trace_from_text;
use quick_xml::events::Event;

use super::harness::look;

/// Invisible difference of a channel.
const TOLERANCE: u8 = 12;
/// Most pixels that may differ by more: text moved by one pixel exceeds it.
const MAX_DIFFERENT: usize = 60;

/// Three steps with everything that a picture shows: a baseline, categories, modules, phases, a peak in the optimizer.
fn recording() -> Arc<Recording> {
    let mut text = "baseline w 3145728 parameter @net\nbaseline_segment 0x0 33554432\n".to_owned();
    for step in 0..3 {
        text += &format!("step {step}\nphase forward\n");
        for layer in 0..8 {
            text += &format!("alloc a{step}.{layer} {} activation #linear @net.{layer}\n", 400_000 + layer * 50_000);
        }
        text += "phase backward\n";
        for layer in (0..8).rev() {
            text += &format!("alloc g{step}.{layer} 390000 gradient #linear @net.{layer}\nfree a{step}.{layer}\n");
        }
        text += "phase optimizer\n";
        if step == 0 {
            text += "alloc m 3145728 optimizer_state #adam @net\n";
        }
        text += &format!("alloc t{step} {} temporary #adam @net\nfree t{step}\n", 3_000_000 + step % 2 * 500_000);
        text += "phase zero_grad\n";
        for layer in 0..8 {
            text += &format!("free g{step}.{layer}\n");
        }
    }
    Arc::new(Recording::new("steps & <more>.snap", None, trace_from_text(&text).unwrap()))
}

fn drawn(recording: &Arc<Recording>, selection: Selection, look: TimelineStyle, paper: Paper) -> Surface {
    let view = SheetView::named("timeline").unwrap();
    let mut sheet = Sheet::new(Arc::clone(recording), selection, look, "");
    let mut surface = Surface::new(paper);
    assert!(surface.draw(|ui| sheet.sheet_ui(ui, view)), "the picture never became complete");
    surface
}

fn read(path: &Path) -> Option<ColorImage> {
    let mut reader = ::png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).ok()?)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    Some(ColorImage::from_rgba_unmultiplied([info.width as usize, info.height as usize], &bytes))
}

fn write(path: &Path, image: &ColorImage) {
    png::write(std::fs::File::create(path).unwrap(), image).unwrap();
}

/// Compares `image` with the golden picture `name`, or updates the golden picture if requested.
fn check(name: &str, image: &ColorImage) {
    let kept_at: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "pictures", name].iter().collect();
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        write(&kept_at, image);
        return;
    }
    let kept = read(&kept_at).unwrap_or_else(|| panic!("{} is missing", kept_at.display()));
    assert_eq!(image.size, kept.size, "{name}");
    let differs = |(one, other): (&Color32, &Color32)| {
        one.to_array().iter().zip(other.to_array()).any(|(one, other)| one.abs_diff(other) > TOLERANCE)
    };
    let different: Vec<bool> = image.pixels.iter().zip(&kept.pixels).map(differs).collect();
    let count = different.iter().filter(|differs| **differs).count();
    if count > MAX_DIFFERENT {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        write(&folder.join(name), image);
        let marked = image.pixels.iter().zip(&different);
        let marked = marked.map(|(pixel, differs)| if *differs { Color32::RED } else { pixel.gamma_multiply(0.3) });
        write(&folder.join(format!("differs-{name}")), &ColorImage::new(image.size, marked.collect()));
        panic!("{count} pixels of {name} differ: see it, and differs-{name}, in {}", folder.display());
    }
}

#[test]
fn the_whole_timeline_is_drawn_as_it_was() {
    let recording = recording();
    let paper = Paper::new([480, 300], 0.5, Theme::Light).unwrap();
    let surface = drawn(&recording, Selection::new(&recording), look(), paper);
    check("timeline-light.png", &surface.image());
}

#[test]
fn a_part_of_it_is_drawn_as_it_was_in_other_colours_and_order() {
    let recording = recording();
    let mut selection = Selection::new(&recording);
    let x = selection.x_of_events(&recording.trace, 10..40);
    let y = selection.view().y.clone();
    selection.show(&recording, View { x, y });
    let (colour_by, stacking) = (ColourBy(GroupKey::ScopeTo(2)), Stacking::Colour);
    let look = TimelineStyle { paint: Paint { colour_by, stacking, ..Paint::default() }, ..look() };
    let paper = Paper::new([480, 300], 0.75, Theme::Dark).unwrap();
    check("part-dark.png", &drawn(&recording, selection, look, paper).image());
}

#[test]
fn two_recordings_are_drawn_side_by_side_as_they_were() {
    let a = recording();
    let text = "
        baseline w 3145728 parameter @net
        step 0
        phase forward
        alloc a 900000 activation #linear @net.0
        phase backward
        alloc g 3145728 gradient #linear @net.0
        free a
        phase optimizer
        alloc m 3145728 optimizer_state #adam @net
        phase zero_grad
        free g";
    let b = Arc::new(Recording::new("short.snap", None, trace_from_text(text).unwrap()));
    let choices = DiffChoices::usual([&a, &b], Metric::Requested);
    let selections = [Selection::new(&a), Selection::new(&b)];
    let mut sheet = DiffSheet::new([a, b], selections.each_ref(), choices, Paint::default());
    let mut surface = Surface::new(Paper::new([600, 480], 0.75, Theme::Light).unwrap());
    assert!(surface.draw(|ui| sheet.sheet_ui(ui)), "the picture never became complete");
    check("diff-light.png", &surface.image());
}

#[test]
fn two_drawings_of_one_recording_are_the_same_to_the_last_pixel() {
    let recording = recording();
    let mut selection = Selection::new(&recording);
    selection.set_axis(&recording, Axis::Time);
    let paper = Paper::new([640, 400], 1.0, Theme::Light).unwrap();
    let draw = || drawn(&recording, selection.clone(), look(), paper);
    let (one, other) = (draw(), draw());
    assert!(one.image() == other.image());
    assert_eq!(one.svg("steps"), other.svg("steps"));
}

#[test]
fn the_svg_is_sound_xml_and_says_what_the_picture_shows() {
    let recording = recording();
    let paper = Paper::new([1600, 900], 1.0, Theme::Light).unwrap();
    let text = drawn(&recording, Selection::new(&recording), look(), paper).svg("steps & <more>");
    let mut reader = quick_xml::Reader::from_str(&text);
    reader.config_mut().check_end_names = true;
    let (mut depth, mut words, mut names) = (0, Vec::new(), Vec::new());
    let mut word = String::new();
    loop {
        match reader.read_event().unwrap_or_else(|why| panic!("at byte {}: {why}", reader.error_position())) {
            Event::Start(tag) => {
                depth += 1;
                names.push(String::from_utf8(tag.name().as_ref().to_vec()).unwrap());
                tag.attributes().for_each(|attribute| drop(attribute.unwrap()));
            }
            Event::Empty(tag) => {
                names.push(String::from_utf8(tag.name().as_ref().to_vec()).unwrap());
                tag.attributes().for_each(|attribute| drop(attribute.unwrap()));
            }
            Event::Text(text) => word.push_str(&text.decode().unwrap()),
            Event::GeneralRef(entity) => word.push_str(&format!("&{};", entity.decode().unwrap())),
            Event::End(_) => {
                depth -= 1;
                words.push(std::mem::take(&mut word).trim().to_owned());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    for wanted in [
        "steps &amp; &lt;more&gt;.snap",
        "Peak 12.31 MiB",
        "step 1, optimizer, event 93",
        "optimizer_state",
        "backward",
        "step 2",
        "8 MiB",
    ] {
        assert!(has(wanted), "'{wanted}' is not among {words:?}");
    }
    let count = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    assert!(count("image") == 2 && count("clipPath") > 1 && count("text") > 20, "{names:?}");
}

#[test]
fn a_view_that_is_not_there_is_refused_with_those_that_are() {
    assert!(SheetView::named("timelines").unwrap_err().contains("views are: timeline"));
}
