//! Many: one operation on many tensors in one launch.

use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::{Place, Queue, reading, writing};
use crate::backend::View;
use crate::error::Result;

/// Elements of a tensor that a block takes: as in many.cuh.
const CHUNK: usize = 8192;

/// More chunks than one launch has.
const BEHIND_ALL: u32 = u32::MAX;

/// What a tensor's part in a launch is given by, operand by operand.
#[derive(Clone, Copy)]
pub(super) enum Operand<'a> {
    /// Memory that is read.
    Read(View<'a>),
    /// Memory that is written, and may be read.
    Written(View<'a>),
    /// The same as this operand before it.
    Same(usize),
    /// Nothing.
    Absent,
}

impl<'a> Operand<'a> {
    /// Memory that is written, if it is there.
    pub(super) fn written(view: Option<View<'a>>) -> Self {
        view.map_or(Self::Absent, Self::Written)
    }
}

/// What tensors must have in common to share a launch.
#[derive(Clone, PartialEq)]
pub(super) struct Work {
    pub(super) op: &'static str,
    pub(super) kernel: Kernel,
    /// Bytes of arguments in which the kernel is told of tensors: as it declares them.
    pub(super) bytes: usize,
    /// The kernel's second and last argument.
    pub(super) numbers: Vec<u64>,
}

/// A tensor's part of a launch. Its operands lie one after another, all in the same order.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) elements: usize,
    pub(super) operands: Vec<Operand<'a>>,
}

/// Does `work` on all of these, in as few launches as can tell of them.
pub(super) fn launch(queue: &Queue<'_>, work: &Work, parts: &[Part<'_>]) -> Result<()> {
    let parts: Vec<&Part<'_>> = parts.iter().filter(|part| part.elements > 0).collect();
    let Some(operands) = parts.first().map(|part| part.operands.len()) else { return Ok(()) };
    // As `tensors_in` of many.cuh counts them.
    let most = work.bytes / (operands * 8 + 12) / 2 * 2;
    for parts in parts.chunks(most) {
        let mut tensors = Tensors::new(operands, most);
        for part in parts {
            tensors.add(work.op, part)?;
        }
        let grid = Grid::row(tensors.chunks);
        let arguments = Arguments::new().with_words(&tensors.words()).with_words(&work.numbers);
        queue.launch(work.kernel, grid, &arguments)?;
    }
    Ok(())
}

/// Tensors as a kernel takes them: `struct Many` in many.cuh.
struct Tensors<'a> {
    most: usize,
    /// Held until the kernel is given.
    places: Vec<Place<'a>>,
    addresses: Vec<Vec<u64>>,
    elements: Vec<u64>,
    ends: Vec<u32>,
    chunks: u32,
}

impl<'a> Tensors<'a> {
    fn new(operands: usize, most: usize) -> Self {
        let addresses = vec![Vec::with_capacity(most); operands];
        Self { most, places: Vec::new(), addresses, elements: Vec::new(), ends: Vec::new(), chunks: 0 }
    }

    fn add(&mut self, op: &'static str, part: &Part<'a>) -> Result<()> {
        for (number, operand) in part.operands.iter().enumerate() {
            let address = match *operand {
                Operand::Read(view) => self.keep(reading(view, op)?),
                Operand::Written(view) => self.keep(writing(view, op)?),
                Operand::Same(other) => self.addresses[other].last().copied().unwrap_or(0),
                Operand::Absent => 0,
            };
            self.addresses[number].push(address);
        }
        self.elements.push(part.elements as u64);
        self.chunks += part.elements.div_ceil(CHUNK) as u32;
        self.ends.push(self.chunks);
        Ok(())
    }

    fn keep(&mut self, place: Place<'a>) -> u64 {
        let address = place.address();
        self.places.push(place);
        address
    }

    fn words(&self) -> Vec<u64> {
        let padded = |numbers: &[u64]| {
            let mut words = vec![0; self.most];
            words[..numbers.len()].copy_from_slice(numbers);
            words
        };
        let mut words: Vec<u64> = self.addresses.iter().flat_map(|addresses| padded(addresses)).collect();
        words.extend(padded(&self.elements));
        let end = |tensor: usize| u64::from(self.ends.get(tensor).copied().unwrap_or(BEHIND_ALL));
        words.extend((0..self.most).step_by(2).map(|tensor| end(tensor) | end(tensor + 1) << 32));
        words
    }
}
