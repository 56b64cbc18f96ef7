//! Launches of kernels: their arguments, the memory that the arguments refer to, and the grid.
#![expect(unsafe_code, reason = "starts kernels, which read and write device memory by addresses")]

use bytemuck::Pod;
use highwater_kernels::{Arguments, Gpu, Grid, Kernel, Number, Product, Types, Workspace};

use crate::backend::{Nest, View};
use crate::storage::{Lent, Storage};
use crate::{DType, Device, Error, Result};

/// Number of bytes that kernels move at a time if memory is contiguous and aligned to this number.
pub(super) const WIDE_BYTES: usize = 16;

pub(super) fn number(dtype: DType) -> Number {
    match dtype {
        DType::F64 => Number::F64,
        DType::F32 => Number::F32,
        DType::Bf16 => Number::Bf16,
        DType::F16 => Number::F16,
        DType::I64 => Number::I64,
        DType::U8 => Number::U8,
        DType::Bool => Number::Bool,
    }
}

pub(super) fn types(dtype: DType) -> Types {
    Types::of(number(dtype))
}

pub(super) fn check_float(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(Error::DType { op, found: dtype, need: "expected a floating-point tensor" })
    }
}

/// Returns the address of a view's first element in lent memory.
pub(super) fn address_in(lent: &Lent<'_>, view: View<'_>) -> u64 {
    let bytes = view.dtype.size();
    assert!(view.layout.end() * bytes <= view.storage.bytes(), "a view extends past the end of its storage");
    lent.address() + (view.layout.offset() * bytes) as u64
}

/// Returns a grid of `across` by `down` blocks, at most 2²⁴ by 65,535. Kernels loop over the rest.
pub(super) fn blocks(across: u64, down: u64) -> Grid {
    const MOST: [u64; 2] = [1 << 24, u16::MAX as u64];
    Grid { blocks: [across.min(MOST[0]) as u32, down.min(MOST[1]) as u32, 1], ..Grid::row(0) }
}

/// Returns loops over operands as a kernel argument, `struct Nest` in nest.cuh.
pub(super) fn nest_words<const N: usize>(nest: &Nest<N>) -> Vec<u64> {
    let (lengths, strides) = nest.axes();
    loop_words(lengths, strides)
}

/// Returns loops of these lengths, with each operand's strides, as a kernel argument, `struct Nest` in nest.cuh.
pub(super) fn loop_words<const N: usize>(lengths: &[usize], strides: [&[usize]; N]) -> Vec<u64> {
    const SMALL: u64 = 1 << 31;
    let elements: u64 = lengths.iter().map(|&length| length as u64).product();
    let reach = |strides: &[usize]| -> u64 {
        lengths.iter().zip(strides).map(|(&length, &stride)| (length as u64).saturating_sub(1) * stride as u64).sum()
    };
    let is_small = elements < SMALL && strides.iter().all(|strides| reach(strides) < SMALL);
    let mut words = vec![lengths.len() as u64 | u64::from(is_small) << 32];
    let padded = |numbers: &[usize]| {
        let mut words = [1_u64; crate::shape::MAX_RANK];
        words.iter_mut().zip(numbers).for_each(|(word, &number)| *word = number as u64);
        words
    };
    words.extend(padded(lengths));
    strides.iter().for_each(|strides| words.extend(padded(strides)));
    words
}

/// Returns whether all operands are contiguous in the same order.
pub(super) fn is_in_order<const N: usize>(nest: &Nest<N>) -> bool {
    let (lengths, strides) = nest.axes();
    lengths.len() == 1 && (lengths[0] == 1 || strides.iter().all(|strides| strides[0] == 1))
}

/// A device's stream, to which kernels are submitted.
#[derive(Clone, Copy)]
pub(super) struct Queue<'a> {
    gpu: &'a Gpu,
    stream: u64,
    workspace: (u64, u64),
}

impl<'a> Queue<'a> {
    /// Returns the current stream of `device` on this thread.
    pub(super) fn of(device: &'a Device, op: &'static str) -> Result<Self> {
        let gpu = device.gpu().ok_or(Error::NotOnHost { op })?;
        Ok(Self { gpu, stream: device.stream().0, workspace: device.workspace() })
    }

    /// Returns the address and size of memory for results that one kernel passes to the next. Later work on the stream
    /// may overwrite it.
    pub(super) fn workspace(&self) -> (u64, u64) {
        self.workspace
    }

    pub(super) fn gpu(&self) -> &'a Gpu {
        self.gpu
    }

    /// Returns a one-dimensional grid for `elements` elements. Each thread processes `each` elements at a time.
    pub(super) fn over(&self, elements: usize, each: u64) -> Grid {
        self.gpu.grid_over(elements as u64, each)
    }

    /// Submits a kernel to the stream. The arguments must match the kernel's declaration. They are plain numbers, and
    /// addresses in memory that is still [`Lent`] to the caller and whose sizes are among the arguments.
    pub(super) fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments) -> Result<()> {
        // SAFETY: each twin of a file of kernels passes what that file declares, which tests hold for every kernel with
        // every type; views end within their storages (`check_end`), and a kernel stays within its views. A storage
        // that is freed is given only to later work of the same stream, or waits for the streams that used it.
        unsafe { self.gpu.launch(kernel, grid, self.stream, arguments) }?;
        Ok(())
    }

    /// Submits a matrix product to the stream. The operands must be within views of memory that is still [`Lent`] to
    /// the caller. The workspace must be the device's workspace for this stream.
    pub(super) fn multiply(&self, product: &Product, workspace: Workspace) -> Result<()> {
        // SAFETY: as for `launch`; the matrices multiplied are the views' own. Only this stream's work is given the
        // workspace, one piece after another.
        unsafe { self.gpu.multiply(product, workspace, self.stream) }?;
        Ok(())
    }
}

/// A launch in preparation, with arguments in the order in which the kernel declares them. Their memory is borrowed
/// until the launch is submitted.
pub(super) struct Launch<'a> {
    pub(super) queue: Queue<'a>,
    op: &'static str,
    types: Types,
    arguments: Arguments,
    /// The grid: one block unless a method changes it.
    pub(super) grid: Grid,
    /// The views whose addresses are arguments, in order, each with its address.
    operands: Vec<(View<'a>, u64)>,
    /// The borrowed memory, and whether it is borrowed for writing.
    lent: Vec<(&'a Storage, bool, Lent<'a>)>,
}

impl<'a> Launch<'a> {
    /// Begins a launch on the device of `view`, for a kernel whose `T` is the dtype of `view`.
    pub(super) fn new(op: &'static str, view: View<'a>) -> Result<Self> {
        Ok(Self {
            queue: Queue::of(view.storage.device(), op)?,
            op,
            types: types(view.dtype),
            arguments: Arguments::new(),
            grid: Grid::row(1),
            operands: Vec::with_capacity(8),
            lent: Vec::with_capacity(8),
        })
    }

    pub(super) fn of_floats(op: &'static str, view: View<'a>) -> Result<Self> {
        check_float(op, view.dtype)?;
        Self::new(op, view)
    }

    pub(super) fn typed(mut self, types: Types) -> Self {
        self.types = types;
        self
    }

    /// Lends a view for writing, and returns its address. Written views may share the same memory.
    pub(super) fn lend_to_write(&mut self, view: View<'a>) -> Result<u64> {
        if self.written(view).is_none() {
            self.lent.push((view.storage, true, view.storage.lend_to_write(self.op)?));
        }
        Ok(self.written(view).expect("the memory is not lent"))
    }

    pub(super) fn lend(&mut self, view: View<'a>) -> Result<u64> {
        let lent = view.storage.lend(self.op)?;
        let address = address_in(&lent, view);
        self.lent.push((view.storage, false, lent));
        Ok(address)
    }

    /// Returns the address of a view in memory that is lent for writing; `None` if it is not.
    fn written(&self, view: View<'_>) -> Option<u64> {
        let is_same =
            |&&(storage, is_written, _): &&(&Storage, bool, _)| is_written && std::ptr::eq(storage, view.storage);
        self.lent.iter().find(is_same).map(|(_, _, lent)| address_in(lent, view))
    }

    fn operand(mut self, view: View<'a>, address: u64) -> Self {
        self.operands.push((view, address));
        self.with(address)
    }

    /// Adds the address of a view that the kernel writes.
    pub(super) fn write(mut self, view: View<'a>) -> Result<Self> {
        let address = self.lend_to_write(view)?;
        Ok(self.operand(view, address))
    }

    /// Adds the address of a view that the kernel reads.
    pub(super) fn read(mut self, view: View<'a>) -> Result<Self> {
        let address = self.lend(view)?;
        Ok(self.operand(view, address))
    }

    /// Adds the address of a view that the kernel reads. The view may be in memory that the kernel writes.
    pub(super) fn read_or_overwrite(self, view: View<'a>) -> Result<Self> {
        match self.written(view) {
            Some(address) => Ok(self.operand(view, address)),
            None => self.read(view),
        }
    }

    /// Adds the address of a view that the kernel reads. Without a view, adds that of `written`, whose elements the
    /// kernel reads before writing them.
    pub(super) fn read_or(self, view: Option<View<'a>>, written: View<'a>) -> Result<Self> {
        match view {
            Some(view) => self.read(view),
            None => self.read_or_overwrite(written),
        }
    }

    /// Adds the address of a written view, or 0 if there is none.
    pub(super) fn write_if(self, view: Option<View<'a>>) -> Result<Self> {
        match view {
            Some(view) => self.write(view),
            None => Ok(self.with(0_u64)),
        }
    }

    /// Adds the address of a read view, or 0 if there is none.
    pub(super) fn read_if(self, view: Option<View<'a>>) -> Result<Self> {
        match view {
            Some(view) => self.read(view),
            None => Ok(self.with(0_u64)),
        }
    }

    /// Adds a number, or a struct in the kernel's layout.
    pub(super) fn with(mut self, argument: impl Pod) -> Self {
        self.arguments = self.arguments.with(argument);
        self
    }

    /// Adds a struct that consists of the given words.
    pub(super) fn words(mut self, words: &[u64]) -> Self {
        self.arguments = self.arguments.with_words(words);
        self
    }

    /// Returns the loops over the first `N` operands.
    pub(super) fn nest_of_operands<const N: usize>(&self) -> Nest<N> {
        Nest::new(std::array::from_fn(|operand| self.operands[operand].0.layout))
    }

    pub(super) fn operands(&self) -> impl Iterator<Item = (u64, DType)> {
        self.operands.iter().map(|&(view, address)| (address, view.dtype))
    }

    /// Returns whether the addresses of all operands added so far are multiples of `bytes`.
    pub(super) fn is_aligned(&self, bytes: usize) -> bool {
        self.operands().all(|(address, _)| address.is_multiple_of(bytes as u64))
    }

    /// Sets a grid for `elements` elements. Each thread processes `each` elements at a time.
    pub(super) fn over(self, elements: usize, each: usize) -> Self {
        let grid = self.queue.over(elements, each as u64);
        self.grid(grid)
    }

    pub(super) fn grid(mut self, grid: Grid) -> Self {
        self.grid = grid;
        self
    }

    pub(super) fn run(self, file: &'static str, name: &'static str) -> Result<()> {
        self.queue.launch(Kernel::new(file, name, self.types), self.grid, &self.arguments)
    }
}
