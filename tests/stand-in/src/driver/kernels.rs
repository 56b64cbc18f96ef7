//! Modules, their functions, and launches.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::devices::most_shared_bytes;
use crate::failure::{Code, answer, fail, put};
use crate::functions::{Out, functions};
use crate::image::object_in;
use crate::machine::{current, machine};
use crate::programs::{MAX_THREADS, Shape};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_SHARED_BYTES: c_uint = 8;

functions! {
    fn cuModuleLoadData(module: Out<'_, u64>, image: *const c_void) {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        // SAFETY: the caller's image.
        let object = unsafe { object_in(image.cast()) }?;
        put(module, machine.programs.load(device, object)?)
    }

    fn cuModuleUnload(module: u64) {
        let mut machine = machine()?;
        machine.programs.device_of(module)?;
        // Work under way keeps what it needs of it.
        machine.programs.unload(module);
        Ok(())
    }

    fn cuModuleGetFunction(function: Out<'_, u64>, module: u64, name: *const c_char) {
        if name.is_null() {
            return fail(Code::InvalidValue, "a function without a name");
        }
        // SAFETY: the caller's text, which ends in a zero.
        let found = machine()?.programs.find(module, unsafe { CStr::from_ptr(name) })?;
        put(function, found)
    }

    fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int) {
        let mut machine = machine()?;
        let most = most_shared_bytes(machine.settings.capability);
        let function = machine.programs.function(function)?;
        if attribute != MAX_SHARED_BYTES || !(0..=most).contains(&value) {
            return fail(Code::InvalidValue, format!("attribute {attribute} = {value}; shared memory goes to {most}"));
        }
        function.allow_shared(value as u32);
        Ok(())
    }

    fn cuFuncGetAttribute(value: Out<'_, c_int>, attribute: c_uint, function: u64) {
        let mut machine = machine()?;
        let function = machine.programs.function(function)?;
        let known = match attribute {
            0 => MAX_THREADS as c_int,
            MAX_SHARED_BYTES => function.most_shared_bytes() as c_int,
            unknown => return fail(Code::InvalidValue, format!("the stand-in does not know attribute {unknown}")),
        };
        put(value, known)
    }

    fn cuLaunchKernel(
        function: u64,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared_bytes: c_uint,
        stream: u64,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let (mut guard, device) = current()?;
        let machine = &mut *guard;
        let stream = machine.streams.find(stream, device)?;
        machine.streams.check(device)?;
        if machine.programs.device_of_function(function)? != device {
            return fail(Code::InvalidHandle, "the function was loaded for another device");
        }
        if !extra.is_null() {
            return fail(Code::NotSupported, "the stand-in takes arguments one by one only");
        }
        let shape =
            Shape { blocks: [blocks_x, blocks_y, blocks_z], threads: [threads_x, threads_y, threads_z], shared_bytes };
        // SAFETY: the caller's arguments, which the kernel's parameters describe.
        let work = unsafe {
            machine.programs.function(function)?.launch(shape, arguments.cast_const().cast(), machine.settings.seed)
        }?;
        machine.streams.give(stream, work)
    }
}
