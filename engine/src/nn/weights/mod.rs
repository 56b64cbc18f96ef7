//! Parameters in safetensors files, which other frameworks read and write.
//!
//! Numbers go between file and device in small pieces, so a model never stands in host memory twice. A tensor's name in
//! the file is its parameter's path, unless a [`Source`] says otherwise.

pub mod header;
pub mod numbers;
pub mod load;
pub mod save;

pub use load::{Loading, Source, load_safetensors, load_safetensors_with};
pub use save::save_safetensors;
