//! cuDNN's graph interface, used for convolutions and attention. The real library chooses engines and workspaces for
//! the described device, but nothing is executed. If the library is too old to do so, there is exactly one engine
//! without a workspace, and its execution is reported.
#![expect(unsafe_code, reason = "calls NVIDIA's library, and exports functions under its names")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::real;
use crate::abi::{Out, SUCCESS, answer, functions, give, new_handle};
use crate::contents;
use crate::notes::{Kind, note};

// Constants of cuDNN's headers: types of attributes, and types and attributes of descriptors.
const TYPE_HANDLE: c_int = 0;
const TYPE_INT64: c_int = 3;
const TYPE_DESCRIPTOR: c_int = 15;
const TYPE_INT32: c_int = 23;
const KNOB_CHOICES: c_int = 302;
const HEURISTICS: c_int = 4;
const EXECUTION_PLAN: c_int = 5;

/// The attribute of a descriptor type that accepts the described device, if there is one.
fn device_attribute(kind: c_int) -> Option<c_int> {
    match kind {
        HEURISTICS => Some(204),
        EXECUTION_PLAN => Some(407),
        _ => None,
    }
}

/// Descriptors that need the device before they are finalized, each with the attribute for the device.
static NEED_DEVICE: LazyLock<Mutex<HashMap<usize, c_int>>> = LazyLock::new(Mutex::default);

fn need_device(descriptor: usize) -> Option<c_int> {
    NEED_DEVICE.lock().unwrap_or_else(PoisonError::into_inner).remove(&descriptor)
}

functions! {
    fn cudnnBackendCreateDescriptor(kind: c_int, descriptor: Out<'_, usize>) {
        let Some(backend) = real::backend() else {
            give(descriptor, new_handle());
            return SUCCESS;
        };
        let mut made = 0;
        // SAFETY: writes to a local variable.
        let status = unsafe { (backend.create)(kind, &raw mut made) };
        if let Some(attribute) = device_attribute(kind).filter(|_| status == SUCCESS) {
            NEED_DEVICE.lock().unwrap_or_else(PoisonError::into_inner).insert(made, attribute);
        }
        give(descriptor, made);
        status
    }

    fn cudnnBackendDestroyDescriptor(descriptor: usize) {
        let Some(backend) = real::backend() else { return SUCCESS };
        need_device(descriptor);
        // SAFETY: the caller's descriptor, which the real library made.
        unsafe { (backend.destroy)(descriptor) }
    }

    /// Does not pass cuDNN handles to the real library, since they are simulated.
    fn cudnnBackendSetAttribute(descriptor: usize, name: c_int, kind: c_int, count: i64, elements: *const c_void) {
        let Some(backend) = real::backend().filter(|_| kind != TYPE_HANDLE) else { return SUCCESS };
        // SAFETY: the caller's arguments, passed on.
        unsafe { (backend.set)(descriptor, name, kind, count, elements) }
    }

    fn cudnnBackendFinalize(descriptor: usize) {
        let Some(backend) = real::backend() else { return SUCCESS };
        if let Some(attribute) = need_device(descriptor) {
            let device = &raw const backend.device;
            // SAFETY: the caller's descriptor has this attribute, which is a descriptor.
            unsafe { (backend.set)(descriptor, attribute, TYPE_DESCRIPTOR, 1, device.cast()) };
        }
        // SAFETY: the caller's descriptor.
        unsafe { (backend.finalize)(descriptor) }
    }

    fn cudnnBackendGetAttribute(
        descriptor: usize,
        name: c_int,
        kind: c_int,
        requested: i64,
        count: Out<'_, i64>,
        elements: *mut c_void,
    ) {
        if let Some(backend) = real::backend() {
            let count = count.map_or(std::ptr::null_mut(), |count| count.as_mut_ptr());
            // SAFETY: the caller's arguments, passed on.
            return unsafe { (backend.get)(descriptor, name, kind, requested, count, elements) };
        }
        // The caller reads sizes of workspaces, and leaves descriptors of engines as it created them.
        if !elements.is_null() && requested > 0 {
            match kind {
                // SAFETY: the caller's array of at least one number of this type.
                TYPE_INT64 => unsafe { elements.cast::<i64>().write_unaligned(0) },
                // SAFETY: as above.
                TYPE_INT32 => unsafe { elements.cast::<i32>().write_unaligned(0) },
                _ => {}
            }
        }
        let is_one = matches!(kind, TYPE_INT64 | TYPE_INT32) || (kind == TYPE_DESCRIPTOR && name != KNOB_CHOICES);
        give(count, i64::from(is_one));
        SUCCESS
    }

    fn cudnnBackendExecute() {
        if real::backend().is_none() {
            note(Kind::UnknownWorkspace, "cudnnBackendExecute");
        }
        contents::kernel_ran();
    }
}
