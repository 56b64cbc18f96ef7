//! The exact requested size of a block.

use highwater_snapshots::units::format_exact_bytes;

use super::{Dimension, Values, number};

pub(super) static SIZE: Dimension = Dimension {
    hint: "requested size: 4096, 1MiB",
    number: number!(|lookups, id| Some(lookups.trace.blocks.requested[id.0 as usize])),
    of_segment: |segment| Some(segment.kind.bytes),
    label: Some(exact_size),
    ..Dimension::new("size", Values::Bytes)
};

/// Formats a size so that different sizes always have different texts, such as `689.75 MiB` or `16400 KiB`.
fn exact_size(bytes: u64) -> String {
    let text = format_exact_bytes(bytes);
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// The name of free bytes in segments of a size.
pub(crate) fn free_in(segment_bytes: u64) -> String {
    format!("(free in segments of {})", exact_size(segment_bytes))
}
