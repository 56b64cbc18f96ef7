//! Loading and saving of parameters as safetensors files, for exchange with other frameworks.
//!
//! Elements are copied between file and device in small pieces, so host memory never contains a second copy of the
//! model. A tensor's name in the file is the parameter's path, unless a [`Source`] gives another.

pub mod header;
pub mod numbers;
pub mod load;
pub mod save;

pub use load::{Loading, Source, load_safetensors, load_safetensors_with};
pub use save::save_safetensors;
