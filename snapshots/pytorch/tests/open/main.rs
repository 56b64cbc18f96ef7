//! Open: what is true of every kind of file that can be opened, tested through the public interface alone.

mod made;
mod json;
mod live_bytes;
mod page;
mod tools;
mod formats;
mod hostile;
mod samples;
mod tagged;
