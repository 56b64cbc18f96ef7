//! Kernel launches: the kernel, its grid and its arguments.
#![expect(unsafe_code, reason = "starts kernels, which read and write by addresses")]

use std::ffi::c_void;

use bytemuck::Pod;
use cudarc::driver::result;

use super::Gpu;
use crate::error::{Result, ToResult};
use crate::source::{Types, Unit};

/// Threads per block, unless a kernel needs a different number.
pub const THREADS: u32 = 256;

/// A kernel, which is a function in a compilation unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The compilation unit.
    pub unit: Unit,
    /// The function's name.
    pub name: &'static str,
}

impl Kernel {
    /// Returns the kernel `name` in `file`, for these dtypes.
    pub const fn new(file: &'static str, name: &'static str, types: Types) -> Self {
        Self { unit: Unit { file, types }, name }
    }
}

/// The dimensions of a kernel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks along x, y and z. Nothing is launched if one of them is 0.
    pub blocks: [u32; 3],
    /// Number of threads per block along x, y and z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a thread block in bytes, in addition to the kernel's static shared memory.
    pub shared_bytes: u32,
}

impl Grid {
    /// Returns a one-dimensional grid of `blocks` blocks of [`THREADS`] threads.
    pub const fn row(blocks: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }
    }
}

/// The maximum size of a kernel's arguments in bytes, which every driver supports.
const MAX_BYTES: usize = 4096;
const MAX_ARGUMENTS: usize = 32;
/// The number of words that suffices for most kernels' arguments.
const USUAL_WORDS: usize = 64;

/// A kernel's arguments in declaration order, each with the size and alignment of its type.
#[derive(Debug)]
pub struct Arguments {
    // Words, for their alignment. Not an array, which would be copied with each added argument.
    words: Vec<u64>,
    places: [u16; MAX_ARGUMENTS],
    count: usize,
    bytes: usize,
}

impl Arguments {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { words: Vec::new(), places: [0; MAX_ARGUMENTS], count: 0, bytes: 0 }
    }

    /// Adds a number, or a struct with C layout.
    ///
    /// # Panics
    /// Panics if there are more than 32 arguments or 4096 bytes.
    #[must_use]
    pub fn with<A: Pod>(mut self, argument: A) -> Self {
        self.add(align_of::<A>(), bytemuck::bytes_of(&argument));
        self
    }

    /// Adds a struct that consists of these words.
    ///
    /// # Panics
    /// See [`with`](Self::with).
    #[must_use]
    pub fn with_words(mut self, words: &[u64]) -> Self {
        self.add(8, bytemuck::cast_slice(words));
        self
    }

    fn add(&mut self, alignment: usize, bytes: &[u8]) {
        let start = self.bytes.next_multiple_of(alignment);
        let end = start + bytes.len();
        assert!(alignment <= 8 && end <= MAX_BYTES && self.count < MAX_ARGUMENTS, "too many kernel arguments");
        if self.words.is_empty() {
            self.words.reserve(USUAL_WORDS);
        }
        self.words.resize(end.div_ceil(8), 0);
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        memory[start..end].copy_from_slice(bytes);
        self.places[self.count] = start as u16;
        self.count += 1;
        self.bytes = end;
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self::new()
    }
}

impl Gpu {
    /// Returns a one-dimensional grid of blocks of [`THREADS`] threads for `elements` elements, where each thread
    /// processes `each` elements at a time. The grid has at most 16 blocks per multiprocessor, since kernels loop until
    /// all elements are done.
    pub fn grid_over(&self, elements: u64, each: u64) -> Grid {
        let blocks = elements.div_ceil(u64::from(THREADS) * each);
        Grid::row(blocks.min(u64::from(self.processors()) * 16) as u32)
    }

    /// Submits a kernel to `stream`. The first use of a file compiles it, which takes seconds.
    ///
    /// # Errors
    /// Fails if the kernel does not compile or load, or the launch fails.
    ///
    /// # Safety
    /// The arguments must match the kernel's declaration in type and order. The caller must be allowed to read and
    /// write the memory that the kernel reads and writes at this point of the stream, and it must stay allocated until
    /// the kernel has finished.
    pub unsafe fn launch(&self, kernel: Kernel, grid: Grid, stream: u64, arguments: &Arguments) -> Result<()> {
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        self.bind()?;
        let function = self.programs.function(kernel, grid.shared_bytes)?;
        let start = arguments.words.as_ptr().cast::<u8>().cast_mut().cast::<c_void>();
        let mut places = [std::ptr::null_mut(); MAX_ARGUMENTS];
        for (pointer, &place) in places.iter_mut().zip(&arguments.places[..arguments.count]) {
            *pointer = start.wrapping_byte_add(usize::from(place));
        }
        let ([x, y, z], [a, b, c]) = (grid.blocks, grid.threads);
        let (places, stream) = (&mut places[..arguments.count], self.streams.handle(stream));
        // SAFETY: the function is loaded as long as `self` lives; the pointers refer to the arguments, which the driver
        // copies and does not write; the caller guarantees the rest.
        let started =
            unsafe { result::launch_kernel(function, (x, y, z), (a, b, c), grid.shared_bytes, stream, places) };
        started.or_else(|error| Err(error).context(&format!("a launch of {} in {}", kernel.name, kernel.unit)))
    }
}
