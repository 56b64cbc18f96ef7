//! The user interface: a window of eframe around [`App`], which can also be driven without a window.

#[cfg(not(target_family = "wasm"))]
mod host;
#[cfg(target_family = "wasm")]
#[path = "host_web.rs"]
mod host;
pub mod identity;
pub mod widgets;
pub mod colouring;
pub mod legend;
pub mod filter;
pub mod views;
pub mod window;
pub mod open_file;
mod granting;
mod parts;
mod steering;
pub mod surface;
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
pub use window::settings::Settings;
