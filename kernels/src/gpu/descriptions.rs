//! Descriptions: what cuBLASLt is told of a product, freed when it is dropped.
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
            /// The library's pointer, which lives as long as this.
            pub(super) const fn handle(&self) -> *mut sys::$opaque {
                self.0.0
            }

            /// Sets an attribute, whose value is of the type that the library has for it.
            pub(super) fn set<V: Copy>(&self, attribute: sys::$attribute, value: V) -> Result<(), CublasError> {
                // SAFETY: the description is alive; the library copies as many bytes as the value has.
                unsafe { result::$set(self.0.0, attribute, ptr::from_ref(&value).cast(), size_of::<V>()) }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by `new`, and not used again.
                let _ = unsafe { result::$free(self.0.0) };
            }
        }
    };
}

description! {
    /// What is computed from the matrices.
    Description(cublasLtMatmulDescOpaque_t):
        cublasLtMatmulDescAttributes_t by set_matmul_desc_attribute, freed by destroy_matmul_desc;
}

description! {
    /// A matrix.
    Described(cublasLtMatrixLayoutOpaque_t):
        cublasLtMatrixLayoutAttribute_t by set_matrix_layout_attribute, freed by destroy_matrix_layout;
}

description! {
    /// Which algorithms are looked for.
    Search(cublasLtMatmulPreferenceOpaque_t):
        cublasLtMatmulPreferenceAttributes_t by set_matmul_pref_attribute, freed by destroy_matmul_pref;
}

impl Description {
    /// With what is summed, and what sums are scaled with, in these types.
    pub(super) fn new(compute: sys::cublasComputeType_t, scale: sys::cudaDataType) -> Result<Self, CublasError> {
        Ok(Self(Handle(result::create_matmul_desc(compute, scale)?)))
    }
}

impl Described {
    /// By columns that begin `leading` numbers apart.
    pub(super) fn new(number: sys::cudaDataType, size: [u64; 2], leading: i64) -> Result<Self, CublasError> {
        Ok(Self(Handle(result::create_matrix_layout(number, size[0], size[1], leading)?)))
    }
}

impl Search {
    /// For any.
    pub(super) fn new() -> Result<Self, CublasError> {
        Ok(Self(Handle(result::create_matmul_pref()?)))
    }
}
