//! What is true across the crates: one binary, one module a subject.

mod layering;
