//! The output of tables and pictures to disk. `output_web.rs` replaces it in a browser.

pub use super::destination::write_whole;
