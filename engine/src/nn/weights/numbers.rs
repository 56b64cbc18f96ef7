//! Converts a tensor's elements from and to the little-endian bytes of a file, piece by piece.

use std::io::{self, Read, Write};

use half::{bf16, f16};

use crate::backend::{View, to_host};
use crate::device::Kind;
use crate::dtype::{DType, Element, Truth};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Number of elements converted at a time.
const PIECE: usize = 1 << 16;

/// An element that converts to and from little-endian bytes, and to and from f64 for dtype conversion.
trait Number: Element {
    fn from_bytes(bytes: &[u8]) -> Self;
    fn append_to(self, bytes: &mut Vec<u8>);
    fn wide(self) -> f64;
    fn narrow(wide: f64) -> Self;
}

macro_rules! number {
    ($($type:ty: $wide:expr, $narrow:expr;)+) => {
        $(impl Number for $type {
            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap_or_default())
            }
            fn append_to(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
            fn wide(self) -> f64 {
                let wide: fn(Self) -> f64 = $wide;
                wide(self)
            }
            fn narrow(wide: f64) -> Self {
                let narrow: fn(f64) -> Self = $narrow;
                narrow(wide)
            }
        })+
    };
}

number! {
    f64: |x| x, |x| x;
    f32: f64::from, |x| x as Self;
    bf16: f64::from, |x| Self::from_f32(x as f32);
    f16: f64::from, |x| Self::from_f32(x as f32);
    i64: |x| x as f64, |x| x as Self;
    u8: f64::from, |x| x as Self;
}

impl Number for Truth {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self::from(bytes != [0])
    }
    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(bool::from(self)));
    }
    fn wide(self) -> f64 {
        f64::from(u8::from(bool::from(self)))
    }
    fn narrow(wide: f64) -> Self {
        Self::from(wide != 0.0)
    }
}

/// Runs `$body` with `$T` as the Rust type of `$dtype`'s elements.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F64 => with_number!(@ f64, $T => $body),
            DType::F32 => with_number!(@ f32, $T => $body),
            DType::Bf16 => with_number!(@ bf16, $T => $body),
            DType::F16 => with_number!(@ f16, $T => $body),
            DType::I64 => with_number!(@ i64, $T => $body),
            DType::U8 => with_number!(@ u8, $T => $body),
            DType::Bool => with_number!(@ Truth, $T => $body),
        }
    };
    (@ $type:ty, $T:ident => $body:expr) => {{
        type $T = $type;
        $body
    }};
}

/// Why reading or writing elements failed.
pub(super) enum Failure {
    Memory(Error),
    File(io::Error),
}

impl From<Error> for Failure {
    fn from(why: Error) -> Self {
        Self::Memory(why)
    }
}

impl From<io::Error> for Failure {
    fn from(why: io::Error) -> Self {
        Self::File(why)
    }
}

/// Reads all elements of a view, stored in the file with dtype `stored`.
pub(super) fn read(view: View<'_>, file: &mut impl Read, stored: DType) -> Result<(), Failure> {
    with_number!(view.dtype, T => with_number!(stored, S => read_as::<T, S>(view, file, |number| {
        if S::DTYPE == T::DTYPE { bytemuck::cast(number) } else { T::narrow(number.wide()) }
    })))
}

fn read_as<T: Number, S: Number>(
    view: View<'_>,
    file: &mut impl Read,
    convert: impl Fn(S) -> T,
) -> Result<(), Failure> {
    let (op, storage, layout) = ("load_safetensors", view.storage, view.layout);
    if storage.device().kind() == Kind::Cpu {
        return scatter(&mut storage.write::<T>(op)?, layout, file, convert);
    }
    // On other devices, assembles the elements in host memory, including those between the elements of the view, and
    // copies them to the device at once.
    let (first, end) = (layout.offset(), layout.end());
    let mut memory = vec![T::zeroed(); end.saturating_sub(first)];
    if layout.elements() < memory.len() {
        storage.copy_out(op, first * size_of::<T>(), bytemuck::cast_slice_mut(&mut memory))?;
    }
    scatter(&mut memory, &layout.at(0), file, convert)?;
    Ok(storage.copy_in(op, first * size_of::<T>(), bytemuck::cast_slice(&memory))?)
}

/// Reads the elements of a layout from `file` into `memory`.
fn scatter<T: Number, S: Number>(
    memory: &mut [T],
    layout: &Layout,
    file: &mut impl Read,
    convert: impl Fn(S) -> T,
) -> Result<(), Failure> {
    let mut bytes = vec![0; PIECE.min(layout.elements()) * size_of::<S>()];
    let mut place = Walk::new(layout);
    let mut left = layout.elements();
    while left > 0 {
        let piece = &mut bytes[..left.min(PIECE) * size_of::<S>()];
        file.read_exact(piece)?;
        for number in piece.chunks_exact(size_of::<S>()) {
            memory[place.next()] = convert(S::from_bytes(number));
        }
        left -= left.min(PIECE);
    }
    Ok(())
}

/// Writes all elements of a view in their own dtype.
pub(super) fn write(view: View<'_>, file: &mut impl Write) -> Result<(), Failure> {
    with_number!(view.dtype, T => {
        if view.storage.device().kind() == Kind::Cpu {
            return gather(&view.storage.read::<T>("save_safetensors")?, view.layout, file);
        }
        let numbers = to_host::<T>(view)?;
        gather(&numbers, &Layout::contiguous(*view.layout.shape()), file)
    })
}

/// Writes the elements of a layout of `memory` to `file`.
fn gather<T: Number>(memory: &[T], layout: &Layout, file: &mut impl Write) -> Result<(), Failure> {
    let mut bytes = Vec::with_capacity(PIECE.min(layout.elements()) * size_of::<T>());
    let mut place = Walk::new(layout);
    let mut left = layout.elements();
    while left > 0 {
        bytes.clear();
        (0..left.min(PIECE)).for_each(|_| memory[place.next()].append_to(&mut bytes));
        file.write_all(&bytes)?;
        left -= left.min(PIECE);
    }
    Ok(())
}

/// Iterates over the offsets of a layout's elements, last axis fastest.
struct Walk<'a> {
    layout: &'a Layout,
    index: Vec<usize>,
    next: usize,
}

impl<'a> Walk<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self { layout, index: vec![0; layout.shape().rank()], next: layout.offset() }
    }

    fn next(&mut self) -> usize {
        let here = self.next;
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        for axis in (0..self.index.len()).rev() {
            self.index[axis] += 1;
            self.next += strides[axis];
            if self.index[axis] < shape[axis] {
                break;
            }
            self.next -= strides[axis] * shape[axis];
            self.index[axis] = 0;
        }
        here
    }
}
