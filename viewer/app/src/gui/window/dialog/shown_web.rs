//! The file dialogs of the browser. The contents of chosen files arrive separately. Written files become downloads, for
//! which the browser shows its own dialog.

use std::path::PathBuf;

use wasm_bindgen::prelude::wasm_bindgen;

use super::{Ask, Chosen};
use crate::Pending;

#[wasm_bindgen]
extern "C" {
    /// Lets the user choose recordings, which are then opened.
    #[wasm_bindgen(js_namespace = highwater)]
    fn choose_files();
}

/// Asks for files to open; files to write get their suggested name. Returns immediately; the chosen files are reported
/// to the app later.
pub(super) fn ask(ask: Ask, wake: impl FnOnce()) -> Pending<(Ask, Chosen)> {
    let chosen = match &ask {
        Ask::Save(task) => Chosen::Path(PathBuf::from(&task.name)),
        Ask::File | Ask::Folder => {
            choose_files();
            Chosen::Arriving
        }
    };
    wake();
    Pending::done((ask, chosen))
}
