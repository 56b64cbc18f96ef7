//! The simulated GPU, as described by `highwater simulate`.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) capability: (i32, i32),
    pub(crate) multiprocessors: i32,
    pub(crate) l2_bytes: i32,
    pub(crate) memory_bytes: u64,
}

/// The properties determined by the compute capability (source: NVIDIA's CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
#[derive(Clone, Copy, Debug)]
pub(crate) struct Architecture {
    pub(crate) threads_per_multiprocessor: i32,
    pub(crate) blocks_per_multiprocessor: i32,
    pub(crate) shared_bytes_per_multiprocessor: i32,
    pub(crate) shared_bytes_per_block: i32,
}

impl Gpu {
    /// The default GPU.
    pub(crate) fn a100() -> Self {
        Self {
            name: "NVIDIA A100-SXM4-80GB".to_owned(),
            capability: (8, 0),
            multiprocessors: 108,
            l2_bytes: 40 << 20,
            memory_bytes: 85_094_301_696,
        }
    }

    /// Parses capability, multiprocessors, bytes of L2, bytes of memory and name, separated by commas.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ',');
        let mut next = || parts.next().map(str::trim);
        let (major, minor) = next()?.split_once('.')?;
        Some(Self {
            capability: (major.parse().ok()?, minor.parse().ok()?),
            multiprocessors: next()?.parse().ok().filter(|number| *number > 0)?,
            l2_bytes: next()?.parse().ok()?,
            memory_bytes: next()?.parse().ok().filter(|bytes| *bytes <= 1 << 46)?,
            name: next().filter(|name| !name.is_empty())?.to_owned(),
        })
    }

    pub(crate) fn architecture(&self) -> Architecture {
        let (threads, blocks, shared_kib) = match self.capability {
            (7, 5) => (1024, 16, 64),
            (7, _) => (2048, 32, 96),
            (8, 0) => (2048, 32, 164),
            (8, 7) => (1536, 16, 164),
            (8, 9) | (12, _) => (1536, 24, 100),
            (8, _) => (1536, 16, 100),
            _ => (2048, 32, 228),
        };
        // From capability 8.0 on, a block leaves 1 KiB to the system.
        let reserved_kib = i32::from(self.capability >= (8, 0));
        Architecture {
            threads_per_multiprocessor: threads,
            blocks_per_multiprocessor: blocks,
            shared_bytes_per_multiprocessor: shared_kib << 10,
            shared_bytes_per_block: (shared_kib - reserved_kib) << 10,
        }
    }

    /// The version of the kernels in PyTorch's wheels that this GPU runs, such as 86. For the 8.x family, the wheels
    /// have kernels for 8.0 and 8.6.
    pub(crate) fn kernel_version(&self) -> i32 {
        match self.capability {
            (8, 7..) => 86,
            (major, minor) => 10 * major + minor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_and_another_text_is_not() {
        let gpu = Gpu::read("8.9, 128,75497472, 25386352640, NVIDIA GeForce RTX 4090, 24 GB").unwrap();
        assert_eq!((gpu.capability, gpu.multiprocessors, gpu.memory_bytes), ((8, 9), 128, 25_386_352_640));
        assert_eq!((gpu.name.as_str(), gpu.kernel_version()), ("NVIDIA GeForce RTX 4090, 24 GB", 86));
        assert_eq!(gpu.architecture().shared_bytes_per_block, 101_376);
        for text in ["", "h100", "9,1,1,1,x", "9.0,0,1,1,x", "9.0,132,1,-1,x", "9.0,132,1,1,"] {
            assert_eq!(Gpu::read(text), None, "{text}");
        }
    }

    #[test]
    fn shared_memory_is_as_nvidia_documents_it() {
        let with = |capability| Gpu { capability, ..Gpu::a100() }.architecture();
        assert_eq!(with((8, 0)).shared_bytes_per_block, 166_912);
        assert_eq!(with((9, 0)).shared_bytes_per_block, 232_448);
        assert_eq!(with((7, 5)).shared_bytes_per_block, 65_536);
    }
}
