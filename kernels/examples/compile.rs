//! Compiles every kernel for this machine's GPU, or for a given architecture (`sm_90`), in parallel into the kernel
//! cache, so that nothing has to be compiled on first use.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use highwater_kernels::source::{Unit, units};
use highwater_kernels::{Gpu, cache};

fn main() -> ExitCode {
    let arch = match std::env::args().nth(1) {
        Some(arch) => arch,
        None => match Gpu::open(0) {
            Ok(gpu) => format!("sm_{}{}", gpu.capability().0, gpu.capability().1),
            Err(why) => {
                eprintln!("{why}");
                return ExitCode::FAILURE;
            }
        },
    };
    let (start, work) = (Instant::now(), units().collect::<Vec<Unit>>());
    let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&unit) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = cache::load(unit, &arch) {
                        eprintln!("{why}");
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (failures, seconds) = (failures.into_inner(), start.elapsed().as_secs_f64());
    let folder = cache::folder().map_or_else(|| "no folder".to_owned(), |folder| folder.display().to_string());
    println!("{} of {} units for {arch} in {seconds:.1} s, kept in {folder}", work.len() - failures, work.len());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
