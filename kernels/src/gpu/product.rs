//! The description of a matrix product: the matrices and their layouts in memory.

use std::fmt;

use crate::error::{Error, Result};
use crate::number::Number;

/// The maximum number of batches in one call, which all of the library's kernels support.
const MAX_BATCHES: u64 = 65_535;

/// The storage order of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Row-major order: the elements of a row are contiguous.
    Rows,
    /// Column-major order: the elements of a column are contiguous.
    Columns,
}

impl Order {
    /// Returns the order of the transposed matrix.
    #[must_use]
    pub const fn transposed(self) -> Self {
        match self {
            Self::Rows => Self::Columns,
            Self::Columns => Self::Rows,
        }
    }
}

/// A batch of matrices of the same size in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The address of the first element.
    pub address: u64,
    /// The storage order of each matrix.
    pub order: Order,
    /// Number of elements from the start of one row to the next (row-major), or of one column to the next
    /// (column-major).
    pub leading: u64,
    /// Number of elements from one matrix to the next, or 0 if all batches use the same matrix.
    pub batch_stride: u64,
}

impl Matrix {
    /// Returns the transposed matrices.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self { order: self.order.transposed(), ..self }
    }

    /// Returns the same matrices, starting at `batch`.
    const fn from(self, batch: u64, number: Number) -> Self {
        Self { address: self.address + batch * self.batch_stride * number.size() as u64, ..self }
    }
}

/// `out = scale · left · right + keep · out + bias`, for each batch of floating-point matrices. 16-bit numbers are
/// multiplied and summed in single precision, and rounded once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// The dtype of all elements.
    pub number: Number,
    /// Number of rows of `out` and `left`.
    pub rows: u64,
    /// Number of columns of `left`, and of rows of `right`.
    pub inner: u64,
    /// Number of columns of `out` and `right`.
    pub columns: u64,
    /// The number of products.
    pub batches: u64,
    /// The result. Its matrices must not overlap one another or the factors.
    pub out: Matrix,
    /// The first factor.
    pub left: Matrix,
    /// The second factor.
    pub right: Matrix,
    /// The address of one element per column that is added to every row. Needs a row-major `out`.
    pub bias: Option<u64>,
    /// The factor of the product.
    pub scale: f64,
    /// The factor of the previous `out`, to which the product is added. If 0, `out` is not read.
    pub keep: f64,
}

impl Product {
    /// Returns the same product with a column-major `out`, as required by the library. A row-major result is the
    /// product of the transposed matrices in reverse order.
    pub(super) const fn by_columns(self) -> Self {
        match self.out.order {
            Order::Columns => self,
            Order::Rows => Self {
                rows: self.columns,
                columns: self.rows,
                out: self.out.transposed(),
                left: self.right.transposed(),
                right: self.left.transposed(),
                ..self
            },
        }
    }

    /// Splits the product into parts of one library call each.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        (0..self.batches).step_by(MAX_BATCHES as usize).map(move |first| Self {
            batches: (self.batches - first).min(MAX_BATCHES),
            out: self.out.from(first, self.number),
            left: self.left.from(first, self.number),
            right: self.right.from(first, self.number),
            ..self
        })
    }

    /// Checks that the library supports the product's dtype, sizes and layouts.
    pub(super) fn check(&self) -> Result<()> {
        let Self { rows, inner, columns, .. } = *self;
        let wrong = |why: &str| Err(Error::Products { doing: self.to_string(), status: why.to_owned() });
        if !Number::FLOATS.contains(&self.number) {
            return wrong("only floating-point matrices can be multiplied");
        }
        if inner == 0 {
            return wrong("the inner dimension is 0; scale the result instead");
        }
        let matrices = [(self.out, rows, columns), (self.left, rows, inner), (self.right, inner, columns)];
        for (matrix, rows, columns) in matrices {
            let length = if matrix.order == Order::Rows { columns } else { rows };
            if matrix.leading < length {
                return wrong("rows or columns overlap in memory");
            }
            if !matrix.address.is_multiple_of(self.number.size() as u64) {
                return wrong("an address is not a multiple of the element size");
            }
            if matrix.leading > i64::MAX as u64 || matrix.batch_stride > i64::MAX as u64 {
                return wrong("strides must fit into 63 bits");
            }
        }
        if self.bias.is_some() && self.out.order == Order::Columns {
            return wrong("a bias needs a row-major result");
        }
        Ok(())
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, inner, columns, batches, .. } = self;
        write!(f, "a product of {} [{rows} × {inner}] · [{inner} × {columns}]", self.number.name())?;
        if *batches != 1 {
            write!(f, ", {batches} times")?;
        }
        for (name, matrix) in [("left", self.left), ("right", self.right), ("out", self.out)] {
            let order = if matrix.order == Order::Rows { "rows" } else { "columns" };
            let separator = if name == "left" { " (" } else { ", " };
            write!(f, "{separator}{name} by {order} of {}", matrix.leading)?;
            if *batches != 1 {
                write!(f, " every {}", matrix.batch_stride)?;
            }
        }
        if self.bias.is_some() {
            f.write_str(", with a bias")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product() -> Product {
        let matrix = |leading| Matrix { address: 4096, order: Order::Rows, leading, batch_stride: 100 };
        Product {
            number: Number::F32,
            rows: 2,
            inner: 3,
            columns: 5,
            batches: 1,
            out: matrix(5),
            left: matrix(4),
            right: Matrix { order: Order::Columns, ..matrix(3) },
            bias: None,
            scale: 1.0,
            keep: 0.0,
        }
    }

    #[test]
    fn a_product_says_its_sizes_and_layouts() {
        let words = product().to_string();
        let expected =
            "a product of f32 [2 × 3] · [3 × 5] (left by rows of 4, right by columns of 3, out by rows of 5)";
        assert_eq!(words, expected);
        assert!(
            Product { batches: 7, ..product() }.to_string().contains("· [3 × 5], 7 times (left by rows of 4 every 100")
        );
    }

    #[test]
    fn what_is_stored_by_rows_becomes_the_exchanged_product_by_columns() {
        let transposed = product().by_columns();
        assert_eq!((transposed.rows, transposed.inner, transposed.columns), (5, 3, 2));
        assert_eq!(
            (transposed.out.order, transposed.left.order, transposed.right.order),
            (Order::Columns, Order::Rows, Order::Columns)
        );
        assert_eq!((transposed.left.leading, transposed.right.leading), (3, 4));
        assert_eq!(transposed.by_columns(), transposed);
    }

    #[test]
    fn many_batches_come_in_parts_that_follow_one_another() {
        let parts: Vec<Product> = Product { batches: 65_540, ..product() }.parts().collect();
        assert_eq!(parts.iter().map(|part| part.batches).collect::<Vec<_>>(), [65_535, 5]);
        assert_eq!(parts[1].out.address, 4096 + 65_535 * 100 * 4);
        assert_eq!(Product { batches: 0, ..product() }.parts().count(), 0);
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_with_the_reason() {
        let reason = |product: Product| product.check().expect_err("it is wrong").to_string();
        assert!(product().check().is_ok());
        assert!(reason(Product { left: Matrix { leading: 2, ..product().left }, ..product() }).contains("overlap"));
        assert!(reason(Product { number: Number::I64, ..product() }).contains("i64"));
        assert!(reason(Product { out: Matrix { address: 2, ..product().out }, ..product() }).contains("address"));
        assert!(reason(Product { inner: 0, ..product() }).contains("[2 × 0]"));
        let transposed = Matrix { order: Order::Columns, ..product().out };
        assert!(reason(Product { bias: Some(4096), out: transposed, ..product() }).contains("bias"));
    }
}
