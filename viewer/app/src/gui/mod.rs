//! The user interface: a window of eframe around [`App`], which can also be driven without a window.

#[cfg(not(target_family = "wasm"))]
mod host;
#[cfg(target_family = "wasm")]
#[path = "host_web.rs"]
mod host;
mod identity;
mod widgets;
mod colouring;
mod legend;
mod filter;
mod views;
mod window;
mod open_file;
mod view_actions;
mod parts;
mod file_commands;
mod surface;
mod app;
#[cfg(not(target_family = "wasm"))]
mod desktop;
#[cfg(target_family = "wasm")]
pub mod web;
#[cfg(test)]
mod tests;

pub use app::{App, Arrival};
#[cfg(not(target_family = "wasm"))]
pub use desktop::run;
pub use surface::{DiffSheet, Format, Paper, Sheet, SheetView, Surface, png, save_view};
pub use views::diff::{Align, DiffChoices, DiffLook, DiffView};
pub use views::list::{Bottom, Side};
pub use views::moment::MomentLook;
pub use views::plan::PlanView;
pub use views::run_chart::RunChart;
pub use views::segments::SegmentsView;
pub use views::timeline::{Paint, Stacking, Timeline, TimelineStyle};
pub use views::view::{Action, Reason, RecordingView, Under, ViewContext};
pub use widgets::keys;
pub use widgets::query::Computed;
pub use window::dialog::Dialogs;
pub use window::settings::Settings;
