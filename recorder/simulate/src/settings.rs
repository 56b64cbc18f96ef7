//! The settings of the simulation, from environment variables that `highwater simulate` sets.

use std::sync::LazyLock;

use crate::addresses::AddressOrder;
use crate::gpu::Gpu;

/// The [description](Gpu::read) of the GPU. The default is an A100.
pub(crate) const GPU_VARIABLE: &str = "HIGHWATER_SIMULATE_GPU";
/// Bytes of memory of each device. The default is the GPU's.
pub(crate) const MEMORY_VARIABLE: &str = "HIGHWATER_SIMULATE_MEMORY_BYTES";
/// Bytes of each device that are in use from the start. The default is 0.
pub(crate) const RESERVED_VARIABLE: &str = "HIGHWATER_SIMULATE_RESERVED_BYTES";
/// The number of devices. The default is 1.
pub(crate) const DEVICES_VARIABLE: &str = "HIGHWATER_SIMULATE_DEVICES";
/// The order of addresses, which is `linux` (the default) or `windows`.
pub(crate) const ADDRESSES_VARIABLE: &str = "HIGHWATER_SIMULATE_ADDRESSES";
/// Variable that disables queries of cuDNN for workspace sizes, if set to `none`.
pub(crate) const CUDNN_VARIABLE: &str = "HIGHWATER_SIMULATE_CUDNN";

/// Variable with the path of the file to which a first run writes the values that it reads from device memory.
pub(crate) const WRITES_ANSWERS_VARIABLE: &str = "HIGHWATER_SIMULATE_WRITES_ANSWERS";
/// Variable with the path of the file from which the recorded run reads these values.
pub(crate) const READS_ANSWERS_VARIABLE: &str = "HIGHWATER_SIMULATE_READS_ANSWERS";

pub(crate) const MAX_DEVICES: usize = 64;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) gpu: Gpu,
    pub(crate) reserved_bytes: u64,
    pub(crate) devices: usize,
    pub(crate) addresses: AddressOrder,
    pub(crate) asks_cudnn: bool,
    pub(crate) writes_answers: Option<String>,
    pub(crate) reads_answers: Option<String>,
}

impl Settings {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let gpu = match variable(GPU_VARIABLE) {
            None => Gpu::a100(),
            Some(text) => Gpu::read(&text).ok_or_else(|| {
                format!("invalid {GPU_VARIABLE} '{text}': expected capability, multiprocessors, bytes of L2, bytes of memory, name")
            })?,
        };
        let number = |name: &str, unset: u64, most: u64| match variable(name) {
            None => Ok(unset),
            Some(text) => text
                .parse()
                .ok()
                .filter(|number| *number <= most)
                .ok_or_else(|| format!("invalid {name} '{text}': expected an integer of at most {most}")),
        };
        let addresses = match variable(ADDRESSES_VARIABLE) {
            None => AddressOrder::default(),
            Some(name) => AddressOrder::named(&name)
                .ok_or_else(|| format!("invalid {ADDRESSES_VARIABLE} '{name}': expected 'linux' or 'windows'"))?,
        };
        Ok(Self {
            gpu: Gpu { memory_bytes: number(MEMORY_VARIABLE, gpu.memory_bytes, 1 << 46)?, ..gpu },
            reserved_bytes: number(RESERVED_VARIABLE, 0, 1 << 46)?,
            devices: number(DEVICES_VARIABLE, 1, MAX_DEVICES as u64)? as usize,
            addresses,
            asks_cudnn: variable(CUDNN_VARIABLE).as_deref() != Some("none"),
            writes_answers: variable(WRITES_ANSWERS_VARIABLE),
            reads_answers: variable(READS_ANSWERS_VARIABLE),
        })
    }
}

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
    let variable =
        |name: &str| Some(std::env::var_os(name)?.to_string_lossy().trim().to_owned()).filter(|text| !text.is_empty());
    Settings::read(variable).unwrap_or_else(|message| {
        // No error can be raised from here, and a GPU other than the requested one would give wrong results.
        end(&message)
    })
});

#[expect(clippy::print_stderr, clippy::disallowed_methods, reason = "the program receives no other message")]
fn end(message: &str) -> ! {
    eprintln!("error: {message}");
    std::process::exit(2)
}

pub(crate) fn settings() -> &'static Settings {
    &SETTINGS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_memory_is_that_of_the_gpu_unless_it_is_set() {
        let gpu = (GPU_VARIABLE, "9.0,132,52428800,84929347584,NVIDIA H100 80GB HBM3");
        let known = read(&[gpu]).unwrap();
        assert_eq!((known.gpu.capability, known.gpu.memory_bytes, known.devices), ((9, 0), 84_929_347_584, 1));
        let set = read(&[gpu, (MEMORY_VARIABLE, "1048576"), (DEVICES_VARIABLE, "8")]).unwrap();
        assert_eq!((set.gpu.memory_bytes, set.devices), (1 << 20, 8));
    }

    #[test]
    fn a_value_that_is_not_one_is_named() {
        for (name, text) in [
            (GPU_VARIABLE, "h100"),
            (MEMORY_VARIABLE, "-1"),
            (MEMORY_VARIABLE, "80GiB"),
            (DEVICES_VARIABLE, "65"),
            (ADDRESSES_VARIABLE, "up"),
        ] {
            let message = read(&[(name, text)]).unwrap_err();
            assert!(message.starts_with(&format!("invalid {name} '{text}': ")), "{message}");
        }
    }
}
