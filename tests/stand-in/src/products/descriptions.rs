//! Matrices, products and preferences, which callers describe attribute by attribute.

use super::{Result, Status, refuse};

/// The type of elements: `cudaDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    F64,
    F16,
    Bf16,
}

impl Element {
    /// Returns the type with this code.
    pub(super) fn of(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::F32),
            1 => Ok(Self::F64),
            2 => Ok(Self::F16),
            14 => Ok(Self::Bf16),
            other => refuse(Status::NotSupported, format!("elements of type {other}")),
        }
    }

    /// Bytes of one element.
    pub(super) fn size(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// The bytes of an attribute, as a number.
struct Value<'a>(&'a [u8]);

impl Value<'_> {
    fn int(&self) -> Result<i32> {
        match self.0.try_into() {
            Ok(bytes) => Ok(i32::from_ne_bytes(bytes)),
            Err(_) => refuse(Status::InvalidValue, format!("a number of 4 bytes in {}", self.0.len())),
        }
    }

    fn long(&self) -> Result<i64> {
        match self.0.try_into() {
            Ok(bytes) => Ok(i64::from_ne_bytes(bytes)),
            Err(_) => refuse(Status::InvalidValue, format!("a number of 8 bytes in {}", self.0.len())),
        }
    }

    fn count(&self) -> Result<u64> {
        let number = self.long()?;
        u64::try_from(number).or_else(|_| refuse(Status::InvalidValue, format!("{number} of something")))
    }
}

/// An object that callers describe by attributes.
pub(super) trait Described {
    /// Sets an attribute by its number.
    fn set(&mut self, attribute: i32, value: &[u8]) -> Result<()>;
}

/// The memory layout of a matrix, and of the other matrices in its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) element: Element,
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Number of elements from one column to the next; for row-major matrices, from one row to the next.
    pub(super) leading: i64,
    pub(super) has_rows_together: bool,
    pub(super) batch: i32,
    /// Elements from one matrix of a batch to the next.
    pub(super) batch_stride: i64,
}

impl Layout {
    /// The layout of one matrix in column order.
    pub(super) fn new(element: Element, rows: u64, columns: u64, leading: i64) -> Self {
        Self { element, rows, columns, leading, has_rows_together: false, batch: 1, batch_stride: 0 }
    }

    /// Elements from row to row, and from column to column.
    pub(super) fn strides(&self) -> [i64; 2] {
        if self.has_rows_together { [self.leading, 1] } else { [1, self.leading] }
    }

    /// Fails unless the layout is valid.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        let Self { rows, columns, leading, batch, .. } = *self;
        let least = if self.has_rows_together { columns } else { rows };
        let most = i64::MAX as u64 >> 8;
        if rows == 0 || columns == 0 || rows.saturating_mul(columns) > most {
            return refuse(Status::InvalidValue, format!("{name} has {rows} rows and {columns} columns"));
        }
        if u64::try_from(leading).map_or(true, |leading| leading < least) {
            return refuse(Status::InvalidValue, format!("{name}'s leading dimension is {leading}, less than {least}"));
        }
        if batch < 1 || self.batch_stride < 0 {
            let stride = self.batch_stride;
            return refuse(Status::InvalidValue, format!("{name} is a batch of {batch}, {stride} elements apart"));
        }
        Ok(())
    }

    /// Returns whether the matrices of a batch do not overlap: each follows the previous one, or they are side by side.
    pub(super) fn is_apart(&self) -> bool {
        let (between, batch) = (self.batch_stride as u64, self.batch as u64);
        let together = if self.has_rows_together { self.columns } else { self.rows };
        let is_behind = between >= Self { batch: 1, ..*self }.extent() / self.element.size();
        let is_beside = between >= together && between.saturating_mul(batch) <= self.leading as u64;
        batch == 1 || is_behind || is_beside
    }

    /// Whether its elements are contiguous.
    pub(super) fn is_dense(&self) -> bool {
        self.extent() == self.rows * self.columns * self.batch as u64 * self.element.size()
    }

    /// Returns the number of bytes from the first element to the end of the last.
    pub(super) fn extent(&self) -> u64 {
        let [row, column] = self.strides().map(|stride| stride as u64);
        let batches = (self.batch as u64 - 1).saturating_mul(self.batch_stride as u64);
        let last = (self.rows - 1).saturating_mul(row).saturating_add((self.columns - 1).saturating_mul(column));
        batches.saturating_add(last).saturating_add(1).saturating_mul(self.element.size())
    }
}

impl Described for Layout {
    fn set(&mut self, attribute: i32, value: &[u8]) -> Result<()> {
        let value = Value(value);
        match attribute {
            0 => self.element = Element::of(value.int()?)?,
            1 => match value.int()? {
                0 => self.has_rows_together = false,
                1 => self.has_rows_together = true,
                order => return refuse(Status::NotSupported, format!("order {order} of a matrix")),
            },
            2 => self.rows = value.count()?,
            3 => self.columns = value.count()?,
            4 => self.leading = value.long()?,
            5 => self.batch = value.int()?,
            6 => self.batch_stride = value.long()?,
            other => return refuse(Status::NotSupported, format!("attribute {other} of a matrix")),
        }
        Ok(())
    }
}

/// The operation on two matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) compute: i32,
    pub(super) scale: Element,
    /// Whether the left and the right matrix are transposed.
    pub(super) transposed: [bool; 2],
    pub(super) bias: Bias,
}

/// The bias of a product: a number for each row of the output, which is added to all elements of the row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bias {
    pub(super) is_added: bool,
    /// Address of the first number.
    pub(super) address: u64,
    /// Number of elements between the biases of two consecutive matrices.
    pub(super) batch_stride: i64,
    /// The type of the numbers; `None` for the type of the output.
    pub(super) element: Option<Element>,
}

impl Operation {
    /// Creates a product of two matrices without transposition.
    pub(super) fn new(compute: i32, scale: Element) -> Self {
        Self { compute, scale, transposed: [false; 2], bias: Bias::default() }
    }
}

impl Described for Operation {
    fn set(&mut self, attribute: i32, value: &[u8]) -> Result<()> {
        let value = Value(value);
        let transposed = || match value.int()? {
            0 => Ok(false),
            // Conjugated as well: the same for real numbers.
            1 | 2 => Ok(true),
            other => refuse(Status::InvalidValue, format!("operation {other} on a matrix")),
        };
        match attribute {
            0 => self.compute = value.int()?,
            1 => self.scale = Element::of(value.int()?)?,
            3 | 4 => self.transposed[attribute as usize - 3] = transposed()?,
            7 => match value.int()? {
                1 => self.bias.is_added = false,
                4 => self.bias.is_added = true,
                other => return refuse(Status::NotSupported, format!("epilogue {other} of a product")),
            },
            8 => self.bias.address = value.count()?,
            10 => self.bias.batch_stride = value.long()?,
            26 => self.bias.element = Some(Element::of(value.int()?)?),
            // Factors on the host, and a third matrix as it is.
            2 | 5 if value.int()? == 0 => {}
            other => return refuse(Status::NotSupported, format!("attribute {other} of a product")),
        }
        Ok(())
    }
}

/// The caller's preferences for the choice of an algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) workspace_bytes: u64,
    /// Minimum alignment of the four matrices' addresses.
    pub(super) alignments: [u32; 4],
}

impl Default for Wish {
    fn default() -> Self {
        Self { workspace_bytes: 0, alignments: [256; 4] }
    }
}

impl Described for Wish {
    fn set(&mut self, attribute: i32, value: &[u8]) -> Result<()> {
        let value = Value(value);
        match attribute {
            1 => self.workspace_bytes = value.count()?,
            5..=8 => match value.int()? {
                alignment if alignment > 0 && alignment.count_ones() == 1 => {
                    self.alignments[attribute as usize - 5] = alignment as u32;
                }
                other => return refuse(Status::InvalidValue, format!("an alignment of {other} bytes")),
            },
            // Any way of searching, of adding up, and any number of waves.
            0 | 3 | 9 => {}
            other => return refuse(Status::NotSupported, format!("attribute {other} of a wish")),
        }
        Ok(())
    }
}
