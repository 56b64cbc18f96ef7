//! A snapshot of everything the app shows, to compare with a later one.

use std::collections::BTreeSet;

use eframe::egui::{OutputCommand, Theme, ViewportId};
use egui_kittest::Harness;
use egui_kittest::kittest::NodeT as _;
use highwater_app::gui::{App, Settings};
use highwater_app::selection::Selection;

/// The visible state of the app.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The name of the recording in front.
    pub(crate) file: Option<String>,
    /// The address of that recording in memory: it changes when the file is read again.
    pub(crate) recording: usize,
    pub(crate) selection: Option<Selection>,
    /// The moment of the panels, and that of the peak.
    pub(crate) moment: usize,
    pub(crate) peak: usize,
    /// The conditions in the search box.
    pub(crate) search: String,
    pub(crate) settings: Settings,
    pub(crate) is_typing: bool,
    pub(crate) is_dark: bool,
    pub(crate) scale: f32,
    /// Number of painted shapes.
    pub(crate) shapes: usize,
    /// All texts of the accessibility tree.
    pub(crate) told: BTreeSet<String>,
    /// Copied text, and requests to the window.
    pub(crate) asked: Vec<String>,
}

impl Seen {
    pub(crate) fn of(harness: &Harness<'_, App>, asked: Vec<String>) -> Self {
        let app = harness.state();
        let file = app.current();
        let told = harness.root().children_recursive().flat_map(|node| {
            let node = node.accesskit_node();
            [node.label(), node.value()].into_iter().flatten()
        });
        Self {
            file: file.map(|file| file.recording.name.clone()),
            recording: file.map_or(0, |file| std::sync::Arc::as_ptr(&file.recording).addr()),
            selection: file.map(|file| file.selection.clone()),
            moment: file.map_or(0, |file| file.moment().0.position()),
            peak: file.map_or(0, |file| {
                let index = &file.recording.devices[file.selection.device];
                index.peak(&file.recording.trace, file.selection.metric).position()
            }),
            search: file.map(|file| file.search.text().to_owned()).unwrap_or_default(),
            settings: app.settings().clone(),
            is_typing: harness.ctx.text_edit_focused(),
            is_dark: harness.ctx.theme() == Theme::Dark,
            scale: harness.ctx.zoom_factor(),
            shapes: harness.output().shapes.len(),
            told: told.collect(),
            asked,
        }
    }

    fn selection(&self) -> &Selection {
        self.selection.as_ref().expect("a recording is open")
    }

    /// The visible part, in the order left, right, bottom, top.
    fn view(&self) -> [f64; 4] {
        let view = self.selection().view();
        [view.x.start, view.x.end, view.y.start, view.y.end]
    }

    pub(crate) fn left(&self) -> f64 {
        self.view()[0]
    }

    pub(crate) fn right(&self) -> f64 {
        self.view()[1]
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.view()[2]
    }

    pub(crate) fn width(&self) -> f64 {
        self.right() - self.left()
    }

    pub(crate) fn height(&self) -> f64 {
        self.view()[3] - self.bottom()
    }

    /// The pinned block's number.
    pub(crate) fn block(&self) -> Option<u32> {
        self.selection().pin.and_then(|pin| pin.block).map(|block| block.0)
    }

    pub(crate) fn marks(&self) -> [Option<usize>; 2] {
        self.selection().marks
    }

    /// Whether the accessibility tree has a text that contains `text`.
    pub(crate) fn shows(&self, text: &str) -> bool {
        self.told.iter().any(|told| told.contains(text))
    }

    /// Whether `text` was copied or is part of a request to the window.
    pub(crate) fn asks(&self, text: &str) -> bool {
        self.asked.iter().any(|asked| asked.contains(text))
    }
}

/// Text copied in the last frame, and its requests to the window.
pub(crate) fn asked_for(harness: &Harness<'_, App>) -> Vec<String> {
    let output = harness.output();
    let copied = output.platform_output.commands.iter().filter_map(|command| match command {
        OutputCommand::CopyText(text) => Some(text.clone()),
        _ => None,
    });
    let window = output.viewport_output.get(&ViewportId::ROOT);
    let window = window.into_iter().flat_map(|window| &window.commands).map(|command| format!("{command:?}"));
    copied.chain(window).collect()
}
