//! The system's file dialogs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Ask, Chosen};
use crate::Pending;

const ENDINGS: [&str; 10] = ["snap", "pickle", "pkl", "json", "html", "gz", "prof", "sqlite", "csv", "log"];
/// A dialog that closes sooner than this after opening is assumed never to have been shown.
const NEVER_SHOWN: Duration = Duration::from_millis(1500);

/// Asks on a background thread, so that the window stays responsive. `wake` is called when there is an answer.
pub(super) fn ask(ask: Ask, wake: impl FnOnce() + Send + 'static) -> Pending<(Ask, Chosen)> {
    let work = move || {
        let began = Instant::now();
        let path = show(&ask);
        Ok((ask, chosen(path, began.elapsed(), has_fallback())))
    };
    Pending::start("highwater-dialog", "the file dialog failed", work, wake)
}

fn show(ask: &Ask) -> Option<PathBuf> {
    let dialog = rfd::FileDialog::new().set_title(ask.title());
    match ask {
        Ask::File => dialog.add_filter("Recordings", &ENDINGS).add_filter("All files", &["*"]).pick_file(),
        Ask::Folder => dialog.pick_folder(),
        Ask::Save(task) => {
            let add = |dialog: rfd::FileDialog, kind: &(&'static str, &[&str])| dialog.add_filter(kind.0, kind.1);
            task.kinds.iter().fold(dialog.set_file_name(&task.name), add).save_file()
        }
    }
}

/// Returns whether dialogs can be shown without a desktop portal, which on Linux requires zenity.
fn has_fallback() -> bool {
    if cfg!(any(windows, target_os = "macos")) {
        return true;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("zenity").is_file())
}

/// Returns the result of a dialog that returned `path` after `took`. A dialog that cannot be shown is indistinguishable
/// from one that is cancelled immediately.
fn chosen(path: Option<PathBuf>, took: Duration, has_fallback: bool) -> Chosen {
    match path {
        Some(path) => Chosen::Path(path),
        None if !has_fallback && took < NEVER_SHOWN => Chosen::Unavailable,
        None => Chosen::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialog_that_was_never_shown_differs_from_one_that_was_closed() {
        let (at_once, later) = (Duration::from_millis(20), Duration::from_secs(4));
        let path = || Some(PathBuf::from("a.snap"));
        assert_eq!(chosen(path(), at_once, false), Chosen::Path("a.snap".into()));
        assert_eq!(chosen(None, at_once, false), Chosen::Unavailable);
        assert_eq!(chosen(None, later, false), Chosen::Cancelled, "a portal showed it");
        assert_eq!(chosen(None, at_once, true), Chosen::Cancelled, "zenity showed it");
    }
}
