//! Asks for a path with the system's file dialog, and detects whether the system has one. In browsers,
//! `dialog/shown_web.rs` replaces the dialogs.

#[cfg(not(target_family = "wasm"))]
mod shown;
#[cfg(target_family = "wasm")]
#[path = "dialog/shown_web.rs"]
mod shown;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::Pending;
use crate::files::destination::io_error;
use crate::files::output::write_whole;

#[derive(Debug)]
pub(crate) enum Ask {
    File,
    Folder,
    Save(Task),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Path(PathBuf),
    /// The user chose files, whose content will arrive separately.
    #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only dialogs of browsers answer later"))]
    Arriving,
    Cancelled,
    Unavailable,
}

/// The kind of file dialogs that the app uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialogs {
    /// The system's file dialogs, or a path field in the app if there are none.
    #[default]
    System,
    /// Always the path field in the app.
    PathField,
}

impl Ask {
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::File => "Open a recording",
            Self::Folder => "Open a folder of recordings",
            Self::Save(task) => task.title,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Asking {
    pub answer: Pending<(Ask, Chosen)>,
    pub is_saving: bool,
}

impl Asking {
    pub(crate) fn start(ask: Ask, wake: impl FnOnce() + Send + 'static) -> Self {
        Self { is_saving: matches!(ask, Ask::Save(_)), answer: shown::ask(ask, wake) }
    }
}

type WriteTo = Box<dyn FnOnce(&Path) -> Result<(), String> + Send>;

/// A file to write once the user has chosen its path.
pub(crate) struct Task {
    pub title: &'static str,
    pub name: String,
    /// The file types, each with its extensions.
    pub kinds: &'static [(&'static str, &'static [&'static str])],
    write: WriteTo,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("title", &self.title).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Task {
    /// Saves a picture of `what`. `write` writes it as PNG or SVG, depending on the extension of the path.
    pub(crate) fn picture(what: &str, write: impl FnOnce(&Path) -> Result<(), String> + Send + 'static) -> Self {
        let kinds: &[(&str, &[&str])] = &[("PNG", &["png"]), ("SVG", &["svg"])];
        Self { title: "Save a picture", name: format!("{what}.png"), kinds, write: Box::new(write) }
    }

    /// Saves a screenshot of the window. `write` writes it as PNG.
    pub(crate) fn window(what: &str, write: impl FnOnce(&Path) -> Result<(), String> + Send + 'static) -> Self {
        let name = format!("{what}.png");
        Self { title: "Save the window", name, kinds: &[("PNG", &["png"])], write: Box::new(write) }
    }

    /// Saves a table of `what`. `write` writes its lines.
    pub(crate) fn table(what: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Self {
        let write = move |path: &Path| {
            let written = write_whole(path, |out| {
                let mut out = BufWriter::new(out);
                write(&mut out).and_then(|()| out.flush()).map_err(io_error)
            });
            written.map(|_| ()).map_err(|why| why.to_string())
        };
        let name = format!("{what}.csv");
        Self { title: "Save a table", name, kinds: &[("CSV", &["csv"])], write: Box::new(write) }
    }

    /// Writes to `path`, adding the first extension if the path has none. Returns the path.
    ///
    /// # Errors
    /// Fails with a message if the file cannot be written.
    pub(crate) fn write(self, path: &Path) -> Result<PathBuf, String> {
        let mut path = path.to_owned();
        if path.extension().is_none() {
            path.set_extension(self.kinds[0].1[0]);
        }
        (self.write)(&path).map(|()| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_whole_under_a_name_with_its_ending() {
        let folder = tempfile::tempdir().unwrap();
        let task = Task::table("moment", |out| out.write_all(b"a,b\n"));
        let path = task.write(&folder.path().join("mine")).unwrap();
        assert_eq!(path, folder.path().join("mine.csv"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "a,b\n");
        let task = Task::table("moment", |_| Err(io::Error::other("not ready")));
        let why = task.write(&folder.path().join("other.csv")).unwrap_err();
        assert!(why.contains("not ready"), "{why}");
        assert!(!folder.path().join("other.csv").exists(), "half a table");
    }
}
