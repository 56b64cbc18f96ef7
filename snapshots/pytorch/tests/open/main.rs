//! Open: what is true of every kind of file that holds a snapshot, tested through the public interface alone.

mod made;
mod json;
mod live_bytes;
mod page;
mod formats;
mod hostile;
mod samples;
mod tagged;
