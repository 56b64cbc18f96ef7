//! Computes matrix products with cuBLASLt, and plans each product on first use.
//!
//! A plan consists of the library's descriptions of a product and the algorithm that it chose. Choosing an algorithm
//! takes longer than many products, so plans are cached: a repeated product costs a lookup and one call.
#![expect(unsafe_code, reason = "calls cuBLASLt's C functions")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as OfProduct;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as OfSearch;
use cudarc::cublaslt::sys::cublasLtMatrixLayoutAttribute_t as OfMatrix;

use super::Gpu;
use super::descriptions::{Described, Description, Search};
use super::handles::Handle;
use super::product::{Matrix, Order, Product};
use crate::error::{Error, Result};
use crate::number::Number;

/// The maximum number of cached plans. A training step has tens of different products; if shapes never repeat, the
/// whole cache is cleared at once, and products still in use are planned again.
const MOST_PLANS: usize = 4096;

/// The largest alignment that matters to the library, in bytes.
const MOST_ALIGNED: u64 = 256;

/// Memory that products may use for partial sums, by one product of a stream after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The address of its first byte: a multiple of 256.
    pub address: u64,
    /// Its size in bytes; 0 for none.
    pub bytes: u64,
}

/// A context's cuBLASLt handle and its plans.
#[derive(Debug)]
pub(super) struct Products {
    library: Handle<sys::cublasLtContext>,
    /// `None` if the library has no algorithm.
    plans: Mutex<HashMap<Key, Option<Arc<Plan>>>>,
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    number: Number,
    /// Rows, inner, columns, batches.
    sizes: [u64; 4],
    /// Out, left, right.
    matrices: [Lie; 3],
    /// The alignment of the bias in bytes.
    bias: Option<u64>,
    workspace_bytes: u64,
}

/// The layout of a matrix, without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lie {
    order: Order,
    leading: u64,
    batch_stride: u64,
    aligned: u64,
}

impl Lie {
    fn of(product: &Product, matrix: Matrix) -> Self {
        let Matrix { address, order, leading, batch_stride } = matrix;
        let apart = if product.batches > 1 { batch_stride * product.number.size() as u64 } else { 0 };
        Self { order, leading, batch_stride, aligned: aligned(address | apart) }
    }
}

fn aligned(address: u64) -> u64 {
    1 << (address | MOST_ALIGNED).trailing_zeros()
}

impl Key {
    fn of(product: &Product, workspace: Workspace) -> Self {
        let Product { number, rows, inner, columns, batches, .. } = *product;
        Self {
            number,
            sizes: [rows, inner, columns, batches],
            matrices: [product.out, product.left, product.right].map(|matrix| Lie::of(product, matrix)),
            bias: product.bias.map(aligned),
            workspace_bytes: workspace.bytes,
        }
    }
}

impl Products {
    /// Creates a handle for the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(|error| failed("cublasLtCreate", error))?;
        Ok(Self { library: Handle(handle), plans: Mutex::default() })
    }

    /// Returns the plan of a product with column-major output.
    fn plan(&self, product: &Product, key: Key) -> Result<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plans.get(&key) {
            return known.clone().ok_or_else(|| none(product));
        }
        let made = Plan::new(self.library, &key, product.bias).map_err(|error| failed(product, error))?.map(Arc::new);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(key, made.clone());
        made.ok_or_else(|| none(product))
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        self.plans.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: created by `new`; no product is computed any more.
        let _ = unsafe { result::destroy_handle(self.library.0) };
    }
}

impl Gpu {
    /// Submits a product to `stream`, with the fastest algorithm that the library knows for a workspace of at most this
    /// size. Does nothing if the result has no elements.
    ///
    /// # Errors
    /// [`Error::NoAlgorithm`] if the library does not support this product; [`Error::Products`] if a call fails. Both
    /// name the product.
    ///
    /// # Safety
    /// The caller must be allowed to read the matrices, and to write `out`, at this point of the stream. Their memory,
    /// and the workspace, must stay allocated until the stream is past it, and work of other streams must not use the
    /// workspace in the meantime.
    pub unsafe fn multiply(&self, product: &Product, workspace: Workspace, stream: u64) -> Result<()> {
        if product.rows == 0 || product.columns == 0 || product.batches == 0 {
            return Ok(());
        }
        product.check()?;
        self.bind()?;
        let stream = self.streams.handle(stream).cast();
        for part in product.by_columns().parts() {
            let plan = self.products.plan(&part, Key::of(&part, workspace))?;
            // SAFETY: guaranteed by the caller; the parts of a product are within it.
            unsafe { plan.run(self.products.library, &part, workspace, stream) }
                .map_err(|error| failed(product, error))?;
        }
        Ok(())
    }
}

fn failed(doing: &(impl ToString + ?Sized), error: CublasError) -> Error {
    Error::Products { doing: doing.to_string(), status: error.to_string() }
}

fn none(product: &Product) -> Error {
    Error::NoAlgorithm { product: product.to_string() }
}

/// A product in the library's terms.
#[derive(Debug)]
struct Plan {
    // Locked while the product is submitted, since the address of the bias is part of the description.
    description: Mutex<Description>,
    /// Out, left, right.
    matrices: [Described; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    is_double: bool,
}

impl Plan {
    /// Plans a product; `None` if the library has no algorithm.
    fn new(library: Handle<sys::cublasLtContext>, key: &Key, bias: Option<u64>) -> Result<Option<Self>, CublasError> {
        let (number, compute, scale) = types(key.number);
        let [rows, inner, columns, batches] = key.sizes;
        let [out, left, right] = key.matrices;
        let description = Description::new(compute, scale)?;
        description.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSA, transposed(left.order))?;
        description.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSB, transposed(right.order))?;
        if let Some(bias) = bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32;
            description.set(OfProduct::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
            description.set(OfProduct::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let described = |lie: Lie, rows, columns| {
            // Row-major matrices are described with rows and columns exchanged, and transposed when they are
            // multiplied.
            let [rows, columns] = if lie.order == Order::Rows { [columns, rows] } else { [rows, columns] };
            let matrix = Described::new(number, [rows, columns], lie.leading as i64)?;
            if batches > 1 {
                matrix.set(OfMatrix::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches as i32)?;
                matrix.set(OfMatrix::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, lie.batch_stride as i64)?;
            }
            Ok(matrix)
        };
        let matrices =
            [described(out, rows, columns)?, described(left, rows, inner)?, described(right, inner, columns)?];
        let search = Search::new()?;
        search.set(OfSearch::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key.workspace_bytes)?;
        if key.number.size() == 2 {
            // Partial sums in 16-bit precision would be rounded more than once.
            let kept = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
            search.set(OfSearch::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kept)?;
        }
        // The library has no attribute for the alignment of the bias; the bias is read with the results it is added to.
        let with_bias = bias.map_or(out.aligned, |bias| out.aligned.min(aligned(bias)));
        for (attribute, bytes) in [
            (OfSearch::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, left.aligned),
            (OfSearch::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, right.aligned),
            (OfSearch::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out.aligned),
            (OfSearch::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, with_bias),
        ] {
            search.set(attribute, bytes as u32)?;
        }
        // SAFETY: all handles are live; `out` is both the input and the result, which is written in place.
        let found = unsafe {
            let [out, left, right] = matrices.each_ref().map(Described::handle);
            result::get_matmul_algo_heuristic(library.0, description.handle(), left, right, out, out, search.handle())
        };
        match found {
            Ok(found) => Ok(Some(Self {
                description: Mutex::new(description),
                matrices,
                algorithm: found.algo,
                is_double: key.number == Number::F64,
            })),
            Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)) => Ok(None),
            // Some versions return this for an unsupported bias epilogue; without the bias, it would be another
            // product.
            Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE)) if bias.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// # Safety
    /// As for [`Gpu::multiply`]; the product is the one that was planned.
    unsafe fn run(
        &self,
        library: Handle<sys::cublasLtContext>,
        product: &Product,
        workspace: Workspace,
        stream: sys::cudaStream_t,
    ) -> Result<(), CublasError> {
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bias) = product.bias {
            description.set(OfProduct::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let double = [product.scale, product.keep];
        let single = double.map(|factor| factor as f32);
        let [scale, keep]: [*const c_void; 2] = if self.is_double {
            [0, 1].map(|place| ptr::from_ref(&double[place]).cast())
        } else {
            [0, 1].map(|place| ptr::from_ref(&single[place]).cast())
        };
        let [out, left, right] = self.matrices.each_ref().map(Described::handle);
        let [o, l, r, room] = [product.out.address, product.left.address, product.right.address, workspace.address]
            .map(|address| ptr::without_provenance_mut::<c_void>(address as usize));
        // SAFETY: descriptions and scalars are live, and copied before this returns; the caller guarantees the rest.
        unsafe {
            result::matmul(
                library.0,
                description.handle(),
                scale,
                keep,
                l,
                left,
                r,
                right,
                o,
                out,
                o,
                out,
                &raw const self.algorithm,
                room,
                workspace.bytes as usize,
                stream,
            )
        }
    }
}

/// Returns the library's value for an operand multiplied as described (`CUBLAS_OP_N`) or transposed (`CUBLAS_OP_T`).
const fn transposed(order: Order) -> i32 {
    match order {
        Order::Columns => 0,
        Order::Rows => 1,
    }
}

/// Returns the library's names for a dtype, its compute type and the dtype of its scale factors.
const fn types(number: Number) -> (sys::cudaDataType, sys::cublasComputeType_t, sys::cudaDataType) {
    use sys::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F};
    use sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_64F};
    match number {
        Number::F64 => (CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F),
        Number::Bf16 => (CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        Number::F16 => (CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        // Products of other dtypes are rejected before they are planned.
        Number::F32 | Number::I64 | Number::U8 | Number::Bool => (CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F),
    }
}
