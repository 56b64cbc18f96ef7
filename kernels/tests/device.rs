//! A device from end to end, by this crate's own calls: on a GPU where HIGHWATER_TEST_GPU is 1, else on the stand-in.
#![expect(unsafe_code, reason = "gives devices addresses and launches kernels")]

use std::sync::Arc;

use highwater_kernels::number::Number;
use highwater_kernels::{Arguments, Gpu, Kernel, Types, devices};
use highwater_stand_in::Setup;

fn gpu() -> Arc<Gpu> {
    Gpu::open(0).expect("a device opens")
}

#[test]
fn the_stand_in_is_a_device_like_any() {
    Setup::new().memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let known = devices().expect("the driver answers");
        assert_eq!(known.len(), 1);
        assert_eq!((known[0].ordinal, known[0].memory_bytes), (0, 64 << 20));
        let gpu = gpu();
        assert_eq!((gpu.ordinal(), gpu.name(), gpu.capability()), (0, "Highwater stand-in", (9, 0)));
    });
}

#[test]
fn a_kernel_computes_what_a_loop_does() {
    Setup::new().run(|| {
        let gpu = gpu();
        let numbers: Vec<f32> = (0..1000).map(|i| i as f32 / 7.0 - 50.0).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let (from, to) = (gpu.reserve(4000).expect("memory"), gpu.reserve(4000).expect("memory"));
        let kernel = Kernel::new("elementwise", "unary_affine", Types::of(Number::F32));
        let arguments = Arguments::new().with(to).with(from).with(1000_u64).with(1_u32).with(2.0_f64).with(1.0_f64);
        let mut found = vec![0_u8; 4000];
        // SAFETY: both blocks have 4000 bytes, and are nobody else's.
        unsafe {
            gpu.copy_in(from, bytes, 0).expect("a copy");
            gpu.launch(kernel, gpu.grid_over(1000, 4), 0, &arguments).expect("a launch");
            gpu.copy_out(&mut found, to, 0).expect("a copy");
            gpu.release(from).expect("a release");
            gpu.release(to).expect("a release");
        }
        for (&x, y) in numbers.iter().zip(bytemuck::cast_slice::<u8, [u8; 4]>(&found)) {
            assert_eq!(f32::from_le_bytes(*y), x * 2.0 + 1.0);
        }
    });
}
