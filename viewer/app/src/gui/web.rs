//! Starts the app in a page of a browser, and forwards messages between them. `web/page.js` is the JavaScript side.

use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use eframe::egui;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::HtmlCanvasElement;

use crate::files::fleet::Fleet;
use crate::files::loader::Source;
use crate::gui::app::{App, Arrival};
use crate::gui::window::settings::Settings;

#[wasm_bindgen]
extern "C" {
    /// Copies bytes of the content with id `number`, starting at `offset`, into `out`. Returns the number copied.
    #[wasm_bindgen(js_namespace = highwater)]
    fn read_content(number: u32, offset: f64, out: &mut [u8]) -> usize;

    /// Frees the content with id `number`.
    #[wasm_bindgen(js_namespace = highwater)]
    fn drop_content(number: u32);
}

/// The content of a file. The page stores it outside of the app's memory, which browsers never shrink.
struct Content {
    number: u32,
    offset: u64,
}

impl Read for Content {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = read_content(self.number, self.offset as f64, out);
        self.offset += read as u64;
        Ok(read)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        drop_content(self.number);
    }
}

/// The running app, as an object of the page.
#[wasm_bindgen]
pub struct Page {
    runner: eframe::WebRunner,
    inbox: Sender<Arrival>,
    ctx: egui::Context,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// Starts the app in `canvas`.
///
/// # Errors
/// Fails if the browser does not support WebGL.
#[wasm_bindgen]
pub async fn start(canvas: HtmlCanvasElement) -> Result<Page, JsValue> {
    let runner = eframe::WebRunner::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let create = move |context: &eframe::CreationContext<'_>| {
        let settings = Settings::load(context.storage);
        let app = App::new(settings);
        // The receiver still exists.
        let _ = sender.send((app.inbox(), context.egui_ctx.clone()));
        Ok(Box::new(app) as Box<dyn eframe::App>)
    };
    runner.start(canvas, eframe::WebOptions::default(), Box::new(create)).await?;
    let (inbox, ctx) = receiver.try_recv().map_err(|_| JsValue::from_str("the app was not created"))?;
    Ok(Page { runner, inbox, ctx })
}

#[wasm_bindgen]
impl Page {
    /// Opens the file `name` of `length` bytes. The page stores its content under the id `number`.
    pub fn open(&self, name: String, number: u32, length: f64) {
        let content = Box::new(Content { number, offset: 0 });
        self.send(Arrival::File(Source::Content { name: name.into(), length: length as u64, content }));
    }

    /// Appends `bytes` to the recording `name`, which is still being written.
    pub fn grow(&self, name: String, bytes: Vec<u8>) {
        self.send(Arrival::Grown(name.into(), bytes));
    }

    /// Reports that no more bytes of the recording `name` will arrive.
    pub fn end(&self, name: String) {
        self.send(Arrival::Ended(name.into()));
    }

    /// Shows the ranks of a folder, given as the JSON of a [`Fleet`].
    ///
    /// # Errors
    /// Fails if the JSON is invalid.
    pub fn show_ranks(&self, json: &str) -> Result<(), String> {
        let fleet: Fleet = serde_json::from_str(json).map_err(|why| why.to_string())?;
        self.send(Arrival::Ranks(Box::new(fleet)));
        Ok(())
    }

    /// Reports that the user cancelled choosing a file.
    pub fn choose_none(&self) {
        self.send(Arrival::NoneChosen);
    }

    /// Restores the view described by `fragment`, the fragment of the page's URL.
    pub fn follow_link(&self, fragment: String) {
        self.send(Arrival::Link(fragment));
    }

    /// Compares the first two recordings once all are open.
    pub fn compare(&self) {
        self.send(Arrival::Compare);
    }

    /// Reports the reason the file `name` could not be downloaded.
    pub fn fail(&self, name: String, why: String) {
        self.send(Arrival::Failed(PathBuf::from(name), why));
    }

    /// Returns the app's state as JSON, see [`App::state`]; `None` if the app has stopped.
    pub fn state(&self) -> Option<String> {
        Some(self.runner.app_mut::<App>()?.state().to_string())
    }

    /// The table of a view as CSV. The view must be visible.
    ///
    /// # Errors
    /// Fails with a message, like [`App::table`].
    pub fn table(&self, view: &str) -> Result<String, String> {
        let mut app = self.runner.app_mut::<App>().ok_or("the app has stopped")?;
        app.table(view)
    }

    /// The panic message if the app has crashed.
    pub fn panic_message(&self) -> Option<String> {
        self.runner.panic_summary().map(|summary| summary.message())
    }

    fn send(&self, arrival: Arrival) {
        // The app owns the receiver, and lives as long as the page.
        let _ = self.inbox.send(arrival);
        self.ctx.request_repaint();
    }
}
