//! Peak rates of GPUs, from which the time of a step is estimated: the roofline model of Williams et al., "Roofline: An
//! Insightful Visual Performance Model for Multicore Architectures" (2009).

use std::str::FromStr;

/// A GPU with the peak rates of its vendor's datasheet, without sparsity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// The name, as on the command line.
    pub name: &'static str,
    /// Matrix products in bf16 or f16 with f32 sums, in 10¹² floating-point operations a second.
    half: f64,
    /// Matrix products in TF32.
    tf32: f64,
    /// Everything else in f32.
    single: f64,
    /// Bandwidth of the memory in 10⁹ bytes a second.
    bandwidth: f64,
}

/// How numbers are computed, which decides the peak rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Products of matrices in bf16 or f16.
    HalfProduct,
    /// Products of matrices in f32.
    SingleProduct,
    /// All other arithmetic.
    Other,
}

const fn gpu(name: &'static str, [half, tf32, single]: [f64; 3], bandwidth: f64) -> Gpu {
    Gpu { name, half, tf32, single, bandwidth }
}

/// The known GPUs.
pub const GPUS: [Gpu; 7] = [
    // NVIDIA A10 Tensor Core GPU datasheet.
    gpu("a10", [125.0, 62.5, 31.2], 600.0),
    // NVIDIA A100 Tensor Core GPU datasheet: SXM, 80 GB.
    gpu("a100", [312.0, 156.0, 19.5], 2039.0),
    // NVIDIA H100 Tensor Core GPU datasheet: SXM. Half of the rates with sparsity.
    gpu("h100", [989.5, 494.5, 67.0], 3350.0),
    // NVIDIA H200 Tensor Core GPU datasheet: SXM. Half of the rates with sparsity.
    gpu("h200", [989.5, 494.5, 67.0], 4800.0),
    // NVIDIA L4 Tensor Core GPU datasheet. Half of the rates with sparsity.
    gpu("l4", [121.0, 60.0, 30.3], 300.0),
    // NVIDIA L40S datasheet.
    gpu("l40s", [362.05, 183.0, 91.6], 864.0),
    // NVIDIA Ada GPU Architecture whitepaper: GeForce RTX 4090.
    gpu("rtx4090", [165.2, 82.6, 82.6], 1008.0),
];

impl FromStr for Gpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = GPUS.into_iter().find(|gpu| gpu.name == text);
        let names = || GPUS.map(|gpu| gpu.name).join(", ");
        found.ok_or_else(|| format!("unknown GPU '{text}': expected one of {}", names()))
    }
}

/// A GPU and how programs use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// The GPU.
    pub gpu: Gpu,
    /// Whether products of f32 matrices are computed in TF32. In PyTorch they are not unless it is allowed.
    pub tf32: bool,
}

impl Roofline {
    /// Returns the time in nanoseconds of one operation of `flops` floating-point operations that moves `bytes` bytes: that
    /// of its arithmetic or of its memory traffic, whichever is longer.
    pub fn nanoseconds(&self, arithmetic: Arithmetic, flops: u64, bytes: u64) -> f64 {
        let rate = match arithmetic {
            Arithmetic::HalfProduct => self.gpu.half,
            Arithmetic::SingleProduct if self.tf32 => self.gpu.tf32,
            Arithmetic::SingleProduct | Arithmetic::Other => self.gpu.single,
        };
        (flops as f64 / (rate * 1e3)).max(bytes as f64 / self.gpu.bandwidth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_arithmetic_and_memory_decides_and_the_dtype_of_products_matters() {
        let gpu: Gpu = "a100".parse().unwrap();
        let [plain, allowed] = [false, true].map(|tf32| Roofline { gpu, tf32 });
        let flops = 312_000_000_000;
        assert_eq!(plain.nanoseconds(Arithmetic::HalfProduct, flops, 0), 1e6, "1 ms");
        assert_eq!(plain.nanoseconds(Arithmetic::SingleProduct, flops, 0), 16e6, "19.5 TFLOP/s");
        assert_eq!(allowed.nanoseconds(Arithmetic::SingleProduct, flops, 0), 2e6, "156 TFLOP/s");
        assert_eq!(plain.nanoseconds(Arithmetic::Other, 1, 2_039_000_000), 1e6, "2039 GB/s");
        let error = "h1000".parse::<Gpu>().unwrap_err();
        assert_eq!(error, "unknown GPU 'h1000': expected one of a10, a100, h100, h200, l4, l40s, rtx4090");
    }
}
