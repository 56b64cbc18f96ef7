//! Parts that several views use: colours, tables, keys, layout, background work.

pub mod theme;
pub mod memo;
pub mod flame;
pub mod words;
pub mod keys;
pub mod layout;
pub mod choice;
pub mod fit;
pub mod note;
pub mod room;
pub mod table;
mod worker;
pub mod query;
