//! Queries to the CUDA driver by the recorder itself, around the driver calls of the program.
#![expect(unsafe_code, reason = "calls functions of the driver")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::abi::{Answer, CAPTURE_ACTIVE, CAPTURE_RELAXED, DEVICE_ORDINAL, Function, SUCCESS};
use crate::loader;

type ToNumber = unsafe extern "C" fn(*mut c_int) -> Answer;

/// Functions of the driver; `None` if the driver does not have one.
#[derive(Debug)]
pub(crate) struct Driver {
    version: Option<ToNumber>,
    current_device: Option<ToNumber>,
    current_context: Option<unsafe extern "C" fn(*mut u64) -> Answer>,
    name: Option<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Answer>,
    total: Option<unsafe extern "C" fn(*mut usize, c_int) -> Answer>,
    memory: Option<unsafe extern "C" fn(*mut usize, *mut usize) -> Answer>,
    pointer: Option<unsafe extern "C" fn(*mut c_void, c_int, u64) -> Answer>,
    primary_state: Option<unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> Answer>,
    is_capturing: Option<unsafe extern "C" fn(u64, *mut c_int) -> Answer>,
    exchange_mode: Option<unsafe extern "C" fn(*mut c_int) -> Answer>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Casts a function pointer to the function's type. Returns `None` if it is null.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn typed<F: Copy>(function: Function) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<Function>()) };
    // SAFETY: as promised by the caller.
    (!function.is_null()).then(|| unsafe { std::mem::transmute_copy::<Function, F>(&function) })
}

/// Returns the value written by a function of the driver, if the call succeeds.
fn asked<V: Default>(ask: impl FnOnce(*mut V) -> Answer) -> Option<V> {
    let mut value = V::default();
    (ask(&raw mut value) == SUCCESS).then_some(value)
}

impl Driver {
    /// Returns the driver of this process, which contains `function`.
    pub(crate) fn of(function: Function) -> &'static Self {
        DRIVER.get_or_init(|| {
            let handles = [loader::library_of(function), loader::driver()];
            let find = |name: &CStr| {
                let of_handle = |handle: *mut c_void| match handle.is_null() {
                    true => handle,
                    false => loader::find(handle, name),
                };
                let found = handles.into_iter().map(of_handle).find(|found| !found.is_null());
                found.unwrap_or(std::ptr::null_mut())
            };
            // SAFETY: each field has the type of the function named next to it.
            unsafe {
                Self {
                    version: typed(find(c"cuDriverGetVersion")),
                    current_device: typed(find(c"cuCtxGetDevice")),
                    current_context: typed(find(c"cuCtxGetCurrent")),
                    name: typed(find(c"cuDeviceGetName")),
                    total: typed(find(c"cuDeviceTotalMem_v2")),
                    memory: typed(find(c"cuMemGetInfo_v2")),
                    pointer: typed(find(c"cuPointerGetAttribute")),
                    primary_state: typed(find(c"cuDevicePrimaryCtxGetState")),
                    is_capturing: typed(find(c"cuStreamIsCapturing")),
                    exchange_mode: typed(find(c"cuThreadExchangeStreamCaptureMode")),
                }
            }
        })
    }

    /// Returns the driver's version, such as `cuda 13.0`.
    pub(crate) fn version(&self) -> String {
        // SAFETY: writes a number to a local variable.
        match self.version.and_then(|ask| asked(|place| unsafe { ask(place) })) {
            Some(version) => format!("cuda {}.{}", version / 1000, version % 1000 / 10),
            None => "cuda".to_owned(),
        }
    }

    pub(crate) fn current_device(&self) -> Option<i32> {
        // SAFETY: writes a number to a local variable.
        self.current_device.and_then(|ask| asked(|place| unsafe { ask(place) }))
    }

    /// Returns the current context of this thread; 0 if there is none.
    pub(crate) fn current_context(&self) -> u64 {
        // SAFETY: writes a handle to a local variable.
        self.current_context.and_then(|ask| asked(|place| unsafe { ask(place) })).unwrap_or(0)
    }

    pub(crate) fn name(&self, device: i32) -> Option<String> {
        let mut text = [0_u8; 256];
        let length = text.len() as c_int - 1;
        // SAFETY: writes at most `length` bytes of text to a local buffer, whose last byte stays zero.
        let answer = self.name.map(|ask| unsafe { ask(text.as_mut_ptr().cast(), length, device) });
        let name = CStr::from_bytes_until_nul(&text).ok()?;
        (answer == Some(SUCCESS)).then(|| name.to_string_lossy().into_owned())
    }

    pub(crate) fn total_bytes(&self, device: i32) -> Option<u64> {
        // SAFETY: writes a number to a local variable.
        self.total.and_then(|ask| asked(|place| unsafe { ask(place, device) })).map(|bytes: usize| bytes as u64)
    }

    /// Returns the free and total bytes of the device of this thread's context. Does not disturb a stream that is being
    /// captured into a graph, whatever capture mode the program has set.
    pub(crate) fn free_and_total(&self) -> Option<(u64, u64)> {
        let ask = self.memory?;
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: swaps this thread's mode with the one in a local variable.
        let is_relaxed = self.exchange_mode.is_some_and(|exchange| unsafe { exchange(&raw mut mode) } == SUCCESS);
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes numbers to local variables.
        let answer = unsafe { ask(&raw mut free, &raw mut total) };
        if let Some(exchange) = self.exchange_mode.filter(|_| is_relaxed) {
            // SAFETY: restores this thread's previous mode.
            unsafe { exchange(&raw mut mode) };
        }
        (answer == SUCCESS).then_some((free as u64, total as u64))
    }

    pub(crate) fn device_of(&self, address: u64) -> Option<i32> {
        let ask = self.pointer?;
        // SAFETY: for this attribute the driver writes a number, to a local variable.
        let device = asked(|place: *mut c_int| unsafe { ask(place.cast(), DEVICE_ORDINAL, address) });
        device.filter(|&device| device >= 0)
    }

    pub(crate) fn has_primary_context(&self, device: i32) -> Option<bool> {
        let mut flags = 0;
        // SAFETY: writes numbers to local variables.
        let state = self.primary_state.and_then(|ask| asked(|place| unsafe { ask(device, &raw mut flags, place) }));
        state.map(|is_active: c_int| is_active != 0)
    }

    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        // SAFETY: writes a number to a local variable.
        self.is_capturing.and_then(|ask| asked(|place| unsafe { ask(stream, place) })) == Some(CAPTURE_ACTIVE)
    }
}
