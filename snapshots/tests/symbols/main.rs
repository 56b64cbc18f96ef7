//! Symbols: bare addresses of a recording find their functions and lines, here, elsewhere, or not at all; and nothing
//! else of the recording changes.

mod library;
mod made;
mod lookup;
mod amend;
