//! Processes many recordings on a few threads, so that few are in memory at once.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Reading a recording keeps several processors busy by itself; more at once would only take more memory.
const MAX_WORKERS: usize = 4;

/// Number of worker threads.
pub fn worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS)
}

/// Lets `work` do `0..count`, a few at a time, and gives what it gives, in order; less than that where it stopped the
/// others.
///
/// These are threads of their own, not those of rayon: one of rayon's that waits for a part of one recording begins
/// with the next one meanwhile, and would hold ever more of them in memory.
pub fn on_workers<T: Send>(count: usize, work: impl Fn(usize) -> (T, ControlFlow<()>) + Sync) -> Vec<T> {
    let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    let worker = || {
        while !is_stopped.load(Ordering::Relaxed) {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= count {
                break;
            }
            let (result, flow) = work(row);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((row, result));
            if flow.is_break() {
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let helpers = worker_count().min(count).saturating_sub(1);
        // Where no thread is to be had, fewer do the work.
        for _ in 0..helpers {
            let _ = std::thread::Builder::new().name("highwater-rank".to_owned()).spawn_scoped(scope, worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(row, _)| *row);
    done.into_iter().map(|(_, result)| result).collect()
}
