//! The desktop app as a library without command-line parsing, together with the analyses, figures and sentences that it
//! shares with the command line. Each module uses only modules declared above it.

#![cfg_attr(not(feature = "gui"), expect(dead_code, reason = "only the window uses some of what it shares"))]

#[cfg(not(target_family = "wasm"))]
pub mod background;
#[cfg(target_family = "wasm")]
#[path = "background_web.rs"]
pub mod background;
pub mod pending;
pub mod answers;
pub mod session;
pub mod files;
pub mod report;
pub mod figures;
pub mod selection;
pub mod colour_by;
pub mod command;
pub mod history;
pub mod example;
#[cfg(feature = "gui")]
pub mod gui;

pub use colour_by::ColourBy;
pub use command::Command;
pub use pending::Pending;
pub use selection::{Axis, NO_TIMES, Pin, Selection, View, drawn_metric};
pub use session::{DeviceIndex, Recording};
