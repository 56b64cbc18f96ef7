//! The desktop window. `web.rs` is its counterpart in a browser.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eframe::egui;

use super::app::App;
use super::window::settings::Settings;
use crate::example::Examples;
use crate::files::failure::Failure;

/// Debian packages that the window needs on X11.
const PACKAGES: &str = "libx11-6 libx11-xcb1 libxcursor1 libxi6 libxkbcommon-x11-0 libegl1 libgl1-mesa-dri";
/// Debian packages that the window needs on Wayland.
const WAYLAND_PACKAGES: &str =
    "libwayland-client0 libwayland-cursor0 libwayland-egl1 libxkbcommon0 libegl1 libgl1-mesa-dri";

/// Opens the window, and returns `None` when it is closed. Shows `files`, or a start screen that offers `examples`.
/// Recordings with more than `most_resident` events are shown in parts. If no window can be opened, returns a message
/// with the requirements.
///
/// # Errors
/// Fails if an error occurs after the window was opened.
pub fn run(files: Vec<PathBuf>, examples: Examples, most_resident: u64) -> Result<Option<String>, Failure> {
    let viewport = egui::ViewportBuilder::default()
        .with_title("Highwater")
        .with_app_id("highwater")
        .with_inner_size([1440.0, 900.0])
        .with_min_inner_size([640.0, 400.0])
        .with_drag_and_drop(true);
    let options = eframe::NativeOptions { viewport, renderer: eframe::Renderer::Glow, ..Default::default() };
    let is_shown = Arc::new(AtomicBool::new(false));
    let has_begun = Arc::clone(&is_shown);
    let create = move |context: &eframe::CreationContext<'_>| {
        let settings = Settings::load(context.storage);
        let mut app = App::new(settings);
        (app.examples, app.most_resident) = (examples, Some(most_resident));
        app.open_all(&context.egui_ctx, &files);
        has_begun.store(true, Ordering::Relaxed);
        Ok(Box::new(app) as Box<dyn eframe::App>)
    };
    // A missing libxkbcommon-x11 causes a panic.
    let run = std::panic::AssertUnwindSafe(|| eframe::run_native("highwater", options, Box::new(create)));
    let ending = std::panic::catch_unwind(run);
    let is_shown = is_shown.load(Ordering::Relaxed);
    let why = match ending {
        Ok(Ok(())) => return Ok(None),
        Ok(Err(why)) if is_shown => return Err(Failure::App(why.to_string())),
        Err(_) if is_shown => return Err(Failure::App("see the message above; please report it".to_owned())),
        Ok(Err(why)) => why.to_string(),
        Err(_) => "the window system's libraries failed (see the message above)".to_owned(),
    };
    Ok(Some(format!(
        "cannot open a window: {why}\n\
         Check that DISPLAY or WAYLAND_DISPLAY is set. On Debian and Ubuntu the app needs\n  \
         X11:     apt-get install {PACKAGES}\n  \
         Wayland: apt-get install {WAYLAND_PACKAGES}\n\
         Every command of the command line works without a display: see highwater --help."
    )))
}
