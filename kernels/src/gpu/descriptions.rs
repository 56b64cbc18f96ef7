//! cuBLASLt's descriptors of products, matrices and algorithm searches, freed on drop.
#![expect(unsafe_code, reason = "makes, fills and frees what the library describes products with")]

use std::ptr;

use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys;

use super::handles::Handle;
use crate::cublaslt::CublasLt;

macro_rules! description {
    ($(#[$doc:meta])* $name:ident($opaque:ident): $attribute:ident by $set:ident, freed by $free:ident;) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            handle: Handle<sys::$opaque>,
            library: &'static CublasLt,
        }

        impl $name {
            /// Returns the library's pointer, which is valid as long as `self`.
            pub(super) const fn handle(&self) -> *mut sys::$opaque {
                self.handle.0
            }

            /// Sets an attribute; the value must have the type that the library defines for it.
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
    /// The descriptor of a matrix product.
    Description(cublasLtMatmulDescOpaque_t):
        cublasLtMatmulDescAttributes_t by cublasLtMatmulDescSetAttribute, freed by cublasLtMatmulDescDestroy;
}

description! {
    /// The descriptor of a matrix layout.
    Described(cublasLtMatrixLayoutOpaque_t):
        cublasLtMatrixLayoutAttribute_t by cublasLtMatrixLayoutSetAttribute, freed by cublasLtMatrixLayoutDestroy;
}

description! {
    /// The preferences of an algorithm search.
    Search(cublasLtMatmulPreferenceOpaque_t):
        cublasLtMatmulPreferenceAttributes_t by cublasLtMatmulPreferenceSetAttribute, freed by cublasLtMatmulPreferenceDestroy;
}

impl Description {
    /// Creates a descriptor with these types for the computation and for the scale factors.
    pub(super) fn new(
        library: &'static CublasLt,
        compute: sys::cublasComputeType_t,
        scale: sys::cudaDataType,
    ) -> Result<Self, CublasError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for writing a handle.
        unsafe { (library.cublasLtMatmulDescCreate)(&raw mut handle, compute, scale) }.result()?;
        Ok(Self { handle: Handle(handle), library })
    }
}

impl Described {
    /// Creates a column-major layout whose columns are `leading` elements apart.
    pub(super) fn new(
        library: &'static CublasLt,
        number: sys::cudaDataType,
        size: [u64; 2],
        leading: i64,
    ) -> Result<Self, CublasError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for writing a handle.
        unsafe { (library.cublasLtMatrixLayoutCreate)(&raw mut handle, number, size[0], size[1], leading) }.result()?;
        Ok(Self { handle: Handle(handle), library })
    }
}

impl Search {
    /// Creates preferences that allow any algorithm.
    pub(super) fn new(library: &'static CublasLt) -> Result<Self, CublasError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for writing a handle.
        unsafe { (library.cublasLtMatmulPreferenceCreate)(&raw mut handle) }.result()?;
        Ok(Self { handle: Handle(handle), library })
    }
}
