//! Computes matrix products with cuBLASLt, and plans each product on first use.
//!
//! A plan consists of the library's descriptions of a product and the algorithm that the library chose. Choosing an
//! algorithm takes longer than many products, so plans are cached. A repeated product then costs a lookup and one call.
#![expect(unsafe_code, reason = "calls cuBLASLt's C functions")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys;
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as OfProduct;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as OfSearch;
use cudarc::cublaslt::sys::cublasLtMatrixLayoutAttribute_t as OfMatrix;

use super::Gpu;
use super::descriptions::{Described, Description, Search};
use super::handles::Handle;
use super::product::{Matrix, Order, Product};
use crate::cublaslt::CublasLt;
use crate::error::{Error, Result};
use crate::library;
use crate::number::Number;

/// The maximum number of cached plans. A training step has tens of different products. If shapes never repeat, the
/// whole cache is cleared at once, and products still in use are planned again.
const MAX_PLANS: usize = 4096;

/// The largest alignment that matters to the library, in bytes.
const MAX_ALIGNED: u64 = 256;

/// Alignment in bytes below which a bias is not fused, since the library may read the bias in units of this size.
const MIN_BIAS_ALIGNMENT: u64 = 16;

/// Number of algorithms requested for a product. The library may refuse to run a proposed algorithm.
const PROPOSALS: usize = 8;

/// Memory for the partial sums of products, used by one product of a stream after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The address of the first byte, a multiple of 256.
    pub address: u64,
    /// The size in bytes, or 0 if there is no workspace.
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct Products {
    library: &'static CublasLt,
    handle: Handle<sys::cublasLtContext>,
    /// The plans by key; `None` if the library has no algorithm.
    plans: Mutex<HashMap<Key, Option<Arc<Plan>>>>,
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    number: Number,
    /// Numbers of rows, of inner elements, of columns, and of products in the batch.
    sizes: [u64; 4],
    /// Layouts of the result, the left and the right factor.
    matrices: [MatrixLayout; 3],
    /// The alignment of the bias in bytes.
    bias: Option<u64>,
    workspace_bytes: u64,
}

/// The layout of a matrix, without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MatrixLayout {
    order: Order,
    leading: u64,
    batch_stride: u64,
    aligned: u64,
}

impl MatrixLayout {
    fn of(product: &Product, matrix: Matrix) -> Self {
        let Matrix { address, order, leading, batch_stride } = matrix;
        let apart = if product.batches > 1 { batch_stride * product.number.size() as u64 } else { 0 };
        Self { order, leading, batch_stride, aligned: aligned(address | apart) }
    }
}

fn aligned(address: u64) -> u64 {
    1 << (address | MAX_ALIGNED).trailing_zeros()
}

impl Key {
    fn of(product: &Product, workspace: Workspace) -> Self {
        let Product { number, rows, inner, columns, batches, .. } = *product;
        Self {
            number,
            sizes: [rows, inner, columns, batches],
            matrices: [product.out, product.left, product.right].map(|matrix| MatrixLayout::of(product, matrix)),
            bias: product.bias.map(aligned),
            workspace_bytes: workspace.bytes,
        }
    }
}

impl Products {
    /// Creates a handle for the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        let library = library::cublaslt()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for writing a handle.
        let created = unsafe { (library.cublasLtCreate)(&raw mut handle) }.result();
        created.map_err(|error| failed("cublasLtCreate", error))?;
        Ok(Self { library, handle: Handle(handle), plans: Mutex::default() })
    }

    /// Returns the plan of a product with column-major output.
    fn plan(&self, product: &Product, key: Key) -> Result<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plans.get(&key) {
            return known.clone().ok_or_else(|| none(product));
        }
        let is_fused = key.bias.is_none_or(|aligned| aligned >= MIN_BIAS_ALIGNMENT);
        let made = match is_fused {
            true => Plan::new(self, &key, product.bias).map_err(|error| failed(product, error))?.map(Arc::new),
            false => None,
        };
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key, made.clone());
        made.ok_or_else(|| none(product))
    }

    /// Records that the library can run none of its proposed algorithms for a product.
    fn refuse(&self, key: Key) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(key, None);
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        self.plans.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: created by `new`; no product is computed any more.
        let _ = unsafe { (self.library.cublasLtDestroy)(self.handle.0) };
    }
}

impl Gpu {
    /// Submits a product to `stream`, with the fastest algorithm that the library knows for a workspace of at most this
    /// size. Does nothing if the result has no elements.
    ///
    /// # Errors
    /// Returns [`Error::NoAlgorithm`] if the library does not support this product, and [`Error::Products`] if a call
    /// fails. Both name the product.
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
            let key = Key::of(&part, workspace);
            let plan = self.products.plan(&part, key)?;
            // SAFETY: guaranteed by the caller; the parts of a product are within it.
            match unsafe { plan.run(&self.products, &part, workspace, stream) } {
                Err(error) if is_refusal(error) => {
                    self.products.refuse(key);
                    return Err(none(product));
                }
                done => done.map_err(|error| failed(product, error))?,
            }
        }
        Ok(())
    }
}

fn failed(doing: &(impl ToString + ?Sized), error: CublasError) -> Error {
    Error::Products { doing: doing.to_string(), status: error.to_string() }
}

/// Returns whether an error means that the library does not support the operation.
fn is_refusal(CublasError(status): CublasError) -> bool {
    use sys::cublasStatus_t::{CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED};
    matches!(status, CUBLAS_STATUS_NOT_SUPPORTED | CUBLAS_STATUS_INVALID_VALUE)
}

fn none(product: &Product) -> Error {
    Error::NoAlgorithm { product: product.to_string() }
}

/// A product as described to cuBLASLt, with descriptors and proposed algorithms.
#[derive(Debug)]
struct Plan {
    // Locked while the product is submitted, since the address of the bias is part of the description.
    description: Mutex<Description>,
    /// Descriptions of the result, the left and the right factor.
    matrices: [Described; 3],
    /// The algorithms that the library proposed, fastest first.
    algorithms: Vec<sys::cublasLtMatmulAlgo_t>,
    /// The first algorithm that the library has not refused to run.
    chosen: AtomicUsize,
    is_double: bool,
}

impl Plan {
    /// Plans a product. Returns `None` if the library has no algorithm.
    fn new(products: &Products, key: &Key, bias: Option<u64>) -> Result<Option<Self>, CublasError> {
        let library = products.library;
        let (number, compute, scale) = types(key.number);
        let [rows, inner, columns, batches] = key.sizes;
        let [out, left, right] = key.matrices;
        let description = Description::new(library, compute, scale)?;
        description.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSA, transposed(left.order))?;
        description.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSB, transposed(right.order))?;
        if let Some(bias) = bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32;
            description.set(OfProduct::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
            description.set(OfProduct::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let described = |lie: MatrixLayout, rows, columns| {
            // Row-major matrices are described with rows and columns exchanged, and transposed when they are
            // multiplied.
            let [rows, columns] = if lie.order == Order::Rows { [columns, rows] } else { [rows, columns] };
            let matrix = Described::new(library, number, rows, columns, lie.leading as i64)?;
            if batches > 1 {
                matrix.set(OfMatrix::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches as i32)?;
                matrix.set(OfMatrix::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, lie.batch_stride as i64)?;
            }
            Ok(matrix)
        };
        let matrices =
            [described(out, rows, columns)?, described(left, rows, inner)?, described(right, inner, columns)?];
        let search = Search::new(library)?;
        search.set(OfSearch::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key.workspace_bytes)?;
        if key.number.size() == 2 {
            use sys::cublasLtReductionScheme_t as Scheme;
            // Partial sums in 16-bit precision would be rounded more than once. With a bias, the reduction itself may
            // round before the bias is added, so that none is allowed.
            let kept = match bias {
                Some(_) => Scheme::CUBLASLT_REDUCTION_SCHEME_NONE,
                None => Scheme::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
            } as u32;
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
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit(); PROPOSALS];
        let mut count = 0;
        let [o, l, r] = matrices.each_ref().map(Described::handle);
        let (handle, wish) = (products.handle.0, search.handle());
        // SAFETY: all handles are live; `out` is both the input and the result, which is written in place; there is
        // room for as many results as requested.
        let searched = unsafe {
            let results = found.as_mut_ptr().cast();
            let most = PROPOSALS as i32;
            (library.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                description.handle(),
                l,
                r,
                o,
                o,
                wish,
                most,
                results,
                &raw mut count,
            )
        };
        match searched.result() {
            Ok(()) => {}
            Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)) => return Ok(None),
            // Some versions return this for an unsupported bias epilogue; without the bias, it would be another
            // product.
            Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE)) if bias.is_some() => return Ok(None),
            Err(error) => return Err(error),
        }
        let found = found.iter().take(usize::try_from(count).unwrap_or(0));
        // SAFETY: the library has written as many results as it counted.
        let found = found.map(|found| unsafe { found.assume_init() });
        let algorithms: Vec<_> = found.filter(|one| one.state.result().is_ok()).map(|one| one.algo).collect();
        Ok((!algorithms.is_empty()).then(|| Self {
            description: Mutex::new(description),
            matrices,
            algorithms,
            chosen: AtomicUsize::new(0),
            is_double: key.number == Number::F64,
        }))
    }

    /// # Safety
    /// As for [`Gpu::multiply`]; the product is the one that was planned.
    unsafe fn run(
        &self,
        products: &Products,
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
        let run = |algorithm: &sys::cublasLtMatmulAlgo_t| {
            let (handle, description, bytes) = (products.handle.0, description.handle(), workspace.bytes as usize);
            // SAFETY: descriptions and scalars are live, and copied before this returns; the rest is the caller's.
            let status = unsafe {
                (products.library.cublasLtMatmul)(
                    handle,
                    description,
                    scale,
                    l,
                    left,
                    r,
                    right,
                    keep,
                    o,
                    out,
                    o,
                    out,
                    algorithm,
                    room,
                    bytes,
                    stream,
                )
            };
            status.result()
        };
        // A refused algorithm has done nothing, so that the next one may be tried.
        let mut refused = CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);
        let first = self.chosen.load(Ordering::Relaxed);
        for (row, algorithm) in self.algorithms.iter().enumerate().skip(first) {
            match run(algorithm) {
                Err(error) if is_refusal(error) => refused = error,
                done => {
                    self.chosen.store(row, Ordering::Relaxed);
                    return done;
                }
            }
        }
        Err(refused)
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
