//! Test helpers for blocks of device memory.
#![expect(unsafe_code, reason = "gives devices addresses and launches kernels")]

use std::sync::Arc;

use bytemuck::Pod;
use highwater_kernels::{Arguments, Gpu, Grid, Kernel, Result};

/// The first device.
pub(crate) fn gpu() -> Arc<Gpu> {
    Gpu::open(0).expect("a device opens")
}

/// Memory that is given back when it is dropped.
pub(crate) struct Block {
    gpu: Arc<Gpu>,
    /// The first byte.
    pub(crate) address: u64,
    bytes: usize,
}

impl Block {
    /// So many bytes.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self> {
        Ok(Self { gpu: Arc::clone(gpu), address: gpu.reserve(bytes as u64)?, bytes })
    }

    /// With these numbers.
    pub(crate) fn of<N: Pod>(gpu: &Arc<Gpu>, numbers: &[N]) -> Self {
        let block = Self::new(gpu, size_of_val(numbers).max(1)).expect("there is room");
        block.write(numbers, 0);
        block
    }

    /// Copies numbers to its beginning.
    pub(crate) fn write<N: Pod>(&self, numbers: &[N], stream: u64) {
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        assert!(bytes.len() <= self.bytes, "they fit");
        // SAFETY: the block is this test's own, and large enough.
        unsafe { self.gpu.copy_in(self.address, bytes, stream) }.expect("a copy");
    }

    /// Returns the first `count` numbers, after all that `stream` was given.
    pub(crate) fn read<N: Pod>(&self, count: usize, stream: u64) -> Vec<N> {
        let mut numbers = vec![N::zeroed(); count];
        assert!(size_of_val(&*numbers) <= self.bytes, "there are as many");
        // SAFETY: the block is this test's own, and large enough.
        unsafe { self.gpu.copy_out(bytemuck::cast_slice_mut(&mut numbers), self.address, stream) }.expect("a copy");
        numbers
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: reserved by `new`; tests use no block that they dropped.
        let released = unsafe { self.gpu.release(self.address) };
        // A failed test need not fail again.
        assert!(released.is_ok() || std::thread::panicking(), "{released:?}");
    }
}

/// Launches a kernel.
pub(crate) fn launch(gpu: &Gpu, kernel: Kernel, grid: Grid, stream: u64, arguments: &Arguments) -> Result<()> {
    // SAFETY: the tests' kernels take what they are given here and write to blocks that outlive the stream's work;
    // those of which that is not true run on the stand-in, which looks.
    unsafe { gpu.launch(kernel, grid, stream, arguments) }
}

/// The loops of a kernel over operands that lie one element after another, from multiples of 16 bytes on:
/// `struct Lines` in lines.cuh.
pub(crate) fn one_line(operands: usize, elements: u64) -> Vec<u64> {
    let axes = |first: u64, others: u64| [first, others, others, others, others, others, others, others];
    let mut words = vec![1 | 1 << 32];
    words.extend(axes(elements, 1));
    (0..operands).for_each(|_| words.extend(axes(1, 0)));
    words.extend([u64::from(elements > 0), 1]);
    words
}
