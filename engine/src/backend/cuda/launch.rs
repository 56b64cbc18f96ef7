//! Kernel arguments of a primitive: addresses of views, loops over them, scalars.
#![expect(unsafe_code, reason = "starts kernels, which read and write device memory by addresses")]

use highwater_kernels::{Arguments, Gpu, Grid, Kernel, Number, Product, Types, Workspace};

use crate::backend::View;
use crate::backend::nest::Nest;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::storage::{Lent, Storage};

/// Bytes that kernels move at a time where memory is contiguous and begins at a multiple of them.
const WIDE_BYTES: u64 = 16;

/// What kernels call an element type.
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

/// `T` for kernels of this element type.
pub(super) fn types(dtype: DType) -> Types {
    Types::of(number(dtype))
}

/// Fails for types that are not fractions.
pub(super) fn check_float(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(Error::DType { op, found: dtype, need: "expected a floating-point tensor" })
    }
}

/// A view's memory while a kernel is being given.
pub(super) struct Place<'a> {
    lent: Lent<'a>,
    first_byte: u64,
}

impl Place<'_> {
    /// The address of the view's first element.
    pub(super) fn address(&self) -> u64 {
        self.lent.address() + self.first_byte
    }

    /// The address of another view of the same memory.
    pub(super) fn address_of(&self, view: View<'_>) -> u64 {
        self.lent.address() + first_byte(view)
    }

    /// Whether it begins where many elements can be moved at once.
    pub(super) fn is_wide(&self) -> bool {
        self.address().is_multiple_of(WIDE_BYTES)
    }
}

/// A view that a kernel reads.
pub(super) fn reading<'a>(view: View<'a>, op: &'static str) -> Result<Place<'a>> {
    check_end(view);
    Ok(Place { lent: view.storage.lend(op)?, first_byte: first_byte(view) })
}

/// A view that a kernel writes. It must not be lent otherwise.
pub(super) fn writing<'a>(view: View<'a>, op: &'static str) -> Result<Place<'a>> {
    check_end(view);
    Ok(Place { lent: view.storage.lend_to_write(op)?, first_byte: first_byte(view) })
}

/// Views that a kernel writes, of which several may lie in one memory: what is lent, and the address of each view's
/// first element.
pub(super) fn writing_all<'a, const N: usize>(
    views: [View<'a>; N],
    op: &'static str,
) -> Result<(Vec<Lent<'a>>, [u64; N])> {
    let mut lent: Vec<(&Storage, Lent<'a>)> = Vec::with_capacity(N);
    let mut addresses = [0; N];
    for (view, address) in views.into_iter().zip(&mut addresses) {
        check_end(view);
        let known = lent.iter().position(|(storage, _)| std::ptr::eq(*storage, view.storage));
        let index = known.unwrap_or(lent.len());
        if known.is_none() {
            lent.push((view.storage, view.storage.lend_to_write(op)?));
        }
        *address = lent[index].1.address() + first_byte(view);
    }
    Ok((lent.into_iter().map(|(_, lent)| lent).collect(), addresses))
}

/// The address of a view that may be absent; 0 then. The place is kept by the caller while the kernel is given.
pub(super) fn address_of(place: &Option<Place<'_>>) -> u64 {
    place.as_ref().map_or(0, Place::address)
}

fn first_byte(view: View<'_>) -> u64 {
    (view.layout.offset() * view.dtype.size()) as u64
}

fn check_end(view: View<'_>) {
    assert!(view.layout.end() * view.dtype.size() <= view.storage.bytes(), "a view ends within its storage");
}

/// Rows of blocks side by side, as many across and down as are useful, or as a device takes: kernels go round.
pub(super) fn blocks(across: u64, down: u64) -> Grid {
    const MOST: [u64; 2] = [1 << 24, u16::MAX as u64];
    Grid { blocks: [across.min(MOST[0]) as u32, down.min(MOST[1]) as u32, 1], ..Grid::row(0) }
}

/// Loops over operands, as kernels take them: `struct Nest` in nest.cuh.
pub(super) fn nest_words<const N: usize>(nest: &Nest<N>) -> Vec<u64> {
    let (lengths, strides) = nest.axes();
    loop_words(lengths, strides)
}

/// The same of loops of these lengths, and each operand's strides.
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

/// Whether operands are contiguous, all in the same order.
pub(super) fn is_in_order<const N: usize>(nest: &Nest<N>) -> bool {
    let (lengths, strides) = nest.axes();
    lengths.len() == 1 && (lengths[0] == 1 || strides.iter().all(|strides| strides[0] == 1))
}

/// A device's stream, to which kernels are given.
pub(super) struct Queue<'a> {
    gpu: &'a Gpu,
    stream: u64,
    workspace: (u64, u64),
}

impl<'a> Queue<'a> {
    /// The stream on which `device` runs operations now.
    pub(super) fn of(device: &'a Device, op: &'static str) -> Result<Self> {
        let gpu = device.gpu().ok_or(Error::NotOnHost { op })?;
        Ok(Self { gpu, stream: device.stream().0, workspace: device.workspace() })
    }

    /// Memory for what one kernel leaves to the next: its address and its bytes. Whatever is given to the stream later
    /// may overwrite it.
    pub(super) fn workspace(&self) -> (u64, u64) {
        self.workspace
    }

    /// The device.
    pub(super) fn gpu(&self) -> &'a Gpu {
        self.gpu
    }

    /// A row of blocks that goes over `elements` elements, `each` of them a thread at a time.
    pub(super) fn over(&self, elements: usize, each: u64) -> Grid {
        self.gpu.grid_over(elements as u64, each)
    }

    /// Gives a kernel to the stream. Its arguments are addresses of [`Place`]s that the caller still holds, of the
    /// sizes that it passes along, and plain numbers: what the kernel of that name declares.
    pub(super) fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments) -> Result<()> {
        // SAFETY: each twin of a file of kernels passes what that file declares, which tests hold for every kernel with
        // every type; views end within their storages (`check_end`), and a kernel stays within its views. A storage
        // that is freed is given only to later work of the same stream, or waits for the streams that used it.
        unsafe { self.gpu.launch(kernel, grid, self.stream, arguments) }?;
        Ok(())
    }

    /// Gives a matrix product to the stream, of [`Place`]s that the caller still holds, within views of them. The
    /// workspace is the one that the device has for this stream.
    pub(super) fn multiply(&self, product: &Product, workspace: Workspace) -> Result<()> {
        // SAFETY: as for `launch`; what is multiplied are the views' own matrices. Only this stream's work is given the
        // workspace, piece after piece.
        unsafe { self.gpu.multiply(product, workspace, self.stream) }?;
        Ok(())
    }
}
