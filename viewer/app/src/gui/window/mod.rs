//! The window around the views: bars, tabs, dialogs, start screen, settings.

pub(crate) mod palette;
pub(crate) mod help;
pub(crate) mod file_style;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod preview;
pub(crate) mod tabs;
pub(crate) mod recents;
pub(crate) mod failure;
pub(crate) mod welcome;
pub(crate) mod dialog;
pub(crate) mod path_field;
pub(crate) mod top_bar;
