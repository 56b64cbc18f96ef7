//! Tests that unresolved addresses of a recording get functions and lines, on this machine or another, and that the
//! rest of the recording is unchanged.

mod library;
mod made;
mod lookup;
mod amend;
