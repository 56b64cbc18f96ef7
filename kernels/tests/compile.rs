//! Every kernel compiles for the GPUs that are supported, without a remark from the compiler. Needs NVRTC, and no GPU.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use highwater_kernels::compile::compile;
use highwater_kernels::source::{Unit, units};
use highwater_kernels::{Error, library};

const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90"];

/// Makes a missing compiler a failure rather than a reason to skip.
const REQUIRED: &str = "HIGHWATER_REQUIRE_NVRTC";

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn every_kernel_compiles_for_every_supported_gpu_without_a_remark() {
    if let Err(error) = library::compiler() {
        assert!(std::env::var_os(REQUIRED).is_none(), "{error}");
        eprintln!("skipped: {error}");
        return;
    }
    let work: Vec<(Unit, &str)> = units().flat_map(|unit| ARCHITECTURES.map(|arch| (unit, arch))).collect();
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let complain = |text: String| complaints.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(unit, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match compile(unit, arch) {
                        Ok(compiled) if compiled.log.is_empty() => {}
                        Ok(compiled) => complain(format!("{unit}, {arch}:\n{}", compiled.log)),
                        Err(error @ Error::Compile { .. }) => complain(error.to_string()),
                        Err(error) => complain(format!("{unit}, {arch}: {error}")),
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}
