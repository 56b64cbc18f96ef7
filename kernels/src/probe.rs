//! Lists the CUDA devices, without panicking if there is no driver.
#![expect(unsafe_code, reason = "asks the driver for its devices")]

use cudarc::driver::result;

use crate::error::{Error, Result, ToResult};
use crate::library;

/// A CUDA device, as described by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// The device's ordinal.
    pub ordinal: u16,
    /// The device's name.
    pub name: String,
    /// The device's memory in bytes.
    pub memory_bytes: u64,
}

/// Returns the devices of this machine, by ordinal.
///
/// # Errors
/// Fails if the driver is missing, has no devices or fails.
pub fn devices() -> Result<Vec<CudaDevice>> {
    library::driver()?;
    result::init().context("cuInit")?;
    let count = result::device::get_count().context("cuDeviceGetCount")?;
    (0..count).map(|ordinal| device(ordinal).context("asking for a device")).collect()
}

/// Returns the device with this ordinal.
///
/// # Errors
/// Returns [`Error::NoDevice`] with the number of devices if there is no such device, and the errors of [`devices`].
pub fn find(ordinal: u16) -> Result<CudaDevice> {
    let devices = devices()?;
    let count = devices.len() as u16;
    devices.into_iter().nth(usize::from(ordinal)).ok_or(Error::NoDevice { asked: ordinal, count })
}

fn device(ordinal: i32) -> Result<CudaDevice, cudarc::driver::DriverError> {
    let device = result::device::get(ordinal)?;
    let name = result::device::get_name(device)?;
    // SAFETY: `device` is a handle that the driver just returned.
    let memory_bytes = unsafe { result::device::total_mem(device)? } as u64;
    Ok(CudaDevice { ordinal: ordinal as u16, name, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_gets_an_error_that_says_what_to_do() {
        match devices() {
            Ok(devices) => assert!(matches!(find(devices.len() as u16), Err(Error::NoDevice { .. }))),
            Err(error) => {
                assert!(matches!(error, Error::NoDriver | Error::Driver { .. }), "{error}");
                let again = find(0).expect_err("there is no driver");
                assert_eq!(again.to_string(), error.to_string());
                assert!(Error::NoDriver.to_string().contains("--device meta"));
            }
        }
    }
}
