//! A GPU: its primary context, streams, compiled kernels and mapped pages.
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
use crate::library::Versions;
use crate::probe;
use faults::Faults;
use handles::Handle;
use pages::Pages;
use products::Products;
use programs::Programs;
use streams::Streams;

/// The lowest compute capability that the kernels support.
pub const MIN_CAPABILITY: (i32, i32) = (8, 0);

/// An open GPU. It is shared by all its users, and dropping the last reference releases the context.
#[derive(Debug)]
pub struct Gpu {
    ordinal: u16,
    name: String,
    capability: (i32, i32),
    versions: Versions,
    processors: u32,
    shared_bytes: u32,
    streams: Streams,
    pages: Pages,
    programs: Programs,
    products: Products,
    faults: Faults,
    // Dropped last, since the fields above are freed in this context.
    context: Context,
}

impl Gpu {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// Fails if the driver, the compiler, cuBLASLt or the device is missing, if the device is too old, if a library is
    /// newer than the driver supports, or if a driver call fails.
    pub fn open(ordinal: u16) -> Result<Arc<Self>> {
        let known = probe::find(ordinal)?;
        let versions = Versions::find()?;
        let device = result::device::get(i32::from(ordinal)).context("cuDeviceGet")?;
        let context = Context::retain(device)?;
        context.bind()?;
        let attribute = |attribute| {
            // SAFETY: `device` is a handle that the driver just returned.
            unsafe { result::device::get_attribute(device, attribute) }.context("cuDeviceGetAttribute")
        };
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < MIN_CAPABILITY {
            return Err(Error::TooOld { name: known.name, capability });
        }
        Ok(Arc::new(Self {
            ordinal,
            name: known.name,
            capability,
            versions,
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

    /// Returns the ordinal of the device.
    pub fn ordinal(&self) -> u16 {
        self.ordinal
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the compute capability of the device.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Returns the versions of the driver and of CUDA's libraries.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// Returns the number of multiprocessors of the device.
    pub fn processors(&self) -> u32 {
        self.processors
    }

    /// Returns the maximum shared memory of a block in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Makes the device's context current on this thread.
    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The fields are freed in this context; if binding fails, destroying the context frees everything.
        drop(self.bind());
        // Streams and programs must not be destroyed while kernels run.
        let _ = result::ctx::synchronize();
    }
}

/// A reference to a device's primary context.
#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    handle: Handle<sys::CUctx_st>,
}

impl Context {
    fn retain(device: sys::CUdevice) -> Result<Self> {
        // SAFETY: `device` is a handle from the driver.
        let handle = unsafe { result::primary_ctx::retain(device) }.context("cuDevicePrimaryCtxRetain")?;
        Ok(Self { device, handle: Handle(handle) })
    }

    fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { result::ctx::set_current(self.handle.0) }.context("cuCtxSetCurrent")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, by `retain`; nothing of this context is used after its `Gpu`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
