//! The settings saved between starts of the app: choices, recent files, and the view settings of each file.

use std::path::{Path, PathBuf};

use highwater_analysis::{GroupKey, Metric, TreeKey};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::gui::views::list::{Bottom, Side};
use crate::gui::views::moment::Choices;
use crate::gui::views::timeline::{Paint, Stacking};
use crate::gui::window::file_style::FileStyle;
use crate::{ColourBy, Recording};

const MAX_RECENT: usize = 10;
/// Maximum number of files whose view settings are stored.
const MAX_LOOKS: usize = 50;

/// Settings that apply to all recordings. Stored as JSON. Its sections are read separately, so that a section in the
/// format of another version is ignored without affecting the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Recently opened files, the latest first.
    pub recent: Vec<PathBuf>,
    /// The settings for painting blocks.
    #[serde(flatten)]
    pub paint: Paint,
    /// Whether lines and text have high contrast.
    pub has_contrast: bool,
    /// The grouping and display of memory at a moment.
    pub choices: Choices,
    /// The view at the side of the timeline.
    pub side: Side,
    /// Whether the side panel is collapsed.
    pub is_side_folded: bool,
    /// The view below the timeline; `None` if none is open.
    pub bottom: Option<Bottom>,
    /// View settings of files, the latest first.
    #[serde(deserialize_with = "valid_looks")]
    looks: Vec<FileStyle>,
}

/// Maximum number of blocks at a peak that are stacked by age when colouring by line. More bands would be too thin to
/// distinguish, so blocks of the same line are then stacked together.
const MAX_LINES_BY_AGE: usize = 300;

impl Settings {
    /// Chooses settings for a recording that was not opened before: colours and grouping by the most informative key,
    /// the stacking order, and the moment view at the side.
    pub(crate) fn start_with(&mut self, recording: &Recording) {
        let key = recording.absent.leading_key();
        self.paint.colour_by = ColourBy(key);
        let index = &recording.devices[recording.main_device()];
        let peak = index.peak(&recording.trace, Metric::Requested).position();
        let is_crowded = index.live.before_position(&recording.trace, Metric::Requested, peak).len() > MAX_LINES_BY_AGE;
        let is_by_colour = key == GroupKey::Frame && is_crowded;
        self.paint.stacking = if is_by_colour { Stacking::Colour } else { Stacking::Age };
        (self.choices.first, self.choices.second, self.side) = (TreeKey::By(key), None, Side::Moment);
    }

    /// Moves or adds `path` to the start of the list of recent files.
    pub fn remember(&mut self, path: &Path) {
        self.forget(path);
        self.recent.insert(0, path.to_owned());
        self.recent.truncate(MAX_RECENT);
    }

    /// Removes `path` from the list of recent files.
    pub fn forget(&mut self, path: &Path) {
        self.recent.retain(|known| known != path);
    }

    /// Returns the view settings of the file at `path` when it was last closed; `None` if they are not stored.
    pub fn look(&self, path: &Path) -> Option<&FileStyle> {
        self.looks.iter().find(|look| look.path == path)
    }

    pub(crate) fn keep_look(&mut self, look: FileStyle) {
        self.looks.retain(|known| known.path != look.path);
        self.looks.insert(0, look);
        self.looks.truncate(MAX_LOOKS);
    }

    /// Loads the settings from `storage`, or the defaults if there are none.
    pub(crate) fn load(storage: Option<&dyn eframe::Storage>) -> Self {
        let text = storage.and_then(|storage| eframe::get_value::<String>(storage, eframe::APP_KEY));
        Self::from_json(&text.unwrap_or_default())
    }

    pub(crate) fn store(&self, storage: &mut dyn eframe::Storage) {
        eframe::set_value(storage, eframe::APP_KEY, &self.to_json());
    }

    fn to_json(&self) -> String {
        let mut stored = self.clone();
        // JSON cannot represent paths that are not UTF-8.
        stored.recent.retain(|path| path.to_str().is_some());
        stored.looks.retain(|look| look.path.to_str().is_some());
        serde_json::json!(stored).to_string()
    }

    fn from_json(text: &str) -> Self {
        let (mut settings, mut valid) = (Self::default(), Map::new());
        for (name, part) in serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default() {
            valid.insert(name.clone(), part);
            match serde_json::from_value(Value::Object(valid.clone())) {
                Ok(read) => settings = read,
                Err(_) => drop(valid.remove(&name)),
            }
        }
        settings.recent.truncate(MAX_RECENT);
        settings.looks.truncate(MAX_LOOKS);
        settings
    }
}

/// Reads the view settings of files without those that are invalid.
fn valid_looks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<FileStyle>, D::Error> {
    let looks = Vec::<Value>::deserialize(deserializer)?;
    Ok(looks.into_iter().filter_map(|look| serde_json::from_value(look).ok()).collect())
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    #[test]
    fn the_last_file_comes_first_and_none_comes_twice() {
        let mut settings = Settings::default();
        for name in ["a", "b", "a"] {
            settings.remember(Path::new(name));
        }
        assert_eq!(settings.recent, [Path::new("a"), Path::new("b")]);
        for number in 0..20 {
            settings.remember(Path::new(&number.to_string()));
        }
        assert_eq!(settings.recent.len(), MAX_RECENT);
        settings.forget(Path::new("19"));
        assert_eq!(settings.recent[0], Path::new("18"));
    }

    #[test]
    fn a_new_recording_starts_by_what_it_has_and_not_by_what_the_last_one_showed() {
        let recording = |text: &str| Recording::new("test", None, trace_from_text(text).unwrap());
        let mut settings = Settings { side: Side::Block, ..Settings::default() };
        settings.start_with(&recording("alloc a 1 < main"));
        assert_eq!((settings.paint.colour_by, settings.side), (ColourBy(GroupKey::Frame), Side::Moment));
        assert_eq!((settings.choices.first, settings.paint.stacking), (TreeKey::By(GroupKey::Frame), Stacking::Age));
        let many: String = (0..301).map(|block| format!("alloc b{block} 1 < f{block}\n")).collect();
        settings.start_with(&recording(&many));
        assert_eq!(settings.paint.stacking, Stacking::Colour);
        for text in ["alloc a 1 @net < main", "alloc a 1 #relu < main", "alloc a 1"] {
            settings.start_with(&recording(text));
            assert_eq!(
                (settings.paint.colour_by, settings.paint.stacking),
                (ColourBy::default(), Stacking::Age),
                "{text}"
            );
        }
    }

    fn look(name: &str) -> FileStyle {
        FileStyle { path: PathBuf::from(name), device: 3, ..FileStyle::default() }
    }

    #[test]
    fn looks_of_the_last_files_are_kept_and_come_back_from_storage() {
        let mut settings = Settings {
            paint: Paint { colour_by: ColourBy(GroupKey::ScopeTo(2)), has_lines: false, ..Paint::default() },
            has_contrast: true,
            side: Side::Statistics,
            bottom: Some(Bottom::Events),
            ..Settings::default()
        };
        settings.remember(Path::new("a"));
        for number in 0..60 {
            settings.keep_look(look(&number.to_string()));
        }
        settings.keep_look(look("30"));
        assert_eq!(settings.looks.len(), MAX_LOOKS);
        assert!(settings.look(Path::new("9")).is_none());
        let back = Settings::from_json(&settings.to_json());
        assert_eq!(back, settings);
        assert_eq!(back.look(Path::new("30")).unwrap().device, 3);
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_text_is_not_stored() {
        use std::os::unix::ffi::OsStrExt as _;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"\xff.snap"));
        let mut settings = Settings::default();
        settings.remember(path);
        settings.remember(Path::new("a"));
        settings.keep_look(FileStyle { path: path.to_owned(), ..look("") });
        let back = Settings::from_json(&settings.to_json());
        assert_eq!((back.recent.len(), back.looks.len()), (1, 0));
    }

    #[test]
    fn what_cannot_be_read_costs_itself_alone() {
        let text = r#"{
            "recent": ["a"], "colour_by": "Flavour", "has_lines": false, "new": 7,
            "looks": [{"path": "a", "axis": "Sideways"}, {"path": "b", "device": 1, "unheard": []}, 5]
        }"#;
        let settings = Settings::from_json(text);
        assert_eq!(
            (settings.recent.len(), settings.paint.colour_by, settings.paint.has_lines),
            (1, ColourBy::default(), false)
        );
        let known: Vec<&Path> = settings.looks.iter().map(|look| look.path.as_path()).collect();
        assert_eq!(known, [Path::new("b")]);
        assert_eq!(Settings::from_json("(recent: [])"), Settings::default());
    }
}
