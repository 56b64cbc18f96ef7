//! One operation on many tensors in one launch.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::{Queue, address_in};
use crate::Result;
use crate::backend::View;
use crate::storage::{Lent, Storage};

/// Number of elements of a tensor that a block processes, as in multi_tensor.cuh.
const CHUNK: usize = 8192;

/// A number of chunks above the maximum of any launch.
const BEHIND_ALL: u64 = u32::MAX as u64;

/// Maximum number of blocks of a launch.
const MAX_CHUNKS: u64 = i32::MAX as u64;

/// An operand of a tensor in a shared launch.
#[derive(Clone, Copy)]
pub(super) enum Operand<'a> {
    Read(View<'a>),
    /// Memory that is written, and may be read.
    Written(View<'a>),
    /// The memory of an earlier operand. Contains the index of that operand.
    Same(usize),
    /// The tensor lacks this operand.
    Absent,
}

impl<'a> Operand<'a> {
    pub(super) fn written(view: Option<View<'a>>) -> Self {
        view.map_or(Self::Absent, Self::Written)
    }
}

/// A tensor's part of a launch. Its operands are contiguous, all in the same order.
pub(super) struct Part<'a> {
    pub(super) elements: usize,
    pub(super) operands: Vec<Operand<'a>>,
}

/// The kernel and arguments that tensors must share to be processed in one launch.
pub(super) struct Work<'a> {
    pub(super) op: &'static str,
    pub(super) kernel: Kernel,
    /// Size in bytes of the arguments that pass tensors to the kernel.
    pub(super) bytes: usize,
    pub(super) common: Common<'a>,
    /// The kernel's second and last argument, except for the address of the common memory with which it begins, if any.
    pub(super) numbers: Vec<u64>,
}

#[derive(Clone, Copy)]
pub(super) enum Common<'a> {
    Nothing,
    /// A number that is read.
    Read(View<'a>),
    /// A number that any block may write.
    Written(View<'a>),
    /// The workspace, to which each block writes a double, the kernel that combines these, and its result.
    Parts(Kernel, View<'a>),
}

impl Work<'_> {
    /// Returns whether tensors of both can share a launch.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_same_view = |one: View<'_>, other: View<'_>| {
            std::ptr::eq(one.storage, other.storage) && one.layout.offset() == other.layout.offset()
        };
        let has_same_common = match (self.common, other.common) {
            (Common::Nothing, Common::Nothing) => true,
            (Common::Read(one), Common::Read(other)) | (Common::Written(one), Common::Written(other)) => {
                is_same_view(one, other)
            }
            (Common::Parts(_, one), Common::Parts(_, other)) => is_same_view(one, other),
            _ => false,
        };
        has_same_common && self.kernel == other.kernel && self.numbers == other.numbers
    }
}

/// Returns the number of blocks for this many elements.
pub(super) fn chunks(elements: usize) -> u64 {
    elements.div_ceil(CHUNK) as u64
}

/// Runs `work` on all `parts`, in as few launches as the space for arguments permits.
pub(super) fn launch(queue: &Queue<'_>, work: &Work<'_>, parts: &[Part<'_>]) -> Result<()> {
    let operands = parts.first().map_or(0, |part| part.operands.len());
    // As `tensors_in` of multi_tensor.cuh counts them.
    let most = work.bytes / (operands * 8 + 12) / 2 * 2;
    let (workspace, workspace_bytes) = queue.workspace();
    let mut left = Left { address: workspace, blocks: 0, most: workspace_bytes / 8 };
    let mut tensors = Tensors::new(most);
    for part in parts.iter().filter(|part| part.elements > 0) {
        let is_beyond_room = tensors.chunks + chunks(part.elements) > work.most_chunks(&left);
        if tensors.parts.len() == most || is_beyond_room {
            work.give(queue, &tensors, &mut left)?;
            tensors = Tensors::new(most);
        }
        tensors.add(part);
    }
    work.give(queue, &tensors, &mut left)?;
    match work.common {
        Common::Parts(end, total) => left.gather(queue, end, address_in(&total.storage.lend_to_write(work.op)?, total)),
        _ => Ok(()),
    }
}

impl Work<'_> {
    fn most_chunks(&self, left: &Left) -> u64 {
        match self.common {
            Common::Parts(..) => left.most.min(MAX_CHUNKS),
            _ => MAX_CHUNKS,
        }
    }

    fn give(&self, queue: &Queue<'_>, tensors: &Tensors<'_>, left: &mut Left) -> Result<()> {
        let common = match self.common {
            Common::Nothing => None,
            Common::Read(view) => Some((view, view.storage.lend(self.op)?)),
            Common::Written(view) | Common::Parts(_, view) => Some((view, view.storage.lend_to_write(self.op)?)),
        };
        let common = common.as_ref().map(|(view, lent)| address_in(lent, *view));
        let mut numbers = self.numbers.clone();
        match (self.common, common) {
            (Common::Parts(end, _), Some(total)) => {
                if left.blocks + tensors.chunks > left.most {
                    left.gather(queue, end, total)?;
                }
                numbers.insert(0, left.address + 8 * left.blocks);
                left.blocks += tensors.chunks;
            }
            (_, Some(address)) => numbers.insert(0, address),
            (_, None) => {}
        }
        let lendings = tensors.lend(self.op)?;
        let arguments = Arguments::new().with_words(&tensors.words(&lendings)).with_words(&numbers);
        queue.launch(self.kernel, Grid::row(tensors.chunks as u32), &arguments)
    }
}

/// The partial results of blocks in the workspace.
struct Left {
    address: u64,
    blocks: u64,
    most: u64,
}

impl Left {
    /// Adds all partial results to `total`. The workspace is free afterwards.
    fn gather(&mut self, queue: &Queue<'_>, end: Kernel, total: u64) -> Result<()> {
        if self.blocks == 0 {
            return Ok(());
        }
        let arguments = Arguments::new().with(total).with(self.address).with(self.blocks as u32);
        self.blocks = 0;
        queue.launch(end, Grid::row(1), &arguments)
    }
}

/// Tensors as a kernel argument, `struct Many` in multi_tensor.cuh.
struct Tensors<'a> {
    most: usize,
    parts: Vec<&'a Part<'a>>,
    chunks: u64,
}

impl<'a> Tensors<'a> {
    fn new(most: usize) -> Self {
        Self { most, parts: Vec::with_capacity(most), chunks: 0 }
    }

    fn add(&mut self, part: &'a Part<'a>) {
        self.chunks += chunks(part.elements);
        self.parts.push(part);
    }

    fn lend(&self, op: &'static str) -> Result<Lendings<'a>> {
        let mut lendings = Lendings::new();
        let operands = || self.parts.iter().flat_map(|part| &part.operands);
        // Several tensors may share memory: memory that is written is therefore borrowed first, and only once.
        for operand in operands() {
            if let Operand::Written(view) = *operand
                && let Entry::Vacant(entry) = lendings.entry(std::ptr::from_ref(view.storage))
            {
                entry.insert(view.storage.lend_to_write(op)?);
            }
        }
        for operand in operands() {
            if let Operand::Read(view) = *operand
                && let Entry::Vacant(entry) = lendings.entry(std::ptr::from_ref(view.storage))
            {
                entry.insert(view.storage.lend(op)?);
            }
        }
        Ok(lendings)
    }

    fn words(&self, lendings: &Lendings<'_>) -> Vec<u64> {
        let operands = self.parts.first().map_or(0, |part| part.operands.len());
        let address = |view: View<'_>| {
            let lent = lendings.get(&std::ptr::from_ref(view.storage));
            lent.map_or(0, |lent| address_in(lent, view))
        };
        let of_operand = |part: &Part<'_>, mut number: usize| loop {
            match part.operands[number] {
                Operand::Read(view) | Operand::Written(view) => return address(view),
                Operand::Same(other) => number = other,
                Operand::Absent => return 0,
            }
        };
        let padded = |numbers: Vec<u64>, padding: u64| {
            let missing = self.most - numbers.len();
            numbers.into_iter().chain(std::iter::repeat_n(padding, missing))
        };
        let of_parts = |number: &dyn Fn(&Part<'_>) -> u64| self.parts.iter().map(|part| number(part)).collect();
        let mut words = Vec::new();
        for operand in 0..operands {
            words.extend(padded(of_parts(&|part| of_operand(part, operand)), 0));
        }
        words.extend(padded(of_parts(&|part| part.elements as u64), 0));
        let mut end = 0;
        let ends = self.parts.iter().map(|part| {
            end += chunks(part.elements);
            end
        });
        let ends: Vec<u64> = padded(ends.collect(), BEHIND_ALL).collect();
        words.extend(ends.chunks_exact(2).map(|pair| pair[0] | pair[1] << 32));
        words
    }
}

/// The memory that a launch has borrowed, by storage, so that each storage is borrowed only once.
type Lendings<'a> = BTreeMap<*const Storage, Lent<'a>>;
