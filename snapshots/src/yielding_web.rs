//! Lets long work give way to the page's frames: a browser runs all of a page on one thread. Work that runs
//! [`in_slices`] is suspended after each slice by WebAssembly's promise integration (JSPI), and continued once the
//! page has handled input and drawn a frame if one is due. Without JSPI the work runs in one piece.

#![allow(deprecated, reason = "wasm-bindgen marks its support of JSPI as experimental in this way")]

use std::cell::Cell;

use wasm_bindgen::prelude::wasm_bindgen;

/// The length of a slice in milliseconds: a frame at 60 Hz has 16, of which the window needs a third.
const SLICE_MS: f64 = 10.0;

#[wasm_bindgen]
extern "C" {
    /// Milliseconds since the page was opened.
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;

    /// Suspends the work until the page has had its turn.
    #[wasm_bindgen(js_namespace = highwater, suspending)]
    fn next_turn();
}

/// Ticks after which the clock is looked at.
const TICKS_A_LOOK: u32 = 512;

thread_local! {
    static TICKS: Cell<u32> = const { Cell::new(0) };
    /// The time at which the current slice ends; `None` outside of work that may be suspended.
    static SLICE_END: Cell<Option<f64>> = const { Cell::new(None) };
}

/// Runs `work` such that [`yield_if_due`] suspends it. It must be called from an exported function that may be
/// suspended.
pub fn in_slices(work: impl FnOnce()) {
    let outer = SLICE_END.replace(Some(now() + SLICE_MS));
    work();
    SLICE_END.set(outer);
}

/// Whether the caller runs [`in_slices`].
pub fn is_in_slices() -> bool {
    SLICE_END.get().is_some()
}

/// Counts a piece of work that takes a microsecond or less, as for one event or block; after some hundreds of them,
/// gives way like [`yield_if_due`].
#[inline]
pub fn tick() {
    let count = TICKS.get().wrapping_add(1);
    TICKS.set(count);
    if count.is_multiple_of(TICKS_A_LOOK) {
        yield_if_due();
    }
}

/// Gives way if the current slice of work has taken its time. Called before pieces of work that take a tenth of a
/// millisecond and more.
pub fn yield_if_due() {
    if SLICE_END.get().is_some_and(|end| now() >= end) {
        // Frames run meanwhile, and must not be suspended.
        SLICE_END.set(None);
        next_turn();
        SLICE_END.set(Some(now() + SLICE_MS));
    }
}
