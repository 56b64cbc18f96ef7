//! Hooks for contexts: destroying one frees its allocations. Memory without addresses belongs to no context and stays.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::hook::{at, hook};
use crate::abi::{Answer, SUCCESS};
use crate::driver::Driver;
use crate::record::{self, Answered};

/// The primary context of each device.
static PRIMARY: Mutex<BTreeMap<c_int, u64>> = Mutex::new(BTreeMap::new());

hook! {
    /// Retains and returns a device's primary context.
    RETAIN = "cuDevicePrimaryCtxRetain" since 7000;
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) |call| {
        let answered = call();
        if answered.answer == SUCCESS {
            // SAFETY: the driver has written there.
            let context = unsafe { at(context) };
            PRIMARY.lock().unwrap_or_else(PoisonError::into_inner).insert(device, context);
        }
        answered.answer
    }
}

/// Handles the release of a primary context, which ends with its last reference or when it is reset.
fn let_go(device: c_int, answered: Answered, is_reset: bool) -> Answer {
    if answered.answer == SUCCESS {
        let has_ended = is_reset || Driver::of(answered.function).has_primary_context(device) == Some(false);
        let context = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
        if let Some(context) = context.filter(|_| has_ended) {
            record::context_ended(context);
        }
    }
    answered.answer
}

hook! {
    /// Releases a primary context.
    RELEASE = "cuDevicePrimaryCtxRelease" since 11000;
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |call| {
        let_go(device, call(), false)
    }
}

hook! {
    /// Older version of `cuDevicePrimaryCtxRelease_v2`.
    RELEASE_BEFORE = "cuDevicePrimaryCtxRelease" since 7000;
    fn cuDevicePrimaryCtxRelease(device: c_int) |call| {
        let_go(device, call(), false)
    }
}

hook! {
    /// Destroys a primary context, even if it is still retained.
    RESET = "cuDevicePrimaryCtxReset" since 11000;
    fn cuDevicePrimaryCtxReset_v2(device: c_int) |call| {
        let_go(device, call(), true)
    }
}

hook! {
    /// Older version of `cuDevicePrimaryCtxReset_v2`.
    RESET_BEFORE = "cuDevicePrimaryCtxReset" since 7000;
    fn cuDevicePrimaryCtxReset(device: c_int) |call| {
        let_go(device, call(), true)
    }
}

fn destroy(context: u64, answered: Answered) -> Answer {
    if answered.answer == SUCCESS {
        record::context_ended(context);
    }
    answered.answer
}

hook! {
    /// Destroys a context that the program created.
    DESTROY = "cuCtxDestroy" since 4000;
    fn cuCtxDestroy_v2(context: u64) |call| {
        destroy(context, call())
    }
}

hook! {
    /// Older version of `cuCtxDestroy_v2`.
    DESTROY_BEFORE = "cuCtxDestroy" since 2000;
    fn cuCtxDestroy(context: u64) |call| {
        destroy(context, call())
    }
}
