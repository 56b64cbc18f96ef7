//! The elements of contiguous views, as slices.

use std::ops::{Deref, DerefMut, Range};

use bytemuck::Pod;

use crate::Result;
use crate::backend::View;
use crate::storage::{Reading, Writing};

/// The elements of a contiguous view in borrowed memory.
pub(super) struct Elements<M> {
    memory: M,
    range: Range<usize>,
}

impl<T, M: Deref<Target = [T]>> Elements<M> {
    fn new(memory: M, view: View<'_>) -> Self {
        // An empty view may begin past the end.
        let first = view.layout.offset().min(memory.len());
        Self { memory, range: first..first + view.layout.elements() }
    }
}

impl<T, M: Deref<Target = [T]>> Deref for Elements<M> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[self.range.clone()]
    }
}

impl<T, M: DerefMut<Target = [T]>> DerefMut for Elements<M> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.range.clone()]
    }
}

pub(super) fn read<'a, T: Pod>(view: View<'a>, op: &'static str) -> Result<Elements<Reading<'a, T>>> {
    Ok(Elements::new(view.storage.read::<T>(op)?, view))
}

pub(super) fn read_if<'a, T: Pod>(
    view: Option<View<'a>>,
    op: &'static str,
) -> Result<Option<Elements<Reading<'a, T>>>> {
    view.map(|view| read(view, op)).transpose()
}

pub(super) fn write<'a, T: Pod>(view: View<'a>, op: &'static str) -> Result<Elements<Writing<'a, T>>> {
    Ok(Elements::new(view.storage.write::<T>(op)?, view))
}

pub(super) fn read_one<T: Pod>(view: View<'_>, op: &'static str) -> Result<T> {
    Ok(view.storage.read::<T>(op)?[view.layout.offset()])
}
