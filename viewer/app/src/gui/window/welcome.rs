//! The start screen, shown while nothing is open: how to start, recent files, examples, and the purpose of the app.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::PathBuf;
use std::time::SystemTime;

use eframe::egui::load::SizedTexture;
use eframe::egui::{
    Align, Button, Color32, ColorImage, Context, CursorIcon, FontId, Image, Label, Layout, ProgressBar, Response,
    RichText, Role, ScrollArea, Sense, TextStyle, TextureHandle, TextureOptions, Ui, WidgetInfo, vec2,
};
use highwater_snapshots::format_bytes;
use png::{Decoder, Transformations};

use crate::Command;
use crate::example::{Example, Running};
use crate::files::file_name;
use crate::files::loader::Loading;
use crate::gui::widgets::{fit, fitted, keys, labelled_button_ui, theme};
use crate::gui::window::recents::{Fact, Recents, SIMULATED};
use crate::gui::window::tabs::{Tab, distinct_names};

pub(crate) enum WelcomeAction {
    Ask,
    Open(PathBuf),
    /// Remove this file from the list.
    Forget(PathBuf),
    /// Record this example and open it.
    Record(Example),
}

#[derive(Debug, Default)]
pub(crate) struct Welcome {
    recents: Recents,
    thumbnails: Thumbnails,
}

/// Width of the page in points.
const WIDTH: f32 = 860.0;
/// Font size and maximum width of the names of recent files in points.
const NAME_SIZE: f32 = 14.5;
const MAX_NAME: f32 = 260.0;
/// Width of an example's picture in points; the picture has twice as many pixels.
const PICTURE_WIDTH: f32 = 270.0;

const PYTORCH: [(&str, &str); 2] = [
    ("Also records module names; program unchanged", "highwater run -- python train.py"),
    (
        "Inside the program, without module names",
        "torch.cuda.memory._record_memory_history()\n# … training steps …\ntorch.cuda.memory._dump_snapshot(\"s.pickle\")",
    ),
];

impl Welcome {
    /// Shows the page. `examples` can be recorded; `running` is the example being recorded.
    pub(crate) fn welcome_ui(
        &mut self,
        ui: &mut Ui,
        recent: &[PathBuf],
        examples: &[Example],
        running: Option<&Running>,
    ) -> Option<WelcomeAction> {
        let ctx = ui.ctx().clone();
        self.recents.refresh(recent, move || ctx.request_repaint());
        let mut action = None;
        ScrollArea::vertical().auto_shrink([false, false]).show(ui, |ui| {
            let width = WIDTH.min(ui.available_width() - 16.0);
            ui.add_space((ui.available_height() * 0.07).max(8.0));
            ui.horizontal(|ui| {
                ui.add_space(((ui.available_width() - width) / 2.0).max(0.0));
                ui.vertical(|ui| {
                    ui.set_width(width);
                    head_ui(ui, &mut action);
                    self.recents_ui(ui, recent, &mut action);
                    self.examples_ui(ui, examples, running, &mut action);
                    pytorch_ui(ui);
                });
            });
        });
        action
    }

    fn recents_ui(&self, ui: &mut Ui, recent: &[PathBuf], action: &mut Option<WelcomeAction>) {
        if recent.is_empty() {
            return;
        }
        heading_ui(ui, "Recent");
        let font = FontId::proportional(NAME_SIZE);
        let tabs = recent.iter().map(|path| Tab { name: file_name(path), path: Some(path.clone()) });
        let names = distinct_names(&tabs.collect::<Vec<_>>());
        let width = fit::widest(ui, names.iter(), &font).min(MAX_NAME) + 8.0;
        let facts: Vec<Fact> = recent.iter().map(|path| self.recents.fact(path, SystemTime::now())).collect();
        let body = TextStyle::Body.resolve(ui.style());
        let widths =
            [0, 1, 2, 3].map(|column| fit::widest(ui, facts.iter().map(|fact| fact.texts()[column]), &body) + 6.0);
        for ((path, fact), name) in recent.iter().zip(&facts).zip(&names) {
            ui.horizontal(|ui| {
                let is_there = *fact != Fact::Missing;
                let text = RichText::new(fitted(ui, name, &font, width).unwrap_or_default()).font(font.clone());
                let text = if is_there { text } else { text.weak().strikethrough() };
                let response = cell_ui(ui, width, text, is_there).on_hover_text(path.display().to_string());
                if response.clicked() && is_there {
                    *action = Some(WelcomeAction::Open(path.clone()));
                }
                for (column, (text, width)) in fact.texts().into_iter().zip(widths).enumerate() {
                    let is_simulated = text == SIMULATED;
                    let text = RichText::new(text);
                    let cell = cell_ui(ui, width, if column == 0 { text.strong() } else { text.weak() }, false);
                    if is_simulated {
                        cell.on_hover_text("Recorded on the accounting device, which counts memory and needs no GPU.");
                    }
                }
                let folder = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
                let room = ui.available_width() - 60.0;
                ui.weak(fitted(ui, &folder, &body, room).filter(|_| room > 120.0).unwrap_or_default());
                if !is_there {
                    let label = format!("Forget {name}");
                    if labelled_button_ui(ui, "Forget", &label, "Remove this file from the list.") {
                        *action = Some(WelcomeAction::Forget(path.clone()));
                    }
                }
            });
        }
    }

    /// Shows the training steps that can be recorded; in builds without the engine, the command that records one.
    fn examples_ui(
        &mut self,
        ui: &mut Ui,
        examples: &[Example],
        running: Option<&Running>,
        action: &mut Option<WelcomeAction>,
    ) {
        if examples.is_empty() {
            heading_ui(ui, "No recording yet? Record one on the command line");
            ui.label(RichText::new("highwater record vit-l-16 --device meta --out step.snap").monospace());
            return;
        }
        heading_ui(ui, "No recording yet? Record an example");
        ui.label(RichText::new("Records three training steps exactly, without a GPU, in a few seconds.").weak());
        ui.add_space(4.0);
        ui.with_layout(Layout::left_to_right(Align::TOP).with_main_wrap(true), |ui| {
            ui.spacing_mut().item_spacing = vec2(16.0, 12.0);
            for &example in examples {
                ui.allocate_ui(vec2(PICTURE_WIDTH, 0.0), |ui| {
                    ui.vertical(|ui| {
                        ui.spacing_mut().item_spacing.y = 4.0;
                        let is_chosen = self.picture_ui(ui, example, running.is_none());
                        if example_ui(ui, example, running.is_none()) || is_chosen {
                            *action = Some(WelcomeAction::Record(example));
                        }
                    });
                });
            }
        });
        if let Some(running) = running {
            recording_ui(ui, running);
        }
    }

    /// Shows an example's picture. Returns whether it was clicked. For keyboard users, there is a button below.
    fn picture_ui(&mut self, ui: &mut Ui, example: Example, can_record: bool) -> bool {
        let name = (example.name, ui.visuals().dark_mode);
        let Some(texture) = self.thumbnails.of(ui.ctx(), name, example.picture) else { return false };
        let [width, height] = texture.size().map(|side| side as f32);
        let sized = SizedTexture::new(texture.id(), vec2(PICTURE_WIDTH, PICTURE_WIDTH * height / width));
        let sense = if can_record { Sense::CLICK } else { Sense::hover() };
        let picture = ui.add(Image::from_texture(sized).corner_radius(4.0).sense(sense));
        picture.widget_info(|| WidgetInfo::labeled(Role::Image, true, format!("The timeline of {}", example.title)));
        picture.on_hover_cursor(CursorIcon::PointingHand).clicked()
    }
}

/// Shows a button that records an example, and the example's description.
fn example_ui(ui: &mut Ui, example: Example, can_record: bool) -> bool {
    let button = ui.add_enabled(can_record, Button::new(RichText::new(format!("Record {}", example.title)).size(14.5)));
    ui.add(Label::new(RichText::new(example.about).weak()).wrap());
    button.on_hover_text(format!("highwater record {} --device meta", example.name)).clicked()
}

/// Shows text, or a link, in a column of `width` points.
fn cell_ui(ui: &mut Ui, width: f32, text: RichText, is_link: bool) -> Response {
    let text_ui = |ui: &mut Ui| {
        ui.set_width(width);
        if is_link { ui.link(text) } else { ui.label(text) }
    };
    ui.scope(text_ui).inner
}

fn heading_ui(ui: &mut Ui, text: &str) {
    ui.add_space(14.0);
    ui.label(RichText::new(text).strong().size(15.0));
    ui.add_space(2.0);
}

fn head_ui(ui: &mut Ui, action: &mut Option<WelcomeAction>) {
    ui.label(RichText::new("Highwater").font(FontId::proportional(38.0)).strong());
    ui.label(RichText::new("Shows where GPU memory goes").size(16.0).weak());
    ui.add_space(12.0);
    ui.horizontal(|ui| {
        let text = RichText::new("Open a recording…").size(16.0).color(Color32::WHITE);
        let open = Button::new(text).fill(theme::PRIMARY).min_size(vec2(0.0, 32.0));
        if ui.add(open).on_hover_text(Command::Open.tooltip()).clicked() {
            *action = Some(WelcomeAction::Ask);
        }
        let key = keys::first(Command::Open);
        ui.label(RichText::new(format!("{key}, or drop a file here")).weak());
    });
    ui.add_space(2.0);
    let kinds = "A .snap file, or a PyTorch memory snapshot: pickle, JSON or saved page; also gzipped.";
    ui.label(RichText::new(kinds).weak());
}

pub(crate) fn recording_ui(ui: &mut Ui, running: &Running) {
    let (time, bytes) = running.progress();
    ui.horizontal(|ui| {
        ui.spinner();
        let title = running.example.title;
        ui.label(format!("Recording {title}: {} s, {} written", time.as_secs(), format_bytes(bytes)));
    });
    ui.ctx().request_repaint_after(std::time::Duration::from_millis(500));
}

fn pytorch_ui(ui: &mut Ui) {
    heading_ui(ui, "From PyTorch");
    for (row, (about, lines)) in PYTORCH.into_iter().enumerate() {
        ui.label(RichText::new(about).weak());
        ui.horizontal(|ui| {
            ui.label(RichText::new(lines).monospace());
            let copy = ui.add(Button::new("Copy"));
            let what = if row == 0 { "the command" } else { "the lines" };
            copy.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Copy {what} for PyTorch")));
            if copy.on_hover_text(format!("Copy {what}.")).clicked() {
                ui.ctx().copy_text(lines.to_owned());
            }
        });
    }
}

/// Shows a file that is being read. Returns whether the user cancels.
pub(crate) fn loading_ui(ui: &mut Ui, loading: &Loading) -> bool {
    let (stage, share) = loading.progress();
    ui.horizontal(|ui| {
        // A spinner repaints the window continuously, so it is shown only while the bar does not move.
        if share == 0.0 {
            ui.spinner();
        }
        let name = file_name(loading.path());
        ui.label(format!("{stage}: {name}")).on_hover_text(loading.path().display().to_string());
        ui.add(ProgressBar::new(share).desired_width(180.0).show_percentage());
        ui.button("Cancel").on_hover_text(format!("Stop reading {name}.")).clicked()
    })
    .inner
}

/// Pictures by the name of their example and whether they are dark, each decoded on first use; `None` if it cannot be
/// decoded.
#[derive(Default)]
pub(super) struct Thumbnails(HashMap<(&'static str, bool), Option<TextureHandle>>);

impl std::fmt::Debug for Thumbnails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Thumbnails {
    /// Creates the picture of an example from the PNG data `bytes`, which show a dark window.
    fn of(&mut self, ctx: &Context, name: (&'static str, bool), bytes: &[u8]) -> Option<&TextureHandle> {
        let decode = || {
            let mut image = decoded(bytes)?;
            if !name.1 {
                image.pixels.iter_mut().for_each(lighten);
            }
            Some(ctx.load_texture(format!("example {name:?}"), image, TextureOptions::LINEAR))
        };
        self.0.entry(name).or_insert_with(decode).as_ref()
    }
}

/// Converts the background, the grid and the white lines of a dark picture to a light theme. Other colours stay.
fn lighten(pixel: &mut Color32) {
    /// Greys differ by at most this between their channels.
    const GREY: u8 = 28;
    let [r, g, b, _] = pixel.to_array();
    if r.max(g).max(b) - r.min(g).min(b) <= GREY {
        *pixel = Color32::from_gray(255 - g);
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
    use std::cell::RefCell;
    use std::rc::Rc;

    use eframe::egui::Vec2;
    use egui_kittest::Harness;
    use egui_kittest::kittest::Queryable as _;

    use super::*;

    const EXAMPLES: &[Example] = &[Example { name: "gpt2", title: "GPT-2", about: "A language model.", picture: &[] }];

    type Wishes = Rc<RefCell<Vec<WelcomeAction>>>;

    fn harness(recent: Vec<PathBuf>, examples: &'static [Example]) -> (Harness<'static>, Wishes) {
        let actions = Wishes::default();
        let (heard, mut welcome) = (Rc::clone(&actions), Welcome::default());
        let mut harness = Harness::builder().with_size(Vec2::new(900.0, 800.0)).build_ui(move |ui| {
            heard.borrow_mut().extend(welcome.welcome_ui(ui, &recent, examples, None));
        });
        harness.run_steps(2);
        (harness, actions)
    }

    #[test]
    fn the_page_teaches_how_to_begin() {
        let (mut harness, actions) = harness(Vec::new(), EXAMPLES);
        harness.get_by_label_contains("or drop a file here");
        harness.get_by_label_contains("_record_memory_history()");
        harness.get_by_label("Open a recording…").click();
        harness.run_steps(2);
        harness.get_by_label("Record GPT-2").click();
        harness.run_steps(2);
        let actions = actions.borrow();
        assert!(matches!(actions[..], [WelcomeAction::Ask, WelcomeAction::Record(example)] if example.name == "gpt2"));
        harness.get_by_label("Copy the lines for PyTorch");
    }

    #[test]
    fn a_build_without_examples_says_how_to_get_one() {
        let (harness, _) = harness(Vec::new(), &[]);
        harness.get_by_label("highwater record vit-l-16 --device meta --out step.snap");
        assert!(harness.query_by_label_contains("Record GPT-2").is_none());
    }

    #[test]
    fn recent_files_are_opened_and_missing_ones_can_be_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (there, gone) = (folder.path().join("a.snap"), folder.path().join("b.snap"));
        std::fs::write(&there, [0; 2048]).unwrap();
        let (mut harness, actions) = harness(vec![there.clone(), gone.clone()], &[]);
        while harness.query_by_label("Forget b.snap").is_none() {
            harness.run_steps(1);
            std::thread::yield_now();
        }
        harness.get_by_label("2 KiB");
        harness.get_by_label("just now");
        harness.get_by_label("a.snap").click();
        harness.run_steps(2);
        harness.get_by_label("Forget b.snap").click();
        harness.run_steps(2);
        let actions = actions.borrow();
        assert!(
            matches!(&actions[..], [WelcomeAction::Open(a), WelcomeAction::Forget(b)] if *a == there && *b == gone)
        );
    }

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
