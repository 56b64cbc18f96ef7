//! Reads recordings of other tools: device memory profiles of JAX, exports of Nsight Systems, and the logs of RMM and
//! NCCL. Each module names the specification of its format, and the data that it lacks.

mod lines;
mod calls;
mod reports;
mod sqlite;
pub(crate) mod jax;
pub(crate) mod nsys;
pub(crate) mod rmm;
pub(crate) mod nccl;

/// Maximum length of a text in bytes. Longer texts are cut.
const MAX_TEXT: usize = 64 << 10;

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}
