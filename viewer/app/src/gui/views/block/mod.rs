//! The side panel with the facts about one block.

mod facts;
mod stack;
mod panel;

pub use panel::BlockPanel;
