//! Tests of every supported file format through the public interface.

mod made;
mod json;
mod live_bytes;
mod page;
mod tools;
mod formats;
mod hostile;
mod samples;
mod tagged;
