//! Settings: what the app remembers from one start to the next.

use std::path::{Path, PathBuf};

use super::colouring::ColourBy;
use super::layout::{Bottom, Side};
use super::timeline::Stacking;

/// Files kept in the list.
const MOST_RECENT: usize = 10;

/// Choices that outlive a recording.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Files opened lately, the last one first.
    pub recent: Vec<PathBuf>,
    /// What colours mean.
    pub colour_by: ColourBy,
    /// The order of the stack.
    pub stacking: Stacking,
    /// Whether totals are drawn as lines.
    pub has_lines: bool,
    /// Whether lines and letters are stronger than usual.
    pub has_contrast: bool,
    /// Whether blocks that do not meet the conditions are hidden, not only dimmed.
    pub is_hiding: bool,
    /// The view at the side of the timeline.
    pub side: Side,
    /// The view below the timeline.
    pub bottom: Option<Bottom>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            recent: Vec::new(),
            colour_by: ColourBy::default(),
            stacking: Stacking::default(),
            has_lines: true,
            has_contrast: false,
            is_hiding: false,
            side: Side::Moment,
            bottom: None,
        }
    }
}

impl Settings {
    /// Puts `path` first in the list of recent files.
    pub fn remember(&mut self, path: &Path) {
        self.recent.retain(|known| known != path);
        self.recent.insert(0, path.to_owned());
        self.recent.truncate(MOST_RECENT);
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(settings.recent.len(), MOST_RECENT);
    }
}
