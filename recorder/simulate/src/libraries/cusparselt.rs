//! cuSPARSELt products with matrices in which half of the elements are zeros (2:4 sparsity). A compressed matrix stores
//! its values and their positions. The library's padding and workspaces are unknown.
#![expect(unsafe_code, reason = "exports functions under NVIDIA's names")]

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::workspace::{sizes_zero, unknown_workspace};
use crate::abi::{INVALID_VALUE, Out, SUCCESS, answer, functions, give, succeeds};
use crate::notes::{Kind, note};

/// Sizes of compressed matrices in bytes, by the address of the descriptor, which is in the caller's memory.
static COMPRESSED: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

/// Bytes of a compressed matrix, which has half of the elements, and two bits (for floats four) for the position of
/// each.
fn compressed_bytes(rows: i64, columns: i64, dtype: c_int) -> usize {
    // Values of `cudaDataType`: float, half, bfloat16; other types take one byte.
    let element_bytes = match dtype {
        0 => 4,
        2 | 14 => 2,
        _ => 1,
    };
    let elements = (rows.max(0) as usize).saturating_mul(columns.max(0) as usize) / 2;
    // Of two floats, one is kept, with four bits for its position, since the hardware treats a float as two halves.
    let place_bits = if element_bytes == 4 { 4 } else { 2 };
    elements.saturating_mul(element_bytes).saturating_add(elements.saturating_mul(place_bits).div_ceil(8))
}

functions! {
    fn cusparseLtStructuredDescriptorInit(
        _handle: usize, descriptor: usize, rows: i64, columns: i64, _leading: i64, _alignment: u32, dtype: c_int,
    ) {
        let bytes = compressed_bytes(rows, columns, dtype);
        COMPRESSED.lock().unwrap_or_else(PoisonError::into_inner).insert(descriptor, bytes);
    }
    fn cusparseLtMatDescriptorDestroy(descriptor: usize) {
        COMPRESSED.lock().unwrap_or_else(PoisonError::into_inner).remove(&descriptor);
    }
    fn cusparseLtSpMMACompressedSize2(
        _handle: usize, descriptor: usize, bytes: Out<'_, usize>, buffer_bytes: Out<'_, usize>,
    ) {
        let known = COMPRESSED.lock().unwrap_or_else(PoisonError::into_inner).get(&descriptor).copied();
        let Some(known) = known else { return INVALID_VALUE };
        note(Kind::UnknownWorkspace, "cusparseLtSpMMACompress2");
        give(bytes, known);
        give(buffer_bytes, 0);
        SUCCESS
    }

    /// Returns an attribute; all attributes are ints.
    fn cusparseLtMatmulAlgGetAttribute(_handle: usize, _selection: usize, _attribute: c_int, value: Out<'_, c_int>) {
        give(value, 0);
    }
    fn cusparseLtGetErrorString(status: c_int) -> *const c_char {
        if status == 0 { c"success".as_ptr() } else { c"not supported by the simulated GPU".as_ptr() }
    }
    fn cusparseLtGetErrorName(status: c_int) -> *const c_char { cusparseLtGetErrorString(status) }
}

succeeds! {
    cusparseLtInit cusparseLtDestroy cusparseLtDenseDescriptorInit cusparseLtMatDescSetAttribute
    cusparseLtMatmulDescriptorInit cusparseLtMatmulDescSetAttribute cusparseLtMatmulAlgSelectionInit
    cusparseLtMatmulAlgSelectionDestroy cusparseLtMatmulAlgSetAttribute cusparseLtMatmulPlanInit
    cusparseLtMatmulPlanDestroy
}

sizes_zero! { [_ _] [bytes: usize] cusparseLtMatmulGetWorkspace }
unknown_workspace! { cusparseLtSpMMACompress2 cusparseLtMatmul cusparseLtMatmulSearch }

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn a_compressed_matrix_has_half_of_the_values_and_their_places() {
        let compressed = |dtype| {
            let descriptor = 0x5000 + dtype as usize;
            let (mut bytes, mut buffer) = (MaybeUninit::new(0), MaybeUninit::new(1));
            cusparseLtStructuredDescriptorInit(1, descriptor, 128, 256, 256, 16, dtype);
            assert_eq!(cusparseLtSpMMACompressedSize2(1, descriptor, Some(&mut bytes), Some(&mut buffer)), SUCCESS);
            cusparseLtMatDescriptorDestroy(descriptor);
            assert_eq!(cusparseLtSpMMACompressedSize2(1, descriptor, None, None), INVALID_VALUE);
            // SAFETY: initialized above.
            unsafe { bytes.assume_init() }
        };
        // PyTorch reckons with 9 and 10 sixteenths.
        assert_eq!(compressed(2), 128 * 256 * 2 * 9 / 16);
        assert_eq!(compressed(14), 128 * 256 * 2 * 9 / 16);
        assert_eq!(compressed(3), 128 * 256 * 10 / 16);
        assert_eq!(compressed(0), 128 * 256 * 4 * 9 / 16);
    }
}
