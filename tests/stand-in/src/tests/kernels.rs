//! Tests of kernel execution: small programs, compiled and launched without the driver.
#![expect(unsafe_code, reason = "launches kernels by addresses")]

use std::ffi::CString;

use crate::compiler::compile_text;
use crate::failure::{Code, Failure};
use crate::programs::{Programs, Shape};

/// A loaded program whose kernels can be launched.
struct Trial {
    programs: Programs,
    module: u64,
    seed: u64,
}

impl Trial {
    fn new(text: &str) -> Self {
        let object = compile_text("trial.cu", text).unwrap_or_else(|log| panic!("{log}"));
        let mut programs = Programs::default();
        let module = programs.load(0, &object).expect("the kernels load");
        Self { programs, module, seed: 0 }
    }

    /// Launches a kernel whose only parameter is a pointer, with `blocks` × `threads`.
    fn run<V>(&mut self, kernel: &str, [blocks, threads]: [u32; 2], memory: &mut [V]) -> Result<(), Failure> {
        self.run_with_shared(kernel, [blocks, threads], 0, memory)
    }

    fn run_with_shared<V>(
        &mut self,
        kernel: &str,
        [blocks, threads]: [u32; 2],
        shared_bytes: u32,
        memory: &mut [V],
    ) -> Result<(), Failure> {
        let function = self.programs.find(self.module, &CString::new(kernel).expect("a name"))?;
        let pointer = memory.as_mut_ptr();
        let arguments = [(&raw const pointer).cast::<u8>(), std::ptr::null()];
        let shape = Shape { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes };
        // SAFETY: every kernel of these tests takes one pointer to as many numbers as its test gives.
        unsafe { self.programs.function(function)?.launch(shape, arguments.as_ptr(), self.seed) }?()
    }
}

const MEETINGS: &str = r#"
KERNEL void reverse(int* out) {
    __shared__ int all[256];
    all[threadIdx.x] = threadIdx.x + 1000 * blockIdx.x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
EXPORT(reverse)

KERNEL void sums(float* out) {
    float value = threadIdx.x;
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    out[threadIdx.x] = value;
}
EXPORT(sums)

KERNEL void shuffles(int* out) {
    int* own = out + threadIdx.x * 12;
    int lane = threadIdx.x % 32;
    own[0] = __shfl_sync(~0u, lane * 10, 3);
    own[1] = __shfl_sync(~0u, lane * 10, 9, 8);
    own[2] = __shfl_up_sync(~0u, lane, 2);
    own[3] = __shfl_down_sync(~0u, lane, 2);
    own[4] = __shfl_down_sync(~0u, lane, 2, 4);
    own[5] = (int)__ballot_sync(~0u, lane % 3 == 0);
    own[6] = __any_sync(~0u, lane == 31) + 2 * __all_sync(~0u, lane == 31) + 4 * __all_sync(~0u, lane < 32);
    own[7] = (int)__match_any_sync(~0u, lane / 8);
    own[8] = __reduce_add_sync(~0u, lane);
    own[9] = __syncthreads_count(threadIdx.x % 5 == 0);
    own[10] = __syncthreads_or(threadIdx.x == 63) + 2 * __syncthreads_and(threadIdx.x == 63);
    // Half a warp at a time, each as often as it likes.
    own[11] = lane;
    if (lane < 16) {
        for (int round = 0; round < 3; round++) {
            own[11] = __shfl_xor_sync(0x0000ffffu, own[11], 1);
        }
    } else {
        own[11] = __shfl_xor_sync(0xffff0000u, own[11], 15);
    }
}
EXPORT(shuffles)

KERNEL void early(int* out) {
    if (threadIdx.x >= 40) {
        return;
    }
    __syncthreads();
    unsigned here = __ballot_sync(~0u, 1);
    out[threadIdx.x] = __popc(here);
}
EXPORT(early)

KERNEL void dynamic(int* out) {
    DYNAMIC_SHARED(int, shared);
    out[threadIdx.x] = shared[threadIdx.x];
    __syncthreads();
    shared[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockDim.x + threadIdx.x] = shared[threadIdx.x ^ 1];
}
EXPORT(dynamic)

template <int count>
__device__ int kept(int value) {
    __shared__ int all[count];
    int before = all[threadIdx.x];
    all[threadIdx.x] = value;
    __syncthreads();
    return before;
}
KERNEL void declared(int* out) {
    __shared__ int last;
    int* own = out + blockIdx.x * 3 * blockDim.x + threadIdx.x;
    own[0] = last;
    own[blockDim.x] = kept<64>(threadIdx.x);
    own[2 * blockDim.x] = kept<32>(threadIdx.x);
    last = 3;
}
EXPORT(declared)

KERNEL void counted(unsigned* out) {
    atomicAdd(out, 1);
    atomicMax(out + 1, blockIdx.x * 100 + threadIdx.x);
    unsigned old = atomicCAS(out + 2, 0, threadIdx.x + 1);
    if (old == 0) {
        out[3] = atomicExch(out + 2, 7);
    }
}
EXPORT(counted)
"#;

#[test]
fn threads_of_a_block_wait_for_one_another() {
    let mut trial = Trial::new(MEETINGS);
    let mut out = vec![0_i32; 3 * 200];
    for seed in [0, 1, 7] {
        trial.seed = seed;
        trial.run("reverse", [3, 200], &mut out).expect("it runs");
        assert!(out.iter().enumerate().all(|(i, &v)| v as usize == i / 200 * 1000 + 199 - i % 200), "{out:?}");
    }
    let mut sums = vec![0.0_f32; 64];
    trial.run("sums", [1, 64], &mut sums).expect("it runs");
    assert_eq!((sums[0], sums[31], sums[32], sums[63]), (496.0, 496.0, 1520.0, 1520.0));
}

#[test]
fn lanes_exchange_what_cuda_says_they_do() {
    let mut trial = Trial::new(MEETINGS);
    for seed in [0, 3] {
        trial.seed = seed;
        let mut out = vec![[0_i32; 12]; 64];
        trial.run("shuffles", [1, 64], &mut out).expect("it runs");
        for (thread, found) in out.iter().enumerate() {
            let lane = thread as i32 % 32;
            let expected = [
                30,
                (lane / 8 * 8 + 1) * 10,
                if lane < 2 { lane } else { lane - 2 },
                if lane < 30 { lane + 2 } else { lane },
                if lane % 4 < 2 { lane + 2 } else { lane },
                0x4924_9249,
                5,
                0xff << (lane / 8 * 8),
                496,
                13,
                1,
                if lane < 16 { lane ^ 1 } else { lane ^ 15 },
            ];
            assert_eq!(*found, expected, "thread {thread}, seed {seed}");
        }
    }
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    let mut trial = Trial::new(MEETINGS);
    let mut out = vec![0_i32; 64];
    trial.run("early", [1, 64], &mut out).expect("it runs");
    assert_eq!((out[0], out[31], out[32], out[39], out[40]), (32, 32, 8, 8, 0));
}

#[test]
fn shared_memory_is_fresh_for_each_block_and_atomics_count() {
    let mut trial = Trial::new(MEETINGS);
    let mut out = vec![0_i32; 64];
    trial.run_with_shared("dynamic", [2, 32], 128, &mut out).expect("it runs");
    assert!(out[..32].iter().all(|&value| value == -1), "{out:?}");
    assert!(out[32..].iter().enumerate().all(|(i, &value)| value as usize == i ^ 1), "{out:?}");
    let mut found = vec![[0_i32; 32]; 9];
    trial.run("declared", [3, 32], &mut found).expect("it runs");
    for block in found.chunks(3) {
        assert_eq!((block[0][0], block[1], block[2]), (-1, [-1; 32], [-1; 32]));
    }
    let mut counts = vec![0_u32; 4];
    trial.run("counted", [3, 50], &mut counts).expect("it runs");
    assert_eq!(counts, [150, 249, 7, 1]);
}

const MISTAKES: &str = r#"
KERNEL void divergent(int* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncwarp(threadIdx.x < 63 ? ~0u : 0x80000000u);
        __syncthreads();
    }
}
EXPORT(divergent)

KERNEL void wrong_lane(int* out) { __syncwarp(1u); }
EXPORT(wrong_lane)

KERNEL void plain(int* out) {
    out[threadIdx.x] = 1;
    __syncthreads();
}
EXPORT_PLAIN(plain)

KERNEL void stray(int* out) { out[(long long)threadIdx.x << 40] = 1; }
EXPORT(stray)
KERNEL void stray_plainly(int* out) { out[(long long)blockIdx.x << 40] = 1; }
EXPORT_PLAIN(stray_plainly)

KERNEL void past_shared(int* out) {
    DYNAMIC_SHARED(int, shared);
    shared[64 + threadIdx.x] = *out;
}
EXPORT(past_shared)

KERNEL void by_zero(int* out) { out[1] = out[1] / out[0]; }
EXPORT_PLAIN(by_zero)

__device__ int deep(volatile int* out, int depth) {
    volatile int room[1024];
    room[depth % 1024] = *out;
    return depth == 0 ? 0 : deep(out, depth - 1) + room[depth % 1024];
}
KERNEL void endless(int* out) { *out = deep(out, 1000000); }
EXPORT(endless)

KERNEL void fine(int* out) { out[threadIdx.x] = 5; }
EXPORT(fine)
"#;

#[test]
fn a_mistake_in_a_kernel_fails_its_launch_and_says_where() {
    let mut trial = Trial::new(MISTAKES);
    let cases = [
        ("divergent", Code::LaunchFailed, "waits for ever", "thread (0, 0, 0)"),
        ("wrong_lane", Code::LaunchFailed, "no lane of the mask", "thread (1, 0, 0)"),
        ("plain", Code::LaunchFailed, "EXPORT_PLAIN", "thread (0, 0, 0)"),
        ("stray", Code::IllegalAddress, "has no memory", "block (0, 0, 0), thread (1, 0, 0)"),
        ("stray_plainly", Code::IllegalAddress, "memory, in block", "block (1, 0, 0), thread (0, 0, 0)"),
        ("past_shared", Code::IllegalAddress, "has no memory", "thread (0, 0, 0)"),
        ("by_zero", Code::LaunchFailed, "by zero", "thread (0, 0, 0)"),
        ("endless", Code::IllegalAddress, "stack", "thread (0, 0, 0)"),
    ];
    for (kernel, code, words, place) in cases {
        let mut out = vec![0_i32; 64];
        let failure = trial.run_with_shared(kernel, [2, 64], 256, &mut out).expect_err(kernel);
        assert_eq!(failure.code, code, "{kernel}: {}", failure.words);
        assert!(failure.words.starts_with(kernel) && failure.words.contains(words), "{}", failure.words);
        assert!(failure.words.contains(place), "{}", failure.words);
        trial.run("fine", [1, 64], &mut out).expect("the next launch is none the worse");
        assert!(out.iter().all(|&value| value == 5));
    }
}

#[test]
fn what_cannot_be_launched_is_refused() {
    let mut trial = Trial::new(MISTAKES);
    let mut out = [0_i32; 1];
    let words = |failure: Failure| failure.words;
    assert_eq!(trial.run("absent", [1, 1], &mut out).map_err(|failure| failure.code), Err(Code::NotFound));
    assert!(trial.run("fine", [1, 1025], &mut out).map_err(words).expect_err("too many").contains("1025"));
    assert!(trial.run("fine", [0, 1], &mut out).map_err(words).expect_err("no blocks").contains("blocks"));
    let shared = trial.run_with_shared("fine", [1, 1], 49 << 10, &mut out);
    assert!(shared.map_err(words).expect_err("too much").contains("50176 bytes"));
    let none = [std::ptr::null::<u8>(); 2];
    let shape = Shape { blocks: [1; 3], threads: [1; 3], shared_bytes: 0 };
    let handle = trial.programs.find(trial.module, c"fine").expect("it is there");
    let function = trial.programs.function(handle).expect("it is there");
    // SAFETY: it takes one argument, and the first pointer is null.
    let too_few = unsafe { function.launch(shape, none.as_ptr(), 0) };
    assert!(too_few.map(drop).map_err(words).expect_err("too few").contains("takes 1 arguments and is given 0"));
    let given = [0_u64; 2];
    let two = [given.as_ptr().cast::<u8>(), given[1..].as_ptr().cast(), std::ptr::null()];
    // SAFETY: both lead to numbers of 8 bytes.
    let too_many = unsafe { function.launch(shape, two.as_ptr(), 0) };
    assert!(too_many.map(drop).map_err(words).expect_err("too many").contains("given more"));
}

#[test]
fn arguments_lie_as_parameters_are_declared() {
    let mut trial =
        Trial::new("KERNEL void sum(int* out, unsigned char a, long long b) { *out = a + b; }\nEXPORT(sum)\n");
    let handle = trial.programs.find(trial.module, c"sum").expect("it is there");
    let function = trial.programs.function(handle).expect("it is there");
    let shape = Shape { blocks: [1; 3], threads: [1; 3], shared_bytes: 0 };
    let mut out = 0_i32;
    let words = [(&raw mut out).expose_provenance() as u64, 3, 4];
    let bytes = words.as_ptr().cast::<u8>();
    let right = [bytes, bytes.wrapping_add(8), bytes.wrapping_add(16), std::ptr::null()];
    // SAFETY: they are what the kernel takes.
    unsafe { function.launch(shape, right.as_ptr(), 0) }.expect("they fit")().expect("it runs");
    assert_eq!(out, 7);
    let wrong = [bytes, bytes.wrapping_add(8), bytes.wrapping_add(12), std::ptr::null()];
    // SAFETY: they lead into the same numbers.
    let refused = unsafe { function.launch(shape, wrong.as_ptr(), 0) }.map(drop).expect_err("they do not fit");
    assert!(
        refused.words.contains("argument 2 lies at byte 12; its parameters' types put it at 16"),
        "{}",
        refused.words
    );
}

#[test]
fn halves_are_rounded_to_the_nearest() {
    let text = "KERNEL void halves(unsigned* bits) {\n    unsigned own = bits[threadIdx.x + blockIdx.x * blockDim.x];\n    \
                bits[threadIdx.x + blockIdx.x * blockDim.x] = cpu::to_half(__uint_as_float(own)) | \
                (unsigned)cpu::to_half(cpu::of_half(own >> 16)) << 16;\n}\nEXPORT_PLAIN(halves)\n";
    let mut trial = Trial::new(text);
    let bits: Vec<u32> = (0..1 << 16).map(|i: u32| i << 16 | i.wrapping_mul(0x9e37) & 0xffff).collect();
    let mut found = bits.clone();
    trial.run("halves", [256, 256], &mut found).expect("it runs");
    for (before, after) in bits.into_iter().zip(found) {
        let value = f32::from_bits(before);
        let half = half::f16::from_f32(value);
        let there = half::f16::from_bits(after as u16);
        assert!(there.to_bits() == half.to_bits() || there.is_nan() && value.is_nan(), "{value}: {there} for {half}");
        let (own, again) = (half::f16::from_bits((before >> 16) as u16), half::f16::from_bits((after >> 16) as u16));
        assert!(own.to_bits() == again.to_bits() || own.is_nan() && again.is_nan(), "{own} became {again}");
    }
}
