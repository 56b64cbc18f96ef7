//! cuBLASLt's descriptors of products, matrices and algorithm searches, freed on drop.
#![expect(unsafe_code, reason = "makes, fills and frees what the library describes products with")]

use std::ptr;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;

use super::handles::Handle;

macro_rules! description {
    ($(#[$doc:meta])* $name:ident($opaque:ident): $attribute:ident by $set:ident, freed by $free:ident;) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(Handle<sys::$opaque>);

        impl $name {
            /// Returns the library's pointer, which is valid as long as `self`.
            pub(super) const fn handle(&self) -> *mut sys::$opaque {
                self.0.0
            }

            /// Sets an attribute; the value must have the type that the library defines for it.
            pub(super) fn set<V: Copy>(&self, attribute: sys::$attribute, value: V) -> Result<(), CublasError> {
                // SAFETY: the description is live; the library copies as many bytes as the value has.
                unsafe { result::$set(self.0.0, attribute, ptr::from_ref(&value).cast(), size_of::<V>()) }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: created by `new`, and not used again.
                let _ = unsafe { result::$free(self.0.0) };
            }
        }
    };
}

description! {
    /// The descriptor of a matrix product.
    Description(cublasLtMatmulDescOpaque_t):
        cublasLtMatmulDescAttributes_t by set_matmul_desc_attribute, freed by destroy_matmul_desc;
}

description! {
    /// The descriptor of a matrix layout.
    Described(cublasLtMatrixLayoutOpaque_t):
        cublasLtMatrixLayoutAttribute_t by set_matrix_layout_attribute, freed by destroy_matrix_layout;
}

description! {
    /// The preferences of an algorithm search.
    Search(cublasLtMatmulPreferenceOpaque_t):
        cublasLtMatmulPreferenceAttributes_t by set_matmul_pref_attribute, freed by destroy_matmul_pref;
}

impl Description {
    /// Creates a descriptor with these types for the computation and for the scale factors.
    pub(super) fn new(compute: sys::cublasComputeType_t, scale: sys::cudaDataType) -> Result<Self, CublasError> {
        Ok(Self(Handle(result::create_matmul_desc(compute, scale)?)))
    }
}

impl Described {
    /// Creates a column-major layout whose columns are `leading` elements apart.
    pub(super) fn new(number: sys::cudaDataType, size: [u64; 2], leading: i64) -> Result<Self, CublasError> {
        Ok(Self(Handle(result::create_matrix_layout(number, size[0], size[1], leading)?)))
    }
}

impl Search {
    /// Creates preferences that allow any algorithm.
    pub(super) fn new() -> Result<Self, CublasError> {
        Ok(Self(Handle(result::create_matmul_pref()?)))
    }
}
