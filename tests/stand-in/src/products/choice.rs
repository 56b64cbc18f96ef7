//! Checks that a matrix product is consistent, and chooses how it is computed.

use super::descriptions::{Element, Layout, Operation, Wish};
use super::{Result, Status, refuse};

/// A product of four matrices: left, right, added, and out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub(super) operation: Operation,
    pub(super) layouts: [Layout; 4],
    /// Rows and columns of the output, and the number of products that are summed for each element.
    pub(super) size: [u64; 3],
}

/// `CUBLAS_COMPUTE_…`.
const SINGLE: i32 = 68;
const SINGLE_PEDANTIC: i32 = 69;
const DOUBLE: i32 = 70;
const DOUBLE_PEDANTIC: i32 = 71;
const SINGLE_FAST: [i32; 3] = [74, 75, 77];

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

impl Problem {
    /// Checks that the four layouts fit together, and that GPUs can multiply the types.
    pub(super) fn new(operation: Operation, layouts: [Layout; 4]) -> Result<Self> {
        layouts.iter().zip(NAMES).try_for_each(|(layout, name)| layout.check(name))?;
        let [a, b, c, d] = &layouts;
        let turned = |layout: &Layout, index: usize| {
            let shape = [layout.rows, layout.columns];
            if operation.transposed[index] { [shape[1], shape[0]] } else { shape }
        };
        let ([rows, inner], [other_inner, columns]) = (turned(a, 0), turned(b, 1));
        if inner != other_inner {
            return refuse(Status::InvalidValue, format!("A has {inner} columns and B {other_inner} rows"));
        }
        for (layout, name) in [(c, "C"), (d, "D")] {
            if (layout.rows, layout.columns) != (rows, columns) {
                let shape = format!("{} × {}", layout.rows, layout.columns);
                return refuse(Status::InvalidValue, format!("{name} is {shape}, the product {rows} × {columns}"));
            }
        }
        if layouts.iter().any(|layout| layout.batch != a.batch) {
            let batches = layouts.map(|layout| layout.batch);
            return refuse(Status::InvalidValue, format!("batches of {batches:?}"));
        }
        if !d.is_apart() {
            return refuse(Status::InvalidValue, "the matrices of D overlap one another");
        }
        if c.has_rows_together != d.has_rows_together {
            return refuse(Status::NotSupported, "C and D lie in different orders");
        }
        let bias = operation.bias;
        if bias.is_added && (d.has_rows_together || bias.element.is_some_and(|element| element != d.element)) {
            return refuse(Status::NotSupported, "a bias of another type than D, or added to D by rows");
        }
        let problem = Self { operation, layouts, size: [rows, columns, inner] };
        problem.check_types()?;
        Ok(problem)
    }

    fn check_types(&self) -> Result<()> {
        let [a, b, c, d] = self.layouts.map(|layout| layout.element);
        let Operation { compute, scale, .. } = self.operation;
        let is_known = match (compute, scale) {
            (DOUBLE | DOUBLE_PEDANTIC, Element::F64) => a == Element::F64 && d == a,
            (SINGLE | SINGLE_PEDANTIC, Element::F32) => a != Element::F64 && (d == a || d == Element::F32),
            (fast, Element::F32) if SINGLE_FAST.contains(&fast) => a == Element::F32 && d == a,
            _ => false,
        };
        if !is_known || a != b || c != d {
            let words =
                format!("{a:?} times {b:?} and {c:?} gives {d:?}, computed by {compute} with {scale:?} factors");
            return refuse(Status::NotSupported, words);
        }
        Ok(())
    }

    /// A key that distinguishes problems for which different algorithms are chosen.
    fn digest(&self) -> u64 {
        let layouts = self.layouts.iter().flat_map(|layout| {
            [layout.element.size(), layout.element as u64, u64::from(layout.has_rows_together), layout.batch as u64]
        });
        let transposed = self.operation.transposed.map(u64::from);
        let numbers = layouts
            .chain(self.size)
            .chain(transposed)
            .chain([self.operation.compute as u64, u64::from(self.operation.bias.is_added)]);
        numbers.fold(0xcbf2_9ce4_8422_2325, |digest, number| (digest ^ number).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

/// The algorithm of a product: `cublasLtMatmulAlgo_t`, which is opaque to callers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Choice {
    mark: u64,
    digest: u64,
    workspace_bytes: u64,
    alignments: [u32; 4],
    /// 1 if running the algorithm fails, as cuBLASLt does with some of its own proposals.
    is_refused: u64,
    unused: [u64; 2],
}

const MARK: u64 = u64::from_le_bytes(*b"HWchoice");

/// Size in bytes of the workspace that larger products request, if permitted, to detect a workspace that is in use
/// elsewhere.
const WORKSPACE_BYTES: u64 = 256 << 10;
const SMALL: u64 = 1 << 12;

impl Choice {
    /// Chooses the algorithm for a problem, within the caller's preferences.
    pub(super) fn new(problem: &Problem, wish: &Wish) -> Self {
        let is_small = problem.size.iter().fold(1_u64, |all, &side| all.saturating_mul(side)) < SMALL;
        let workspace_bytes = if is_small { 0 } else { WORKSPACE_BYTES.min(wish.workspace_bytes) };
        Self {
            mark: MARK,
            digest: problem.digest(),
            workspace_bytes,
            alignments: wish.alignments,
            is_refused: 0,
            unused: [0; 2],
        }
    }

    /// Returns this algorithm, but with an error when it is run.
    pub(super) const fn refused(self) -> Self {
        Self { is_refused: 1, ..self }
    }

    /// Size of the required workspace in bytes.
    pub(super) fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }

    /// Checks that the algorithm was chosen for this problem, and for matrices with these alignments.
    pub(super) fn check(&self, problem: &Problem, addresses: [u64; 4]) -> Result<()> {
        if self.mark != MARK || self.digest != problem.digest() {
            return refuse(Status::InvalidValue, "the algorithm was chosen for another product");
        }
        if self.is_refused != 0 {
            return refuse(Status::NotSupported, "this proposal is refused when it is run");
        }
        for ((address, alignment), name) in addresses.into_iter().zip(self.alignments).zip(NAMES) {
            if !address.is_multiple_of(u64::from(alignment)) {
                let words = format!("{name} is at {address:#x}; the algorithm was chosen for multiples of {alignment}");
                return refuse(Status::InvalidValue, words);
            }
        }
        Ok(())
    }

    /// Fails unless the workspace is large enough and aligned.
    pub(super) fn check_workspace(&self, address: u64, bytes: u64) -> Result<()> {
        if bytes < self.workspace_bytes {
            let words = format!("a workspace of {bytes} bytes; the algorithm needs {}", self.workspace_bytes);
            return refuse(Status::InvalidValue, words);
        }
        if bytes > 0 && (address == 0 || !address.is_multiple_of(256)) {
            return refuse(Status::InvalidValue, format!("a workspace at {address:#x}, no multiple of 256"));
        }
        Ok(())
    }
}
