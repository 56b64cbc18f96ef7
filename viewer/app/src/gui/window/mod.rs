//! The window around the views: bars, tabs, dialogs, start screen, settings.

pub mod palette;
pub mod help;
pub mod file_style;
pub mod settings;
pub mod status;
pub mod preview;
pub mod tabs;
pub mod recents;
pub mod failure;
pub mod welcome;
pub mod dialog;
pub mod path_field;
pub mod top_bar;
