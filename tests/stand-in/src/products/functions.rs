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
use crate::machine::current;
use crate::mapping::FRESH;

/// Everything that callers have described.
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

/// Runs a call; no panic leaves it. cuBLASLt reports no texts of errors, so they are printed.
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
///
/// # Safety
/// The place is null or can be written.
unsafe fn enter<D>(
    place: *mut u64,
    known: &mut Known,
    table: fn(&mut Known) -> &mut HashMap<u64, D>,
    new: D,
) -> Result<()> {
    if place.is_null() {
        return refuse(Status::InvalidValue, "no place for the handle");
    }
    known.next += 16;
    let handle = known.next;
    table(known).insert(handle, new);
    // SAFETY: as promised by the caller.
    unsafe { place.write(handle) };
    Ok(())
}

fn forget<D>(table: &mut HashMap<u64, D>, handle: u64) -> Result<()> {
    table
        .remove(&handle)
        .map_or_else(|| refuse(Status::InvalidValue, format!("there is no handle {handle}")), |_| Ok(()))
}

fn find<D: Copy>(table: &HashMap<u64, D>, handle: u64) -> Result<D> {
    table.get(&handle).copied().map_or_else(|| refuse(Status::InvalidValue, format!("there is no handle {handle}")), Ok)
}

/// Sets an attribute of a description.
///
/// # Safety
/// At `value` there are as many bytes.
unsafe fn set<D: Described>(
    table: &mut HashMap<u64, D>,
    handle: u64,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> Result<()> {
    if value.is_null() {
        return refuse(Status::InvalidValue, "no value");
    }
    // SAFETY: as promised by the caller.
    let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) };
    match table.get_mut(&handle) {
        Some(described) => described.set(attribute, value),
        None => refuse(Status::InvalidValue, format!("there is no handle {handle}")),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtGetVersion() -> usize {
    130_000
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtCreate(handle: *mut u64) -> i32 {
    // SAFETY: the caller's place.
    answer("cublasLtCreate", || unsafe { enter(handle, &mut known(), |known| &mut known.libraries, ()) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtDestroy(handle: u64) -> i32 {
    answer("cublasLtDestroy", || forget(&mut known().libraries, handle))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut u64,
    element: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> i32 {
    answer("cublasLtMatrixLayoutCreate", || {
        let new = Layout::new(Element::of(element)?, rows, columns, leading);
        // SAFETY: the caller's place.
        unsafe { enter(layout, &mut known(), |known| &mut known.layouts, new) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: u64,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> i32 {
    // SAFETY: the caller's value.
    answer("cublasLtMatrixLayoutSetAttribute", || unsafe { set(&mut known().layouts, layout, attribute, value, bytes) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatrixLayoutDestroy(layout: u64) -> i32 {
    answer("cublasLtMatrixLayoutDestroy", || forget(&mut known().layouts, layout))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulDescCreate(operation: *mut u64, compute: c_int, scale: c_int) -> i32 {
    answer("cublasLtMatmulDescCreate", || {
        let new = Operation::new(compute, Element::of(scale)?);
        // SAFETY: the caller's place.
        unsafe { enter(operation, &mut known(), |known| &mut known.operations, new) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    operation: u64,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> i32 {
    // SAFETY: the caller's value.
    answer("cublasLtMatmulDescSetAttribute", || unsafe {
        set(&mut known().operations, operation, attribute, value, bytes)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatmulDescDestroy(operation: u64) -> i32 {
    answer("cublasLtMatmulDescDestroy", || forget(&mut known().operations, operation))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulPreferenceCreate(wish: *mut u64) -> i32 {
    answer("cublasLtMatmulPreferenceCreate", || {
        // SAFETY: the caller's place.
        unsafe { enter(wish, &mut known(), |known| &mut known.wishes, Wish::default()) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    wish: u64,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> i32 {
    // SAFETY: the caller's value.
    answer("cublasLtMatmulPreferenceSetAttribute", || unsafe {
        set(&mut known().wishes, wish, attribute, value, bytes)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatmulPreferenceDestroy(wish: u64) -> i32 {
    answer("cublasLtMatmulPreferenceDestroy", || forget(&mut known().wishes, wish))
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
    choice: Choice,
    pub(crate) workspace_bytes: usize,
    status: i32,
    waves: f32,
    reserved: [c_int; 4],
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    library: u64,
    operation: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    wish: u64,
    most: c_int,
    chosen: *mut Chosen,
    count: *mut c_int,
) -> i32 {
    answer("cublasLtMatmulAlgoGetHeuristic", || {
        if most < 1 || chosen.is_null() || count.is_null() {
            return refuse(Status::InvalidValue, "no place for an algorithm");
        }
        // SAFETY: the caller's place.
        unsafe { count.write(0) };
        let problem = problem(library, operation, [a, b, c, d])?;
        let choice = Choice::new(&problem, &find(&known().wishes, wish)?);
        let workspace_bytes = choice.workspace_bytes() as usize;
        let refused = current()?.0.settings.refused as usize;
        let proposals = std::iter::repeat_n(choice.refused(), refused).chain([choice]).take(most as usize);
        for (row, choice) in proposals.enumerate() {
            // SAFETY: the caller's places, of which there are `most`.
            unsafe {
                chosen.add(row).write(Chosen { choice, workspace_bytes, status: 0, waves: 1.0, reserved: [0; 4] });
                count.write(row as c_int + 1);
            }
        }
        Ok(())
    })
}

/// Reads a factor of the type that the operation names.
///
/// # Safety
/// At `place` lies such a number.
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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmul(
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
    choice: *const Choice,
    workspace: u64,
    workspace_bytes: usize,
    stream: u64,
) -> i32 {
    answer("cublasLtMatmul", || {
        let problem = problem(library, operation, [a_layout, b_layout, c_layout, d_layout])?;
        let scale = problem.operation.scale;
        // SAFETY: the caller's factors, on the host.
        let factors = unsafe { [factor(alpha, scale)?, factor(beta, scale)?] };
        // SAFETY: the caller's algorithm, or none.
        let choice = match unsafe { choice.as_ref() } {
            Some(choice) => *choice,
            None => Choice::new(&problem, &Wish { workspace_bytes: 0, alignments: [1; 4] }),
        };
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
    })
}

/// Fails if the output overlaps an input.
fn check_overlap(problem: &Problem, addresses: [u64; 4], workspace: [u64; 2]) -> Result<()> {
    let ranges: Vec<[u64; 2]> =
        addresses.into_iter().zip(&problem.layouts).map(|(start, layout)| [start, layout.extent()]).collect();
    let meet = |[a, bytes]: [u64; 2], [b, others]: [u64; 2]| a < b + others && b < a + bytes;
    let out = ranges[3];
    // What lies in the gaps of another overlaps it not.
    let is_dense = |index: usize| problem.layouts[index].is_dense();
    for (index, name) in ["A", "B"].into_iter().enumerate() {
        if meet(ranges[index], out) && (addresses[index] == addresses[3] || is_dense(index) && is_dense(3)) {
            return refuse(Status::InvalidValue, format!("D overlaps {name}"));
        }
    }
    let [.., c, d] = &problem.layouts;
    let is_same = addresses[2] == addresses[3] && c.strides() == d.strides() && c.batch_stride == d.batch_stride;
    if meet(ranges[2], out) && !is_same && is_dense(2) && is_dense(3) {
        return refuse(Status::InvalidValue, "D overlaps C, which lies in another way");
    }
    if workspace[1] > 0 && ranges.iter().any(|&range| meet(range, workspace)) {
        return refuse(Status::InvalidValue, "the workspace overlaps a matrix");
    }
    Ok(())
}
