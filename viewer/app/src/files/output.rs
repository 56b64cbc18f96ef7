//! Writes tables and pictures to disk. In a browser, `output_web.rs` replaces this file.

pub use super::destination::write_whole;
