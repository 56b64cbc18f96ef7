//! The C functions, and the handles of descriptions.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::with_exposed_provenance_mut as at_mut;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::arithmetic::compute;
use super::choice::{Choice, Problem};
use super::descriptions::{Described, Element, Layout, Operation, Wish};
use super::{Result, Status, refuse};
use crate::functions::{Out, functions};
use crate::machine::current;
use crate::mapping::FRESH;

/// The descriptors that callers have created.
#[derive(Default)]
struct Known {
    next: u64,
    libraries: HashMap<u64, ()>,
    layouts: HashMap<u64, Layout>,
    operations: HashMap<u64, Operation>,
    wishes: HashMap<u64, Wish>,
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call, and catches panics. Prints errors, because cuBLASLt does not report messages.
#[expect(clippy::print_stderr, reason = "the only way to say more than a number")]
fn answer(name: &str, call: impl FnOnce() -> Result<()>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let outcome = outcome.unwrap_or_else(|_| refuse(Status::ExecutionFailed, "the stand-in panicked"));
    outcome.err().map_or(0, |refusal| {
        eprintln!("{name} on the stand-in: {}", refusal.words);
        refusal.status as i32
    })
}

/// Stores a description, and writes its handle to an output parameter.
fn enter<D>(place: Out<'_, u64>, table: fn(&mut Known) -> &mut HashMap<u64, D>, new: D) -> Result<()> {
    let Some(place) = place else { return refuse(Status::InvalidValue, "no place for the handle") };
    let mut known = known();
    known.next += 16;
    let handle = known.next;
    table(&mut known).insert(handle, new);
    place.write(handle);
    Ok(())
}

/// Returns `entry`, or an error that names the handle if there is none.
fn found<D>(entry: Option<D>, handle: u64) -> Result<D> {
    entry.map_or_else(|| refuse(Status::InvalidValue, format!("there is no handle {handle}")), Ok)
}

fn find<D: Copy>(table: &HashMap<u64, D>, handle: u64) -> Result<D> {
    found(table.get(&handle).copied(), handle)
}

/// Sets an attribute of a description from `bytes` bytes at a pointer that C passes.
fn set<D: Described>(
    described: Option<&mut D>,
    handle: u64,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> Result<()> {
    if value.is_null() {
        return refuse(Status::InvalidValue, "no value");
    }
    // SAFETY: the caller's value.
    let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) };
    found(described, handle)?.set(attribute, value)
}

fn problem(library: u64, operation: u64, layouts: [u64; 4]) -> Result<Problem> {
    let known = known();
    if !known.libraries.contains_key(&library) {
        return refuse(Status::NotInitialized, format!("there is no library {library}"));
    }
    let operation = find(&known.operations, operation)?;
    let [a, b, c, d] = layouts.map(|layout| find(&known.layouts, layout));
    Problem::new(operation, [a?, b?, c?, d?])
}

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    pub(crate) workspace_bytes: usize,
    status: i32,
    waves: f32,
    reserved: [c_int; 4],
}

/// Reads a factor of the type that the operation requires.
///
/// # Safety
/// `place` must point to a number of this type.
unsafe fn factor(place: *const c_void, element: Element) -> Result<f64> {
    if place.is_null() {
        return refuse(Status::InvalidValue, "no factor");
    }
    // SAFETY: as promised by the caller.
    unsafe {
        Ok(match element {
            Element::F64 => place.cast::<f64>().read_unaligned(),
            _ => f64::from(place.cast::<f32>().read_unaligned()),
        })
    }
}

/// Fails if the output overlaps an input.
fn check_overlap(problem: &Problem, addresses: [u64; 4], workspace: [u64; 2]) -> Result<()> {
    let ranges: Vec<[u64; 2]> =
        addresses.into_iter().zip(&problem.layouts).map(|(start, layout)| [start, layout.extent()]).collect();
    let overlap = |[a, bytes]: [u64; 2], [b, others]: [u64; 2]| a < b + others && b < a + bytes;
    let out = ranges[3];
    // What lies in the gaps of another overlaps it not.
    let is_dense = |index: usize| problem.layouts[index].is_dense();
    for (index, name) in ["A", "B"].into_iter().enumerate() {
        if overlap(ranges[index], out) && (addresses[index] == addresses[3] || is_dense(index) && is_dense(3)) {
            return refuse(Status::InvalidValue, format!("D overlaps {name}"));
        }
    }
    let [.., c, d] = &problem.layouts;
    let is_same = addresses[2] == addresses[3] && c.strides() == d.strides() && c.batch_stride == d.batch_stride;
    if overlap(ranges[2], out) && !is_same && is_dense(2) && is_dense(3) {
        return refuse(Status::InvalidValue, "D overlaps C, which lies in another way");
    }
    if workspace[1] > 0 && ranges.iter().any(|&range| overlap(range, workspace)) {
        return refuse(Status::InvalidValue, "the workspace overlaps a matrix");
    }
    Ok(())
}

functions! {
    fn cublasLtGetVersion() -> usize { 130_000 }

    fn cublasLtCreate(handle: Out<'_, u64>) { enter(handle, |known| &mut known.libraries, ()) }

    fn cublasLtDestroy(handle: u64) { found(known().libraries.remove(&handle), handle).map(drop) }

    fn cublasLtMatrixLayoutCreate(layout: Out<'_, u64>, element: c_int, rows: u64, columns: u64, leading: i64) {
        enter(layout, |known| &mut known.layouts, Layout::new(Element::of(element)?, rows, columns, leading))
    }

    fn cublasLtMatrixLayoutSetAttribute(layout: u64, attribute: c_int, value: *const c_void, bytes: usize) {
        set(known().layouts.get_mut(&layout), layout, attribute, value, bytes)
    }

    fn cublasLtMatrixLayoutDestroy(layout: u64) { found(known().layouts.remove(&layout), layout).map(drop) }

    fn cublasLtMatmulDescCreate(operation: Out<'_, u64>, compute: c_int, scale: c_int) {
        enter(operation, |known| &mut known.operations, Operation::new(compute, Element::of(scale)?))
    }

    fn cublasLtMatmulDescSetAttribute(operation: u64, attribute: c_int, value: *const c_void, bytes: usize) {
        set(known().operations.get_mut(&operation), operation, attribute, value, bytes)
    }

    fn cublasLtMatmulDescDestroy(operation: u64) { found(known().operations.remove(&operation), operation).map(drop) }

    fn cublasLtMatmulPreferenceCreate(wish: Out<'_, u64>) {
        enter(wish, |known| &mut known.wishes, Wish::default())
    }

    fn cublasLtMatmulPreferenceSetAttribute(wish: u64, attribute: c_int, value: *const c_void, bytes: usize) {
        set(known().wishes.get_mut(&wish), wish, attribute, value, bytes)
    }

    fn cublasLtMatmulPreferenceDestroy(wish: u64) { found(known().wishes.remove(&wish), wish).map(drop) }

    fn cublasLtMatmulAlgoGetHeuristic(
        library: u64,
        operation: u64,
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        wish: u64,
        most: c_int,
        chosen: *mut Chosen,
        count: Out<'_, c_int>,
    ) {
        let Some(count) = count.filter(|_| most > 0 && !chosen.is_null()) else {
            return refuse(Status::InvalidValue, "no place for an algorithm");
        };
        count.write(0);
        let problem = problem(library, operation, [a, b, c, d])?;
        let choice = Choice::new(&problem, &find(&known().wishes, wish)?);
        let workspace_bytes = choice.workspace_bytes() as usize;
        let refused = current()?.0.settings.refused as usize;
        let proposals = std::iter::repeat_n(choice.refused(), refused).chain([choice]).take(most as usize);
        for (row, choice) in proposals.enumerate() {
            let proposed = Chosen { choice, workspace_bytes, status: 0, waves: 1.0, reserved: [0; 4] };
            // SAFETY: the caller's places, of which there are `most`.
            unsafe { chosen.add(row).write(proposed) };
            count.write(row as c_int + 1);
        }
        Ok(())
    }

    fn cublasLtMatmul(
        library: u64,
        operation: u64,
        alpha: *const c_void,
        a: u64,
        a_layout: u64,
        b: u64,
        b_layout: u64,
        beta: *const c_void,
        c: u64,
        c_layout: u64,
        d: u64,
        d_layout: u64,
        choice: Option<&Choice>,
        workspace: u64,
        workspace_bytes: usize,
        stream: u64,
    ) {
        let problem = problem(library, operation, [a_layout, b_layout, c_layout, d_layout])?;
        let scale = problem.operation.scale;
        // SAFETY: the caller's factors, on the host.
        let factors = unsafe { [factor(alpha, scale)?, factor(beta, scale)?] };
        let any = || Choice::new(&problem, &Wish { workspace_bytes: 0, alignments: [1; 4] });
        let choice = choice.copied().unwrap_or_else(any);
        let addresses = [a, b, c, d];
        choice.check(&problem, addresses)?;
        choice.check_workspace(workspace, workspace_bytes as u64)?;
        let (mut machine, device) = current()?;
        for ((address, layout), name) in addresses.into_iter().zip(&problem.layouts).zip(["A", "B", "C", "D"]) {
            if let Err(failure) = machine.check_device(address, layout.extent() as usize) {
                return refuse(Status::InvalidValue, format!("{name}: {}", failure.words));
            }
        }
        let bias = problem.operation.bias;
        if bias.is_added {
            let [size, rows] = [problem.layouts[3].element.size(), problem.size[0]];
            let batches = (problem.layouts[3].batch as u64 - 1).saturating_mul(bias.batch_stride.max(0) as u64);
            let bytes = batches.saturating_add(rows).saturating_mul(size);
            if bias.batch_stride < 0 || machine.check_device(bias.address, bytes as usize).is_err() {
                let words =
                    format!("the bias, {bytes} bytes from {:#x} on, is not memory that was handed out", bias.address);
                return refuse(Status::InvalidValue, words);
            }
        }
        check_overlap(&problem, addresses, [workspace, workspace_bytes as u64])?;
        if workspace_bytes > 0
            && let Err(failure) = machine.check_device(workspace, workspace_bytes)
        {
            return refuse(Status::InvalidValue, format!("the workspace: {}", failure.words));
        }
        let stream = machine.streams.find(stream, device)?;
        let used = choice.workspace_bytes() as usize;
        machine.streams.give(
            stream,
            Box::new(move || {
                // SAFETY: checked to be memory that was handed out, which waits for work when it is given back, and to
                // overlap nothing but C with D where they are the same.
                unsafe {
                    // What computes a product leaves its own numbers there.
                    std::ptr::write_bytes(at_mut::<u8>(workspace as usize), FRESH, used);
                    compute(&problem, addresses, factors);
                }
                Ok(())
            }),
        )?;
        Ok(())
    }
}
