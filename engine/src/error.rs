//! Errors of operations, with the shapes they received.

use std::fmt::Display;

use crate::dtype::DType;
use highwater_allocator::AllocError;

/// Why an operation failed: the operation, what it was given, and what it needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Shapes.
    /// One tensor's shape does not suit.
    #[error("{op}: unsupported shape {shape}: {need}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The received value.
        shape: Box<str>,
        /// The expectation, as a sentence.
        need: &'static str,
    },
    /// Two shapes do not go together.
    #[error("{op}: incompatible shapes {left} and {right}: {need}")]
    Shapes {
        /// The operation.
        op: &'static str,
        /// The first that was given.
        left: Box<str>,
        /// The second.
        right: Box<str>,
        /// The expectation, as a sentence.
        need: &'static str,
    },
    /// An axis that the tensor has not got.
    #[error("{op}: axis {axis} is out of range for a tensor with {rank} axes")]
    Axis {
        /// The operation.
        op: &'static str,
        /// What was asked for.
        axis: isize,
        /// How many axes there are.
        rank: usize,
    },
    /// More axes than a shape can hold.
    #[error("{op}: {rank} axes, but a tensor has at most 8")]
    Rank {
        /// The operation.
        op: &'static str,
        /// How many axes there would be.
        rank: usize,
    },
    /// A range that leaves its axis.
    #[error("{op}: range {start}..{end} is empty or out of bounds for an axis of length {length}")]
    Range {
        /// The operation.
        op: &'static str,
        /// The first element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// What the axis holds.
        length: usize,
    },
    /// A count of numbers that does not fill the shape.
    #[error("{op}: shape {shape} needs {expected} elements, got {found}")]
    Length {
        /// The operation.
        op: &'static str,
        /// How many numbers there were.
        found: usize,
        /// How many there should be.
        expected: usize,
        /// The shape that they should fill.
        shape: Box<str>,
    },
    /// Matrices that are stored neither by rows nor by columns.
    #[error(
        "the {what} of {op} has matrices of shape {size:?} and strides {strides:?}: they are stored neither by rows nor by columns; make a copy of it first"
    )]
    Lines {
        /// The operation.
        op: &'static str,
        /// Which operand.
        what: &'static str,
        /// Rows and columns.
        size: [usize; 2],
        /// Numbers from one row to the next, and from one column to the next.
        strides: [usize; 2],
    },

    // Elements and devices.
    /// An element type that the operation does not take.
    #[error("{op}: unsupported dtype {found}: {need}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The received value.
        found: DType,
        /// The expectation, as a sentence.
        need: &'static str,
    },
    /// An index or class label outside of its table.
    #[error("{op}: index {index} is out of range; expected 0 to {}", size.saturating_sub(1))]
    Index {
        /// The operation.
        op: &'static str,
        /// The index.
        index: i64,
        /// How many rows the table has.
        size: usize,
    },
    /// Tensors of two devices in one operation.
    #[error("{op}: the tensors are on different devices; create both with clones of one device handle")]
    Devices {
        /// The operation.
        op: &'static str,
    },
    /// The values of a tensor whose device keeps none.
    #[error("{op}: the accounting device stores no values; use the cpu device to read them")]
    NoValues {
        /// The operation.
        op: &'static str,
    },
    /// The values of a tensor that is not in the host's memory, where they are needed there.
    #[error("{op}: needs a tensor in host memory; move it to a cpu device first")]
    NotOnHost {
        /// The operation.
        op: &'static str,
    },
    /// Memory that an operation would change while it is read, or the reverse.
    #[error("{op}: the output memory is in use by another operand or thread; copy one of them first")]
    InUse {
        /// The operation.
        op: &'static str,
    },
    /// A setting out of its range.
    #[error("{op}: {what}")]
    Setting {
        /// The operation.
        op: &'static str,
        /// The problem and the expectation, as a sentence.
        what: String,
    },

    // Files.
    /// A file that could not be read or written, or does not suit.
    #[error("{op}: {path}: {what}")]
    File {
        /// The operation.
        op: &'static str,
        /// The file.
        path: Box<str>,
        /// The problem and the expectation, as a sentence.
        what: String,
    },

    // Gradients.
    /// Backward from something that does not depend on any parameter.
    #[error(
        "backward: no tensor in the graph requires a gradient; call set_requires_grad on the parameters before forward"
    )]
    NoGraph,
    /// Backward from more than one number without a gradient to start from.
    #[error("backward: needs a scalar, got shape {shape}; pass a gradient with backward_from for other shapes")]
    NotScalar {
        /// The tensor's shape.
        shape: Box<str>,
    },
    /// Backward twice through the same operations.
    #[error("{op}: backward already ran through this graph and freed its saved tensors; run forward again")]
    Consumed {
        /// The operation whose saved tensors are gone.
        op: &'static str,
    },
    /// A saved tensor was overwritten before backward read it.
    #[error(
        "{op}: a tensor saved for backward was modified in place after forward; modify a copy, or do it after backward"
    )]
    Overwritten {
        /// The operation that saved it.
        op: &'static str,
    },
    /// A change in place of something that the graph computes with.
    #[error("{op}: a tensor that requires a gradient cannot be modified in place; use no_grad")]
    InPlace {
        /// The operation.
        op: &'static str,
    },

    // Devices that may be missing, or fail.
    /// CUDA is not there, or failed.
    #[error(transparent)]
    Cuda(#[from] highwater_kernels::Error),

    // Memory.
    /// The allocator could not provide the memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn shape(op: &'static str, shape: &impl Display, need: &'static str) -> Self {
        Self::Shape { op, shape: shape.to_string().into(), need }
    }

    pub(crate) fn shapes(op: &'static str, left: &impl Display, right: &impl Display, need: &'static str) -> Self {
        Self::Shapes { op, left: left.to_string().into(), right: right.to_string().into(), need }
    }

    /// Whether the device ran out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Alloc(AllocError::OutOfMemory(_) | AllocError::TooLarge { .. }))
    }
}
