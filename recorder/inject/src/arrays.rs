//! Computes a lower bound of an array's size from its descriptor. The driver chooses the layout and does not report the
//! size.

use crate::abi::{Array, Array3d};

const LAYERED: u32 = 0x01;
const CUBEMAP: u32 = 0x04;
/// Flags of arrays without memory, to which later calls map memory.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// Returns the number of bits of an element in all its channels, or `None` for an unknown format.
fn element_bits(format: u32, channels: u32) -> Option<u64> {
    let channels = u64::from(channels);
    Some(match format {
        // Unsigned and signed integers of 8, 16 and 32 bits; floating-point numbers of 16 and 32 bits.
        0x01 | 0x08 => 8 * channels,
        0x02 | 0x09 | 0x10 => 16 * channels,
        0x03 | 0x0a | 0x20 => 32 * channels,
        // Block compression: 4 × 4 elements in 8 bytes, and in 16.
        0x91 | 0x92 | 0x97 | 0x98 => 4,
        0x93..=0x96 | 0x99..=0x9e => 8,
        // NV12: a luma plane, and a chroma plane of half the size in each direction.
        0xb0 => 12,
        // Normalized integers: one, two or four channels are part of the format.
        0xc0 | 0xc6 => 8,
        0xc1 | 0xc7 | 0xc3 | 0xc9 => 16,
        0xc2 | 0xc8 | 0xc4 | 0xca => 32,
        0xc5 | 0xcb => 64,
        _ => return None,
    })
}

/// Returns the bytes of an array. Returns `None` for an unknown format, and for an array without its own memory.
pub(crate) fn bytes_of_3d(array: &Array3d) -> Option<u64> {
    if array.flags & WITHOUT_MEMORY != 0 {
        return None;
    }
    let sides = [array.width, array.height, array.depth].map(|side| side.max(1) as u64);
    let elements = sides.into_iter().try_fold(1_u64, u64::checked_mul)?;
    let bits = elements.checked_mul(element_bits(array.format, array.channels)?)?;
    Some(bits.div_ceil(8)).filter(|&bytes| bytes > 0)
}

/// Returns the bytes of an array of one or two dimensions, or `None` in the same cases as [`bytes_of_3d`].
pub(crate) fn bytes_of_2d(array: &Array) -> Option<u64> {
    let Array { width, height, format, channels } = *array;
    bytes_of_3d(&Array3d { width, height, depth: 0, format, channels, flags: 0 })
}

/// Returns the bytes of a mipmapped array with `levels` levels, each half the size of the previous one per dimension.
/// Layers are not halved.
pub(crate) fn bytes_of_mipmapped(array: &Array3d, levels: u32) -> Option<u64> {
    let has_layers = array.flags & (LAYERED | CUBEMAP) != 0;
    // From level 64 on nothing is left to halve.
    (0..levels.clamp(1, 64)).try_fold(0_u64, |sum, level| {
        let half = |side: usize| if side == 0 { 0 } else { side.checked_shr(level).unwrap_or(0).max(1) };
        let depth = if has_layers { array.depth } else { half(array.depth) };
        let of_level = Array3d { width: half(array.width), height: half(array.height), depth, ..*array };
        sum.checked_add(bytes_of_3d(&of_level)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOAT: u32 = 0x20;

    fn array(width: usize, height: usize, depth: usize) -> Array3d {
        Array3d { width, height, depth, format: FLOAT, channels: 4, flags: 0 }
    }

    #[test]
    fn an_array_takes_its_elements_in_all_channels() {
        assert_eq!(bytes_of_3d(&array(10, 0, 0)), Some(160));
        assert_eq!(bytes_of_3d(&array(10, 3, 2)), Some(960));
        assert_eq!(bytes_of_2d(&Array { width: 8, height: 8, format: 0x01, channels: 1 }), Some(64));
        let compressed = Array3d { format: 0x91, channels: 4, ..array(8, 8, 0) };
        assert_eq!(bytes_of_3d(&compressed), Some(32), "8 bytes for 4 x 4 elements");
    }

    #[test]
    fn what_is_not_known_or_has_no_memory_or_no_end_is_not_counted() {
        assert_eq!(bytes_of_3d(&Array3d { format: 0x7777, ..array(10, 10, 10) }), None);
        assert_eq!(bytes_of_3d(&Array3d { flags: 0x40, ..array(10, 10, 10) }), None);
        assert_eq!(bytes_of_3d(&array(usize::MAX, 2, 2)), None);
        assert_eq!(bytes_of_3d(&Array3d { channels: 0, ..array(1, 1, 1) }), None);
    }

    #[test]
    fn each_level_is_half_the_one_before_and_layers_stay() {
        assert_eq!(bytes_of_mipmapped(&array(8, 4, 0), 3), Some((32 + 8 + 2) * 16));
        assert_eq!(bytes_of_mipmapped(&array(4, 4, 4), 2), Some((64 + 8) * 16));
        let layered = Array3d { flags: LAYERED, ..array(4, 4, 6) };
        assert_eq!(bytes_of_mipmapped(&layered, 2), Some((16 * 6 + 4 * 6) * 16));
        assert_eq!(bytes_of_mipmapped(&array(2, 2, 0), u32::MAX), Some((4 + 63) * 16));
    }
}
