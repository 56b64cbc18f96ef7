//! Parts that several views use: colours, tables, keys, background work.

pub mod theme;
pub mod memo;
pub mod focus;
pub mod words;
pub mod keys;
pub mod button;
pub mod fit;
pub mod choice;
pub mod tile;
pub mod flame;
pub mod note;
pub mod room;
pub mod table;
pub mod query;
