//! The browser's file dialogs. Chosen files arrive by themselves, and files to write become downloads, for which
//! browsers ask by themselves.

use std::cell::RefCell;
use std::path::PathBuf;

use wasm_bindgen::prelude::wasm_bindgen;

use super::{Ask, Chosen};

#[wasm_bindgen]
extern "C" {
    /// Lets the user choose recordings, which are then opened.
    #[wasm_bindgen(js_namespace = highwater)]
    fn choose_files();
}

/// A question that is answered at once. Chosen files, or that none was chosen, are reported to the app.
#[derive(Debug)]
pub struct Asking {
    answer: RefCell<Option<(Ask, Chosen)>>,
    /// Whether the file is to be written.
    pub is_saving: bool,
}

impl Asking {
    /// Asks for files to open; files to write get their suggested name.
    pub fn start(ask: Ask, wake: impl FnOnce()) -> Self {
        let is_saving = matches!(ask, Ask::Save(_));
        let chosen = match &ask {
            Ask::Save(task) => Chosen::Path(PathBuf::from(&task.name)),
            Ask::File | Ask::Folder => {
                choose_files();
                Chosen::Arriving
            }
        };
        wake();
        Self { answer: RefCell::new(Some((ask, chosen))), is_saving }
    }

    /// The answer, once.
    pub fn poll(&self) -> Option<Result<(Ask, Chosen), String>> {
        self.answer.take().map(Ok)
    }
}
