//! The crate's error type, with the operation and the shapes involved.

use std::fmt::Display;

use crate::DType;
use highwater_allocator::AllocError;

/// An error of an operation, with the operation's name, the expected input, and the actual input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Shapes.
    /// The operation does not support a tensor of this shape.
    #[error("{op}: unsupported shape {shape}: {need}")]
    Shape {
        /// Name of the operation that failed.
        op: &'static str,
        /// The received shape.
        shape: Box<str>,
        /// The requirement, such as `expected equal shapes`.
        need: &'static str,
    },
    /// The shapes of two operands do not fit together.
    #[error("{op}: incompatible shapes {left} and {right}: {need}")]
    Shapes {
        /// Name of the operation that failed.
        op: &'static str,
        /// Shape of the first operand.
        left: Box<str>,
        /// Shape of the second operand.
        right: Box<str>,
        /// The requirement, such as `expected equal shapes`.
        need: &'static str,
    },
    /// The tensor has no axis with this index.
    #[error("{op}: axis {axis} is out of range for a tensor of rank {rank}")]
    Axis {
        /// Name of the operation that failed.
        op: &'static str,
        /// The requested axis. Negative numbers count from the end.
        axis: isize,
        /// Number of axes of the tensor, or of the result if the operation adds an axis.
        rank: usize,
    },
    /// A tensor would have more axes than are supported.
    #[error("{op}: {rank} axes, but a tensor has at most 8")]
    Rank {
        /// Name of the operation that failed.
        op: &'static str,
        /// Number of axes of the result.
        rank: usize,
    },
    /// A range that is empty or out of bounds.
    #[error("{op}: range {start}..{end} is empty or out of bounds for an axis of length {length}")]
    Range {
        /// Name of the operation that failed.
        op: &'static str,
        /// Start of the range.
        start: usize,
        /// End of the range (exclusive).
        end: usize,
        /// Length of the axis.
        length: usize,
    },
    /// The number of elements does not match the shape.
    #[error("{op}: wrong number of elements for shape {shape}: expected {expected}, got {found}")]
    Length {
        /// Name of the operation that failed.
        op: &'static str,
        /// Number of elements received.
        found: usize,
        /// Number of elements expected.
        expected: usize,
        /// The shape to fill.
        shape: Box<str>,
    },
    /// Matrices that are neither row-major nor column-major.
    #[error(
        "{op}: the matrices of the {what} have shape {size:?} and strides {strides:?}, neither row-major nor \
         column-major; make a contiguous copy first"
    )]
    Lines {
        /// Name of the operation that failed.
        op: &'static str,
        /// The operand, such as `first factor`.
        what: &'static str,
        /// Numbers of rows and columns.
        size: [usize; 2],
        /// Strides of rows and columns, in elements.
        strides: [usize; 2],
    },

    // Elements and devices.
    /// The operation does not support tensors of this dtype.
    #[error("{op}: unsupported dtype {found}: {need}")]
    DType {
        /// Name of the operation that failed.
        op: &'static str,
        /// The received dtype.
        found: DType,
        /// The requirement, such as `expected indices of dtype i64`.
        need: &'static str,
    },
    /// An index or class label out of range.
    #[error("{op}: index {index} is out of range; expected 0 to {}", size.saturating_sub(1))]
    Index {
        /// Name of the operation that failed.
        op: &'static str,
        /// The index or class label.
        index: i64,
        /// Number of valid indices.
        size: usize,
    },
    /// Operands on different devices.
    #[error("{op}: the tensors are on different devices; create both with clones of one device handle")]
    Devices {
        /// Name of the operation that failed.
        op: &'static str,
    },
    /// Values were read on a device that stores none.
    #[error("{op}: the accounting device stores no values; use the cpu device to read them")]
    NoValues {
        /// Name of the operation that failed.
        op: &'static str,
    },
    /// An operation on the host was applied to a tensor that is not in host memory.
    #[error("{op}: needs a tensor in host memory; move it to a cpu device first")]
    NotOnHost {
        /// Name of the operation that failed.
        op: &'static str,
    },
    /// Memory that another operand or thread uses would be modified, or memory that it modifies would be read.
    #[error("{op}: the output memory is in use by another operand or thread; copy one of them first")]
    InUse {
        /// Name of the operation that failed.
        op: &'static str,
    },
    /// A parameter of the operation, or of a layer, is invalid.
    #[error("{op}: {what}")]
    Setting {
        /// Name of the operation that failed.
        op: &'static str,
        /// The problem and the requirement, as a sentence.
        what: String,
    },

    // Files.
    /// A file that cannot be read or written, or has unsuitable contents.
    #[error("{op}: {path}: {what}")]
    File {
        /// Name of the operation that failed.
        op: &'static str,
        /// The path of the file.
        path: Box<str>,
        /// The problem and the requirement, as a sentence.
        what: String,
    },

    // Gradients.
    /// Backward started from a tensor that does not depend on any tensor that requires a gradient, or that was computed
    /// while gradients were disabled.
    #[error(
        "backward: no tensor in the graph requires a gradient; call set_requires_grad on the parameters before forward"
    )]
    NoGraph,
    /// Backward started from a tensor of several elements, without a gradient.
    #[error("backward: needs a scalar, got shape {shape}; pass a gradient with backward_from for other shapes")]
    NotScalar {
        /// The tensor's shape.
        shape: Box<str>,
    },
    /// Backward ran a second time through the same graph.
    #[error("{op}: backward already ran through this graph and freed its saved tensors; run forward again")]
    Consumed {
        /// Operation whose saved tensors have been freed.
        op: &'static str,
    },
    /// A saved tensor was overwritten before backward read it.
    #[error(
        "{op}: a tensor saved for backward was modified in place after forward; modify a copy, or do it after backward"
    )]
    Overwritten {
        /// Operation that saved the tensor.
        op: &'static str,
    },
    /// An in-place modification of a tensor that requires a gradient.
    #[error("{op}: a tensor that requires a gradient cannot be modified in place; use no_grad")]
    InPlace {
        /// Name of the operation that failed.
        op: &'static str,
    },

    // Devices that may be missing or fail.
    /// CUDA is not available, or failed.
    #[error(transparent)]
    Cuda(#[from] highwater_kernels::Error),

    // Memory.
    /// The allocator could not provide the memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn shape(op: &'static str, shape: &impl Display, need: &'static str) -> Self {
        Self::Shape { op, shape: shape.to_string().into(), need }
    }

    pub(crate) fn shapes(op: &'static str, left: &impl Display, right: &impl Display, need: &'static str) -> Self {
        Self::Shapes { op, left: left.to_string().into(), right: right.to_string().into(), need }
    }

    /// Returns whether the device ran out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Alloc(AllocError::OutOfMemory(_) | AllocError::TooLarge { .. }))
    }
}
