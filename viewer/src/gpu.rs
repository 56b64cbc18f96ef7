//! GPU models: the properties reported by CUDA, for simulations, and the peak rates, for estimating the time of a step
//! by the roofline model of Williams et al., "Roofline: An Insightful Visual Performance Model for Multicore
//! Architectures" (2009).

use std::str::FromStr;

/// A GPU model, as described by CUDA and its datasheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// The name on the command line.
    pub key: &'static str,
    /// The name that CUDA reports.
    pub name: &'static str,
    /// Total memory as CUDA reports it. It differs by up to 200 MiB between driver versions.
    pub memory_bytes: u64,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    rates: Option<Rates>,
}

/// Peak rates according to the vendor's datasheet, without sparsity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The key of the GPU.
    pub gpu: &'static str,
    /// Matrix products in bf16 or f16 with f32 sums, in 10¹² floating-point operations a second.
    half: f64,
    /// Matrix products in TF32, in the same unit.
    tf32: f64,
    /// All other arithmetic in f32, in the same unit.
    single: f64,
    /// Bandwidth of the memory in 10⁹ bytes a second.
    bandwidth: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Products of matrices in bf16 or f16.
    HalfProduct,
    /// Products of matrices in f32.
    SingleProduct,
    /// All other arithmetic.
    Other,
}

const fn gpu(
    key: &'static str,
    name: &'static str,
    memory_bytes: u64,
    capability: (u32, u32),
    multiprocessors: u32,
    l2_bytes: u64,
) -> Gpu {
    Gpu { key, name, memory_bytes, capability, multiprocessors, l2_bytes, rates: None }
}

/// The known GPUs. Memory, multiprocessors and caches are taken from public reports of CUDA's `deviceQuery` and
/// PyTorch's `get_device_properties` on Linux.
#[rustfmt::skip]
pub(crate) const GPUS: &[Gpu] = &[
    gpu("h100", "NVIDIA H100 80GB HBM3", 85_028_896_768, (9, 0), 132, 52_428_800)
        // NVIDIA H100 Tensor Core GPU datasheet: SXM. Half of the rates with sparsity.
        .with_rates([989.5, 494.5, 67.0], 3350.0),
    gpu("h100-pcie", "NVIDIA H100 PCIe", 84_943_044_608, (9, 0), 114, 52_428_800),
    gpu("h100-nvl", "NVIDIA H100 NVL", 99_861_594_112, (9, 0), 132, 62_914_560),
    gpu("h200", "NVIDIA H200", 150_110_011_392, (9, 0), 132, 62_914_560)
        // NVIDIA H200 Tensor Core GPU datasheet: SXM. Half of the rates with sparsity.
        .with_rates([989.5, 494.5, 67.0], 4800.0),
    gpu("gh200", "NVIDIA GH200 480GB", 102_005_473_280, (9, 0), 132, 62_914_560),
    gpu("b200", "NVIDIA B200", 191_514_411_008, (10, 0), 148, 132_644_864),
    gpu("b300", "NVIDIA B300 SXM6 AC", 287_428_313_088, (10, 3), 148, 132_644_864),
    gpu("gb200", "NVIDIA GB200", 197_897_748_480, (10, 0), 152, 135_528_448),
    gpu("gb300", "NVIDIA GB300", 297_021_079_552, (10, 3), 152, 135_528_448),
    gpu("a100", "NVIDIA A100-SXM4-80GB", 85_100_068_864, (8, 0), 108, 41_943_040)
        .with_rates([312.0, 156.0, 19.5], 2039.0), // NVIDIA A100 Tensor Core GPU datasheet: SXM, 80 GB.
    gpu("a100-pcie", "NVIDIA A100 80GB PCIe", 84_974_239_744, (8, 0), 108, 41_943_040),
    gpu("a100-40gb", "NVIDIA A100-SXM4-40GB", 42_298_834_944, (8, 0), 108, 41_943_040),
    gpu("a100-40gb-pcie", "NVIDIA A100-PCIE-40GB", 42_298_834_944, (8, 0), 108, 41_943_040),
    gpu("a10", "NVIDIA A10", 23_696_375_808, (8, 6), 72, 6_291_456)
        .with_rates([125.0, 62.5, 31.2], 600.0), // NVIDIA A10 Tensor Core GPU datasheet.
    gpu("a10g", "NVIDIA A10G", 23_684_186_112, (8, 6), 80, 6_291_456),
    gpu("a30", "NVIDIA A30", 25_343_295_488, (8, 0), 56, 25_165_824),
    gpu("a40", "NVIDIA A40", 47_608_692_736, (8, 6), 84, 6_291_456),
    gpu("a5000", "NVIDIA RTX A5000", 25_402_343_424, (8, 6), 64, 6_291_456),
    gpu("a6000", "NVIDIA RTX A6000", 51_041_271_808, (8, 6), 84, 6_291_456),
    gpu("rtx6000ada", "NVIDIA RTX 6000 Ada Generation", 51_002_867_712, (8, 9), 142, 100_663_296),
    gpu("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 101_970_870_272, (12, 0), 188, 134_217_728),
    gpu("rtxpro6000-server", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 101_974_081_536, (12, 0), 188, 134_217_728),
    gpu("l4", "NVIDIA L4", 23_570_219_008, (8, 9), 58, 50_331_648)
        // NVIDIA L4 Tensor Core GPU datasheet. Half of the rates with sparsity.
        .with_rates([121.0, 60.0, 30.3], 300.0),
    gpu("l40", "NVIDIA L40", 47_665_643_520, (8, 9), 142, 100_663_296),
    gpu("l40s", "NVIDIA L40S", 47_803_596_800, (8, 9), 142, 100_663_296)
        .with_rates([362.05, 183.0, 91.6], 864.0), // NVIDIA L40S datasheet.
    gpu("t4", "Tesla T4", 15_828_254_720, (7, 5), 40, 4_194_304),
    gpu("v100", "Tesla V100-SXM2-16GB", 16_928_342_016, (7, 0), 80, 6_291_456),
    gpu("v100-32gb", "Tesla V100-SXM2-32GB", 34_089_730_048, (7, 0), 80, 6_291_456),
    gpu("rtx2080ti", "NVIDIA GeForce RTX 2080 Ti", 11_348_672_512, (7, 5), 68, 5_767_168),
    gpu("rtx3060", "NVIDIA GeForce RTX 3060", 12_629_508_096, (8, 6), 28, 2_359_296),
    gpu("rtx3080", "NVIDIA GeForce RTX 3080", 10_472_390_656, (8, 6), 68, 5_242_880),
    gpu("rtx3090", "NVIDIA GeForce RTX 3090", 25_327_697_920, (8, 6), 82, 6_291_456),
    gpu("rtx3090ti", "NVIDIA GeForce RTX 3090 Ti", 25_285_361_664, (8, 6), 84, 6_291_456),
    gpu("rtx4060ti", "NVIDIA GeForce RTX 4060 Ti", 16_857_038_848, (8, 9), 34, 33_554_432),
    gpu("rtx4070ti", "NVIDIA GeForce RTX 4070 Ti", 12_589_727_744, (8, 9), 60, 50_331_648),
    gpu("rtx4080", "NVIDIA GeForce RTX 4080", 16_828_596_224, (8, 9), 76, 67_108_864),
    gpu("rtx4090", "NVIDIA GeForce RTX 4090", 25_386_352_640, (8, 9), 128, 75_497_472)
        .with_rates([165.2, 82.6, 82.6], 1008.0), // NVIDIA Ada GPU Architecture whitepaper: GeForce RTX 4090.
    gpu("rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", 16_611_540_992, (12, 0), 70, 50_331_648),
    gpu("rtx5080", "NVIDIA GeForce RTX 5080", 16_608_919_552, (12, 0), 84, 67_108_864),
    gpu("rtx5090", "NVIDIA GeForce RTX 5090", 33_668_857_856, (12, 0), 170, 100_663_296),
];

impl Gpu {
    pub(crate) fn unless_named() -> Self {
        "a100".parse().expect("the default GPU is not in the table")
    }

    /// Returns the peak rates.
    ///
    /// # Errors
    /// Fails if the rates are unknown.
    pub fn rates(self) -> Result<Rates, String> {
        let known = || keys(|gpu| gpu.rates.is_some());
        self.rates.ok_or_else(|| format!("the peak rates of '{}' are not known: expected one of {}", self.key, known()))
    }

    /// Returns the same GPU with `memory_bytes` of memory.
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }

    const fn with_rates(self, [half, tf32, single]: [f64; 3], bandwidth: f64) -> Self {
        Self { rates: Some(Rates { gpu: self.key, half, tf32, single, bandwidth }), ..self }
    }
}

fn keys(known: impl Fn(&Gpu) -> bool) -> String {
    GPUS.iter().filter(|gpu| known(gpu)).map(|gpu| gpu.key).collect::<Vec<_>>().join(", ")
}

impl FromStr for Gpu {
    type Err = String;

    /// Finds a GPU by its key, with or without the prefix `rtx`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.to_ascii_lowercase();
        let is_wanted = |gpu: &&Self| gpu.key == wanted || gpu.key.strip_prefix("rtx") == Some(wanted.as_str());
        let found = GPUS.iter().find(is_wanted).copied();
        found.ok_or_else(|| format!("unknown GPU '{text}': expected one of {}", keys(|_| true)))
    }
}

/// A GPU's peak rates, and the settings of programs that affect them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Roofline {
    pub rates: Rates,
    /// Whether products of f32 matrices are computed in TF32; PyTorch does so only if the program allows it.
    pub tf32: bool,
}

impl Roofline {
    /// Returns the time in nanoseconds of an operation of `flops` floating-point operations that moves `bytes` bytes:
    /// the time of its arithmetic or of its memory traffic, whichever is longer.
    pub(crate) fn nanoseconds(&self, arithmetic: Arithmetic, flops: u64, bytes: u64) -> f64 {
        let rate = match arithmetic {
            Arithmetic::HalfProduct => self.rates.half,
            Arithmetic::SingleProduct if self.tf32 => self.rates.tf32,
            Arithmetic::SingleProduct | Arithmetic::Other => self.rates.single,
        };
        (flops as f64 / (rate * 1e3)).max(bytes as f64 / self.rates.bandwidth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_arithmetic_and_memory_decides_and_the_dtype_of_products_matters() {
        let rates = "a100".parse::<Gpu>().unwrap().rates().unwrap();
        let [plain, allowed] = [false, true].map(|tf32| Roofline { rates, tf32 });
        let flops = 312_000_000_000;
        assert_eq!(plain.nanoseconds(Arithmetic::HalfProduct, flops, 0), 1e6, "1 ms");
        assert_eq!(plain.nanoseconds(Arithmetic::SingleProduct, flops, 0), 16e6, "19.5 TFLOP/s");
        assert_eq!(allowed.nanoseconds(Arithmetic::SingleProduct, flops, 0), 2e6, "156 TFLOP/s");
        assert_eq!(plain.nanoseconds(Arithmetic::Other, 1, 2_039_000_000), 1e6, "2039 GB/s");
    }

    #[test]
    fn a_gpu_is_found_by_its_key_and_an_unknown_one_is_named() {
        assert_eq!("RTX4090".parse::<Gpu>().unwrap(), "4090".parse().unwrap());
        assert_eq!("a100".parse::<Gpu>().unwrap().name, "NVIDIA A100-SXM4-80GB");
        let error = "h1000".parse::<Gpu>().unwrap_err();
        assert!(error.starts_with("unknown GPU 'h1000': expected one of h100, h100-pcie, "), "{error}");
        let error = "b200".parse::<Gpu>().unwrap().rates().unwrap_err();
        assert_eq!(
            error,
            "the peak rates of 'b200' are not known: expected one of h100, h200, a100, a10, l4, l40s, rtx4090"
        );
    }

    #[test]
    fn keys_and_descriptions_are_distinct_and_plain() {
        for (number, gpu) in GPUS.iter().enumerate() {
            assert!(GPUS[..number].iter().all(|other| other.key != gpu.key), "{}", gpu.key);
            assert!(gpu.memory_bytes > 8 << 30 && gpu.capability >= (7, 0) && gpu.multiprocessors > 0, "{}", gpu.key);
        }
    }
}
