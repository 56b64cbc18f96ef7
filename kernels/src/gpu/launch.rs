//! Launch: a kernel by its name, how many run it, and its arguments.
#![expect(unsafe_code, reason = "starts kernels, which read and write by addresses")]

use std::ffi::c_void;

use bytemuck::Pod;
use cudarc::driver::result;

use super::Gpu;
use crate::error::{Result, ToResult};
use crate::source::{Types, Unit};

/// Threads that share a block unless a kernel needs another number.
pub const THREADS: u32 = 256;

/// A kernel: a function in a file that is compiled for types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Where it is.
    pub unit: Unit,
    /// What the file calls it.
    pub name: &'static str,
}

impl Kernel {
    /// `name` in `file`, for these types.
    pub const fn new(file: &'static str, name: &'static str, types: Types) -> Self {
        Self { unit: Unit { file, types }, name }
    }
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y and z; nothing is started where one is 0.
    pub blocks: [u32; 3],
    /// Threads in a block along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of shared memory that a block gets beside what the kernel declares.
    pub shared_bytes: u32,
}

impl Grid {
    /// One row of `blocks` blocks of [`THREADS`] threads.
    pub const fn row(blocks: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }
    }
}

/// The most bytes that a kernel's arguments take: what every driver allows.
const MOST_BYTES: usize = 4096;
const MOST_ARGUMENTS: usize = 32;
/// Words that most kernels' arguments fit in.
const USUAL_WORDS: usize = 64;

/// A kernel's arguments, in the order in which it declares them, each of its type's size and alignment.
#[derive(Debug)]
pub struct Arguments {
    // Of words, for their alignment. Not in an array: it would be copied with each argument that is added.
    words: Vec<u64>,
    places: [u16; MOST_ARGUMENTS],
    count: usize,
    bytes: usize,
}

impl Arguments {
    /// None yet.
    pub const fn new() -> Self {
        Self { words: Vec::new(), places: [0; MOST_ARGUMENTS], count: 0, bytes: 0 }
    }

    /// With one more: a number, or numbers laid out as in C.
    ///
    /// # Panics
    /// If there are more than 32, or more than 4096 bytes of them.
    #[must_use]
    pub fn with<A: Pod>(mut self, argument: A) -> Self {
        self.add(align_of::<A>(), bytemuck::bytes_of(&argument));
        self
    }

    /// With one more: a struct of the kernel's, made of these words.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    #[must_use]
    pub fn with_words(mut self, words: &[u64]) -> Self {
        self.add(8, bytemuck::cast_slice(words));
        self
    }

    fn add(&mut self, alignment: usize, bytes: &[u8]) {
        let start = self.bytes.next_multiple_of(alignment);
        let end = start + bytes.len();
        assert!(alignment <= 8 && end <= MOST_BYTES && self.count < MOST_ARGUMENTS, "kernels take less");
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
    /// A row of blocks of [`THREADS`] threads for `elements` elements, `each` of them a thread at a time: as many as the
    /// device can run at once, since kernels go round until all is done.
    pub fn grid_over(&self, elements: u64, each: u64) -> Grid {
        let blocks = elements.div_ceil(u64::from(THREADS) * each);
        Grid::row(blocks.min(u64::from(self.processors()) * 16) as u32)
    }

    /// Gives `stream` a kernel to run. The first use of a file compiles it, which takes seconds.
    ///
    /// # Safety
    /// The arguments are those that the kernel declares, in type and order. What it reads and writes by them is the
    /// caller's to read and write at this point of the stream, and stays allocated until the stream is past it.
    pub unsafe fn launch(&self, kernel: Kernel, grid: Grid, stream: u64, arguments: &Arguments) -> Result<()> {
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        self.bind()?;
        let function = self.programs.function(kernel, grid.shared_bytes)?;
        let start = arguments.words.as_ptr().cast::<u8>().cast_mut().cast::<c_void>();
        let mut places = [std::ptr::null_mut(); MOST_ARGUMENTS];
        for (pointer, &place) in places.iter_mut().zip(&arguments.places[..arguments.count]) {
            *pointer = start.wrapping_byte_add(usize::from(place));
        }
        let ([x, y, z], [a, b, c]) = (grid.blocks, grid.threads);
        let (places, stream) = (&mut places[..arguments.count], self.streams.handle(stream));
        // SAFETY: the function is loaded for as long as this lives; the pointers lead to the arguments, which the driver
        // copies and does not write; the rest is promised by the caller.
        let started =
            unsafe { result::launch_kernel(function, (x, y, z), (a, b, c), grid.shared_bytes, stream, places) };
        started.or_else(|error| Err(error).told(&format!("a launch of {} in {}", kernel.name, kernel.unit)))
    }
}
