//! cuFFT plans without a workspace, since its size on a GPU is unknown.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use super::workspace::{sizes_zero, unknown_workspace};
use crate::abi::{Out, answer, functions, give, succeeds};

functions! {
    /// Creates a plan, represented by an integer.
    fn cufftCreate(plan: Out<'_, c_int>) {
        static LAST: AtomicI32 = AtomicI32::new(0);
        give(plan, LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
}

sizes_zero! { [_ _ _ _ _ _ _ _ _ _ _ _] [bytes: usize] cufftXtMakePlanMany }
succeeds! { cufftDestroy cufftSetAutoAllocation cufftSetStream cufftSetWorkArea }
unknown_workspace! { cufftXtExec }
