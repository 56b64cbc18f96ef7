//! Gpu: one device's primary context, with its streams, its compiled kernels and its books of mapped pages.
#![expect(unsafe_code, reason = "holds the driver's handles and calls its C functions")]

pub mod launch;
mod handles;
pub mod memory;
pub mod pages;
pub mod streams;
pub mod programs;
pub mod faults;
pub mod product;
mod descriptions;
pub mod products;

use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{result, sys};

use crate::error::{Error, Result, ToResult};
use crate::{library, probe};
use faults::Faults;
use handles::Handle;
use pages::Pages;
use products::Products;
use programs::Programs;
use streams::Streams;

/// The least compute capability that the kernels are compiled for.
pub const LEAST_CAPABILITY: (i32, i32) = (8, 0);

/// A device that is ready for work. Shared by all who use it; the last one to go lets the context go.
#[derive(Debug)]
pub struct Gpu {
    ordinal: u16,
    name: String,
    capability: (i32, i32),
    processors: u32,
    shared_bytes: u32,
    streams: Streams,
    pages: Pages,
    programs: Programs,
    products: Products,
    faults: Faults,
    // Last, since all of the above needs it to let go.
    context: Context,
}

impl Gpu {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// What is missing: the driver, the compiler, cuBLASLt, the device.
    pub fn open(ordinal: u16) -> Result<Arc<Self>> {
        let known = probe::find(ordinal)?;
        library::compiler()?;
        library::products()?;
        let device = result::device::get(i32::from(ordinal)).told("cuDeviceGet")?;
        let context = Context::retain(device)?;
        context.bind()?;
        let attribute = |attribute| {
            // SAFETY: `device` is a handle that the driver has just given.
            unsafe { result::device::get_attribute(device, attribute) }.told("cuDeviceGetAttribute")
        };
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < LEAST_CAPABILITY {
            return Err(Error::TooOld { name: known.name, capability });
        }
        Ok(Arc::new(Self {
            ordinal,
            name: known.name,
            capability,
            processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32,
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.max(0) as u32,
            streams: Streams::new()?,
            pages: Pages::new(i32::from(ordinal))?,
            programs: Programs::new(format!("sm_{}{}", capability.0, capability.1)),
            products: Products::new()?,
            faults: Faults::new()?,
            context,
        }))
    }

    /// Its number.
    pub fn ordinal(&self) -> u16 {
        self.ordinal
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its compute capability.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// How many multiprocessors it has.
    pub fn processors(&self) -> u32 {
        self.processors
    }

    /// Shared memory that a block can ask for, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Makes it the one that the driver's calls on this thread mean.
    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // What the fields let go of, they let go of in this context; without it, the context's end frees all.
        drop(self.bind());
        // Its streams and programs are not to go while kernels run.
        let _ = result::ctx::synchronize();
    }
}

/// A device's primary context, held.
#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    handle: Handle<sys::CUctx_st>,
}

impl Context {
    fn retain(device: sys::CUdevice) -> Result<Self> {
        // SAFETY: `device` is the driver's own handle.
        let handle = unsafe { result::primary_ctx::retain(device) }.told("cuDevicePrimaryCtxRetain")?;
        Ok(Self { device, handle: Handle(handle) })
    }

    fn bind(&self) -> Result<()> {
        // SAFETY: the context is held as long as this lives.
        unsafe { result::ctx::set_current(self.handle.0) }.told("cuCtxSetCurrent")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: held once, by `retain`; nothing of this context is used after its `Gpu`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
