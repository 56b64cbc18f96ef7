//! Decodes sections on several threads if the feature `parallel` is enabled, and on one thread otherwise.
//!
//! Programs that only record disable the feature.

#[cfg(feature = "parallel")]
mod threads {
    use rayon::prelude::*;

    pub(in crate::format) fn threads() -> usize {
        rayon::current_num_threads()
    }

    /// Runs both closures, in parallel if a thread is available.
    pub(in crate::format) fn join<A: Send, B: Send>(
        a: impl FnOnce() -> A + Send,
        b: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        rayon::join(a, b)
    }

    /// Returns the results of `work` for each item, in order; `init` creates the state of a thread.
    pub(in crate::format) fn map<I: Sync, S, T: Send>(
        items: &[I],
        init: impl Fn() -> S + Sync + Send,
        work: impl Fn(&mut S, &I) -> T + Sync + Send,
    ) -> Vec<T> {
        items.par_iter().map_init(init, work).collect()
    }
}

#[cfg(not(feature = "parallel"))]
mod threads {
    pub(in crate::format) fn threads() -> usize {
        1
    }

    pub(in crate::format) fn join<A, B>(a: impl FnOnce() -> A, b: impl FnOnce() -> B) -> (A, B) {
        (a(), b())
    }

    /// Returns the results of `work` for each item, in order; `init` creates the state that is reused between items.
    pub(in crate::format) fn map<I, S, T>(items: &[I], init: impl Fn() -> S, work: impl Fn(&mut S, &I) -> T) -> Vec<T> {
        let mut state = init();
        items.iter().map(|item| work(&mut state, item)).collect()
    }
}

pub(super) use threads::{join, map, threads};
