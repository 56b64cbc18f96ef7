//! The kernels loaded into a device's context. Each file is loaded on first use.
#![expect(unsafe_code, reason = "loads modules and finds functions in them")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError, RwLock};

use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{result, sys};

use super::handles::Handle;
use super::launch::Kernel;
use crate::cache;
use crate::error::{Result, ToResult};
use crate::source::Unit;

#[derive(Debug)]
pub(super) struct Programs {
    arch: String,
    functions: RwLock<HashMap<Kernel, Function>>,
    modules: Mutex<HashMap<Unit, Handle<sys::CUmod_st>>>,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    handle: Handle<sys::CUfunc_st>,
    /// The largest dynamic shared memory that was requested for a block.
    shared_bytes: u32,
}

impl Programs {
    pub(super) fn new(arch: String) -> Self {
        Self { arch, functions: RwLock::default(), modules: Mutex::default() }
    }

    /// Returns a function that may use `shared_bytes` of dynamic shared memory. The context must be current.
    pub(super) fn function(&self, kernel: Kernel, shared_bytes: u32) -> Result<sys::CUfunction> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&kernel).filter(|function| function.shared_bytes >= shared_bytes) {
            return Ok(function.handle.0);
        }
        drop(functions);
        let module = self.module(kernel.unit)?;
        let name = CString::new(kernel.name).unwrap_or_default();
        let doing = || format!("looking for {} in {}", kernel.name, kernel.unit);
        // SAFETY: the module is loaded.
        let handle =
            unsafe { result::module::get_function(module.0, name) }.or_else(|error| Err(error).context(&doing()))?;
        if shared_bytes > 0 {
            // By default, a block may use at most 48 KiB, including the kernel's static shared memory.
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is loaded.
            unsafe { result::function::set_function_attribute(handle, attribute, shared_bytes as i32) }
                .context("cuFuncSetAttribute")?;
        }
        let function = Function { handle: Handle(handle), shared_bytes };
        self.functions.write().unwrap_or_else(PoisonError::into_inner).insert(kernel, function);
        Ok(handle)
    }

    fn module(&self, unit: Unit) -> Result<Handle<sys::CUmod_st>> {
        // Held while the unit is compiled: another thread that needs it would only compile it again.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        match modules.entry(unit) {
            Entry::Occupied(entry) => Ok(*entry.get()),
            Entry::Vacant(entry) => {
                let image = cache::load(unit, &self.arch)?;
                // SAFETY: the image is complete and compiled for this architecture.
                let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
                let module = module.or_else(|error| Err(error).context(&format!("loading {unit}")))?;
                Ok(*entry.insert(Handle(module)))
            }
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for module in self.modules.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            // SAFETY: loaded by `module`; none of its functions is called any more.
            let _ = unsafe { result::module::unload(module.0) };
        }
    }
}
