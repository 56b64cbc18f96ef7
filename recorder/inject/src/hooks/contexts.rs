//! Hooks for contexts. Destroying a context frees its allocations. Memory without addresses belongs to no context and
//! is not freed.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::hook::{at, hooks};
use crate::abi::{Answer, SUCCESS};
use crate::driver::Driver;
use crate::record::{self, Answered};

/// The primary context of each device.
static PRIMARY: Mutex<BTreeMap<c_int, u64>> = Mutex::new(BTreeMap::new());

/// Handles the release of a primary context. The context ends with its last reference, or when it is reset.
fn context_released(device: c_int, answered: Answered, is_reset: bool) -> Answer {
    if answered.answer == SUCCESS {
        let has_ended = is_reset || Driver::of(answered.function).has_primary_context(device) == Some(false);
        let context = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
        if let Some(context) = context.filter(|_| has_ended) {
            record::context_ended(context);
        }
    }
    answered.answer
}

hooks! {
    /// Retains and returns a device's primary context.
    "cuDevicePrimaryCtxRetain": cuDevicePrimaryCtxRetain since 7000;
    (context: *mut u64, device: c_int) |hook, call| {
        let answered = call();
        if answered.answer == SUCCESS {
            // SAFETY: the driver has written there.
            let context = unsafe { at(context) };
            PRIMARY.lock().unwrap_or_else(PoisonError::into_inner).insert(device, context);
        }
        answered.answer
    }

    /// Releases a primary context.
    "cuDevicePrimaryCtxRelease": cuDevicePrimaryCtxRelease since 7000, cuDevicePrimaryCtxRelease_v2 since 11000;
    (device: c_int) |hook, call| { context_released(device, call(), false) }

    /// Destroys a primary context, even if it is still retained.
    "cuDevicePrimaryCtxReset": cuDevicePrimaryCtxReset since 7000, cuDevicePrimaryCtxReset_v2 since 11000;
    (device: c_int) |hook, call| { context_released(device, call(), true) }

    /// Destroys a context that the program created.
    "cuCtxDestroy": cuCtxDestroy since 2000, cuCtxDestroy_v2 since 4000;
    (context: u64) |hook, call| {
        let answered = call();
        if answered.answer == SUCCESS {
            record::context_ended(context);
        }
        answered.answer
    }
}
