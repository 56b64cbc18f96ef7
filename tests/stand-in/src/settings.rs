//! The settings of the stand-in, from environment variables.

/// Number of devices. The default is 1.
pub const DEVICES_VARIABLE: &str = "HIGHWATER_STAND_IN_DEVICES";
/// Bytes of memory of each device; 1 GiB unless set.
pub const MEMORY_VARIABLE: &str = "HIGHWATER_STAND_IN_MEMORY_BYTES";
/// Compute capability of each device, such as `8.0`; `9.0` unless set.
pub const CAPABILITY_VARIABLE: &str = "HIGHWATER_STAND_IN_CAPABILITY";
/// `1` delays work until something waits for it; otherwise, work runs when it is submitted.
pub const LAZY_VARIABLE: &str = "HIGHWATER_STAND_IN_LAZY";
/// `1` disables all computation, copies and fills. Kernels are looked up and launches checked, but their work is
/// dropped, and memory is address space that reads as zeros. Allocations and launches of a program can thus be checked
/// at full size.
pub const IDLE_VARIABLE: &str = "HIGHWATER_STAND_IN_IDLE";
/// A seed that shuffles the order of blocks, warps and lanes. With 0 or no value, the order is unchanged.
pub const SEED_VARIABLE: &str = "HIGHWATER_STAND_IN_SEED";
/// The CUDA version that the driver supports, such as `12.8`; `13.0` unless set.
pub const DRIVER_VARIABLE: &str = "HIGHWATER_STAND_IN_DRIVER";
/// Number of proposed algorithms of a matrix product that fail when they are run. The default is 0.
pub const REFUSED_VARIABLE: &str = "HIGHWATER_STAND_IN_REFUSED";

/// The values of the variables.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) devices: u16,
    pub(crate) memory_bytes: u64,
    pub(crate) capability: (i32, i32),
    pub(crate) is_lazy: bool,
    pub(crate) is_idle: bool,
    pub(crate) seed: u64,
    pub(crate) driver: (i32, i32),
    pub(crate) refused: u64,
}

impl Settings {
    /// Reads the variables; fails with the name of one that is invalid.
    pub(crate) fn read() -> Result<Self, String> {
        Ok(Self {
            devices: number(DEVICES_VARIABLE, 1)?,
            memory_bytes: number(MEMORY_VARIABLE, 1 << 30)?,
            capability: version(CAPABILITY_VARIABLE, (9, 0))?,
            is_lazy: number::<u8>(LAZY_VARIABLE, 0)? != 0,
            is_idle: number::<u8>(IDLE_VARIABLE, 0)? != 0,
            seed: number(SEED_VARIABLE, 0)?,
            driver: version(DRIVER_VARIABLE, (13, 0))?,
            refused: number(REFUSED_VARIABLE, 0)?,
        })
    }
}

fn text(variable: &str) -> Option<String> {
    Some(std::env::var_os(variable)?.to_string_lossy().trim().to_owned()).filter(|text| !text.is_empty())
}

fn version(variable: &str, unset: (i32, i32)) -> Result<(i32, i32), String> {
    let Some(text) = text(variable) else { return Ok(unset) };
    let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| format!("{variable} is '{text}', not like {}.{}", unset.0, unset.1))
}

fn number<N: std::str::FromStr>(variable: &str, unset: N) -> Result<N, String> {
    let Some(text) = text(variable) else { return Ok(unset) };
    text.parse().map_err(|_| format!("{variable} is '{text}', which is not a number that fits"))
}
