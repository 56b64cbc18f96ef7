//! Asks for a path with the system's file dialog, and detects whether there is one. `dialog/shown_web.rs`
//! replaces the dialogs in a browser.

use std::path::PathBuf;

use crate::gui::window::saving::Task;
use crate::pending::Pending;

#[cfg(not(target_family = "wasm"))]
mod shown;
#[cfg(target_family = "wasm")]
#[path = "dialog/shown_web.rs"]
mod shown;

/// The purpose of a path.
#[derive(Debug)]
pub enum Ask {
    /// A recording to open.
    File,
    /// A folder of recordings to open.
    Folder,
    /// A file to write.
    Save(Task),
}

/// The outcome of a dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The user chose this path.
    Path(PathBuf),
    /// The user chose files, which arrive by themselves.
    Arriving,
    /// The user has closed the dialog without a choice.
    Cancelled,
    /// The system has no file dialog.
    Unavailable,
}

/// The kind of file dialogs that the app uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialogs {
    /// The system's, or a path field of the app if there are none.
    #[default]
    System,
    /// Always the path field of the app.
    PathField,
}

impl Ask {
    /// The title of the dialog.
    pub fn title(&self) -> &'static str {
        match self {
            Self::File => "Open a recording",
            Self::Folder => "Open a folder of recordings",
            Self::Save(task) => task.title,
        }
    }
}

/// A dialog shown to the user.
#[derive(Debug)]
pub struct Asking {
    /// The answer, once there is one.
    pub answer: Pending<(Ask, Chosen)>,
    /// Whether the file is to be written.
    pub is_saving: bool,
}

impl Asking {
    /// Asks; `wake` is called when there is an answer.
    pub fn start(ask: Ask, wake: impl FnOnce() + Send + 'static) -> Self {
        Self { is_saving: matches!(ask, Ask::Save(_)), answer: shown::ask(ask, wake) }
    }
}
