//! cuBLASLt's descriptors of products, matrices and algorithm searches, which are freed when dropped.
#![expect(unsafe_code, reason = "makes, fills and frees what the library describes products with")]

use std::ptr;

use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys;

use super::handles::Handle;
use crate::cublaslt::CublasLt;

macro_rules! description {
    (
        $(#[$doc:meta])* $name:ident($opaque:ident): made by $make:ident($($argument:ident: $type:ty),*),
        $attribute:ident by $set:ident, freed by $free:ident;
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            handle: Handle<sys::$opaque>,
            library: &'static CublasLt,
        }

        impl $name {
            pub(super) fn new(library: &'static CublasLt, $($argument: $type),*) -> Result<Self, CublasError> {
                let mut handle = ptr::null_mut();
                // SAFETY: the pointer is valid for writing a handle.
                unsafe { (library.$make)(&raw mut handle, $($argument),*) }.result()?;
                Ok(Self { handle: Handle(handle), library })
            }

            /// Returns the library's pointer, which is valid as long as `self`.
            pub(super) const fn handle(&self) -> *mut sys::$opaque {
                self.handle.0
            }

            /// Sets an attribute. The value must have the type that the library defines for it.
            pub(super) fn set<V: Copy>(&self, attribute: sys::$attribute, value: V) -> Result<(), CublasError> {
                // SAFETY: the description is live; the library copies as many bytes as the value has.
                unsafe { (self.library.$set)(self.handle.0, attribute, ptr::from_ref(&value).cast(), size_of::<V>()) }.result()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: created by `new`, and not used again.
                let _ = unsafe { (self.library.$free)(self.handle.0) };
            }
        }
    };
}

description! {
    /// The descriptor of a matrix product, with these types for the computation and for the scale factors.
    Description(cublasLtMatmulDescOpaque_t):
        made by cublasLtMatmulDescCreate(compute: sys::cublasComputeType_t, scale: sys::cudaDataType),
        cublasLtMatmulDescAttributes_t by cublasLtMatmulDescSetAttribute, freed by cublasLtMatmulDescDestroy;
}

description! {
    /// The descriptor of a column-major matrix whose columns are `leading` elements apart.
    Described(cublasLtMatrixLayoutOpaque_t):
        made by cublasLtMatrixLayoutCreate(number: sys::cudaDataType, rows: u64, columns: u64, leading: i64),
        cublasLtMatrixLayoutAttribute_t by cublasLtMatrixLayoutSetAttribute, freed by cublasLtMatrixLayoutDestroy;
}

description! {
    /// The preferences of an algorithm search, which initially allow any algorithm.
    Search(cublasLtMatmulPreferenceOpaque_t):
        made by cublasLtMatmulPreferenceCreate(),
        cublasLtMatmulPreferenceAttributes_t by cublasLtMatmulPreferenceSetAttribute,
        freed by cublasLtMatmulPreferenceDestroy;
}
