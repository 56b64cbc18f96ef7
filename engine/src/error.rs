//! Errors: what an operation could not do, with the shapes that it was given.

use std::fmt::Display;

use crate::dtype::DType;
use highwater_allocator::AllocError;

/// Why an operation failed: the operation, what it was given, and what it needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Shapes.
    /// One tensor's shape does not suit.
    #[error("{op}: a tensor of shape {shape} was given; {need}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What was given.
        shape: Box<str>,
        /// What would be right, in a sentence.
        need: &'static str,
    },
    /// Two shapes do not go together.
    #[error("{op}: shapes {left} and {right} do not go together; {need}")]
    Shapes {
        /// The operation.
        op: &'static str,
        /// The first that was given.
        left: Box<str>,
        /// The second.
        right: Box<str>,
        /// What would be right, in a sentence.
        need: &'static str,
    },
    /// An axis that the tensor has not got.
    #[error("{op}: axis {axis} was named, but the tensor has {rank} axes; count from 0, or from -1 at the end")]
    Axis {
        /// The operation.
        op: &'static str,
        /// What was asked for.
        axis: isize,
        /// How many axes there are.
        rank: usize,
    },
    /// More axes than a shape can hold.
    #[error("{op}: {rank} axes were given; a tensor has at most 8")]
    Rank {
        /// The operation.
        op: &'static str,
        /// How many axes there would be.
        rank: usize,
    },
    /// A range that leaves its axis.
    #[error("{op}: elements {start} to {end} were asked for on an axis of length {length}; stay within it")]
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
    #[error("{op}: {found} numbers were given for shape {shape}, which holds {expected}; give exactly as many")]
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
    #[error("{op}: elements of type {found} were given; {need}")]
    DType {
        /// The operation.
        op: &'static str,
        /// What was given.
        found: DType,
        /// What would be right, in a sentence.
        need: &'static str,
    },
    /// An index or class label outside of its table.
    #[error("{op}: index {index} was found; indices into this table run from 0 to {}", size.saturating_sub(1))]
    Index {
        /// The operation.
        op: &'static str,
        /// The index.
        index: i64,
        /// How many rows the table has.
        size: usize,
    },
    /// Tensors of two devices in one operation.
    #[error("{op}: the tensors live on two different devices; create both with clones of one device handle")]
    Devices {
        /// The operation.
        op: &'static str,
    },
    /// The values of a tensor whose device keeps none.
    #[error("{op}: this device counts memory and holds no values; run on the cpu device to see numbers")]
    NoValues {
        /// The operation.
        op: &'static str,
    },
    /// The values of a tensor that is not in the host's memory, where they are needed there.
    #[error("{op}: this needs the numbers in the host's memory; move the tensor to a cpu device first")]
    NotOnHost {
        /// The operation.
        op: &'static str,
    },
    /// Memory that an operation would change while it is read, or the reverse.
    #[error("{op}: the memory that it writes is in use by another operand or thread; make a copy of one of them first")]
    InUse {
        /// The operation.
        op: &'static str,
    },
    /// A setting out of its range.
    #[error("{op}: {what}")]
    Setting {
        /// The operation.
        op: &'static str,
        /// What was wrong, and what would be right, in a sentence.
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
        /// What was wrong, and what would be right, in a sentence.
        what: String,
    },

    // Gradients.
    /// Backward from something that does not depend on any parameter.
    #[error(
        "backward: the tensor depends on nothing that requires a gradient; call set_requires_grad on the parameters before forward"
    )]
    NoGraph,
    /// Backward from more than one number without a gradient to start from.
    #[error(
        "backward: the tensor has shape {shape}; only a single number can start alone, else use backward_from with its gradient"
    )]
    NotScalar {
        /// The tensor's shape.
        shape: Box<str>,
    },
    /// Backward twice through the same operations.
    #[error("{op}: backward has passed here before and freed what was saved; run forward again")]
    Consumed {
        /// The operation whose saved tensors are gone.
        op: &'static str,
    },
    /// A saved tensor was overwritten before backward read it.
    #[error(
        "{op}: a tensor saved for backward was changed in place after forward; change a copy, or change it after backward"
    )]
    Overwritten {
        /// The operation that saved it.
        op: &'static str,
    },
    /// A change in place of something that the graph computes with.
    #[error("{op}: the tensor requires a gradient, so it cannot be changed in place here; wrap the change in no_grad")]
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
