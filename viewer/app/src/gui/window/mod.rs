//! The window around the views: bars, tabs, dialogs, first screen, settings.

pub mod entered;
pub mod palette;
pub mod help;
pub mod file_style;
pub mod settings;
pub mod status;
pub mod preview;
pub mod tabs;
pub mod recents;
pub mod failure;
mod thumbnail;
pub mod welcome;
pub mod saving;
pub mod dialog;
mod path_completion;
pub mod path_field;
pub mod top_bar;
