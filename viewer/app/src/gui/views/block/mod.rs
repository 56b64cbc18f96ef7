//! Block: everything known of one block, in the panel at the side.

mod facts;
mod stack;
mod panel;

pub use panel::BlockPanel;
