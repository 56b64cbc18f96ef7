//! The side panel with the facts about one block, and the context menus of blocks.

mod facts;
mod stack;
mod panel;
mod menu;

pub(crate) use menu::{block_menu_ui, menu_ui};
pub(crate) use panel::BlockPanel;
